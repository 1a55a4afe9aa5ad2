"""The configuration of a controller: one YAML file, ``windlass.yaml``.

``schema`` declares the settings of the controller; providers and workloads declare theirs in their own packages
(``registry`` collects them). ``reader`` turns a file into a ``Config`` by these declarations, ``reference`` lists them,
and ``json_schema`` makes a JSON Schema of them. ``planned_file`` reads a configuration for ``windlass plan``;
``warnings`` finds settings that are allowed but probably a mistake. ``importers`` convert files of Ray and Iris.
``build`` builds the providers and the workload of a configuration; no other module here opens anything.

A wrong file raises ``ConfigError`` with one message per mistake, and never another exception.
"""

from .reader import Config, ConfigError, JournalConfig, ProviderConfig, WorkloadConfig, read_config

__all__ = ["Config", "ConfigError", "JournalConfig", "ProviderConfig", "WorkloadConfig", "read_config"]
