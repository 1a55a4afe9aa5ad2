"""The configuration of a controller: one YAML file, ``windlass.yaml``.

``settings`` and ``types`` are the table of what may stand in the file; ``config`` reads a file by it and gives a
``Config``; ``reference`` lists it. ``importing`` turns a file of Ray or Iris into one of ours. A wrong file gives a
``ConfigError`` with one message per mistake and never any other exception. ``assembling`` makes the providers, the
workload and the journal that a configuration names; nothing else here opens anything.
"""

from .reader import Config, ConfigError, JournalConfig, ProviderConfig, WorkloadConfig, read_config

__all__ = ["Config", "ConfigError", "JournalConfig", "ProviderConfig", "WorkloadConfig", "read_config"]
