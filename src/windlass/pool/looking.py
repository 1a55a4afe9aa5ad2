"""The file by which a pool can be looked at from another terminal: ``windlass status -c DIRECTORY/windlass.yaml``."""

from __future__ import annotations

import json
from pathlib import Path

from windlass.core.snapshot import Snapshot
from windlass.scenario.writing import write_scenario

from .shaping import PROVIDER, Shape

FILE = "windlass.yaml"
JOURNAL = "journal.db"


def write_config(shape: Shape, directory: Path, nodes: Path) -> None:
    """A configuration that names the pool's groups and its journal. JSON is YAML too."""
    groups = tuple(sold.group for sold in shape.settings.groups)
    written = write_scenario(Snapshot(groups, cluster=shape.settings.cluster))
    config = {
        **written,
        "providers": {PROVIDER: {"type": "local", "directory": str(nodes)}},
        "workload": {"type": "pool"},
        "journal": {"location": str(directory / JOURNAL)},
    }
    (directory / FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
