"""This module writes the configuration of a pool, with which the commands of another terminal read its state."""

from __future__ import annotations

import json
from pathlib import Path

from windlass.core.model.snapshot import Snapshot
from windlass.pool.options import PROVIDER, PoolShape
from windlass.scenario.writer import write_scenario

FILE = "windlass.yaml"
JOURNAL = "journal.db"


def write_config(shape: PoolShape, directory: Path, nodes: Path) -> None:
    """Write a configuration with the pool's groups and its journal. JSON is valid YAML."""
    groups = tuple(one.group for one in shape.settings.groups)
    written = write_scenario(Snapshot(groups, cluster=shape.settings.cluster))
    config = {
        **written,
        "providers": {PROVIDER: {"type": "local", "directory": str(nodes)}},
        "workload": {"type": "pool"},
        "journal": {"location": str(directory / JOURNAL)},
    }
    (directory / FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
