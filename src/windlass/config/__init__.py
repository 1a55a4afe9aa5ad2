"""The configuration of a controller: one YAML file, ``windlass.yaml``.

``settings`` and ``types`` are the table of what may stand in the file; ``config`` reads a file by it and gives a
``Config``; ``reference`` lists it. ``importing`` turns a file of Ray or Iris into one of ours. A wrong file gives a
``ConfigError`` with one message per mistake and never any other exception. Nothing here opens what the file names.
"""

from .config import (
    Backoff,
    Config,
    ConfigError,
    ConfiguredGroup,
    Interval,
    JournalConfig,
    Leader,
    Policy,
    ProviderConfig,
    WorkloadConfig,
    default_policy,
    read_config,
)

__all__ = [
    "Backoff",
    "Config",
    "ConfigError",
    "ConfiguredGroup",
    "Interval",
    "JournalConfig",
    "Leader",
    "Policy",
    "ProviderConfig",
    "WorkloadConfig",
    "default_policy",
    "read_config",
]
