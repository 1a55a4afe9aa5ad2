"""This module makes the temporary directory of a pool, and removes those that killed programs left behind.

A pool that is closed removes its own. One whose program was killed cannot: the next pool of the same user does it.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from windlass.core.model.snapshot import Snapshot
from windlass.pool.options import PROVIDER, PoolShape
from windlass.providers.local.supervisor import HostProcess
from windlass.scenario.writer import write_scenario

PREFIX = "windlass-pool-"
OWNER = "owner.json"


def own_directory(base: Path | None = None) -> Path:
    """Make a new directory that records its owner, after removing those of programs that have ended."""
    base = base or Path(tempfile.gettempdir())
    sweep(base)
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
    owner = HostProcess.of(os.getpid())
    if owner is not None:
        (directory / OWNER).write_text(json.dumps(list(owner)), encoding="utf-8")
    return directory


def sweep(base: Path) -> list[Path]:
    """Remove the directories of this user's pools whose programs have ended; return those that were removed."""
    gone = []
    for directory in base.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError, TypeError):
            mine = not directory.is_symlink() and directory.stat().st_uid == os.getuid()
            if mine and not HostProcess(*json.loads((directory / OWNER).read_text(encoding="utf-8"))).alive:
                shutil.rmtree(directory, ignore_errors=True)
                gone.append(directory)
    return gone


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
