"""This module makes the temporary directory of a pool, and removes those that killed programs left behind.

A pool that is closed removes its own. One whose program was killed cannot: its engine's process does it, or else the
next pool of the same user.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from windlass.providers.local.supervisor import PROCESS, HostProcess, kill_marked

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
    """Remove the directories of this user's pools whose programs have ended; return them."""
    gone = []
    for directory in base.glob(f"{PREFIX}*"):
        with suppress(OSError, ValueError, TypeError):
            mine = not directory.is_symlink() and directory.stat().st_uid == os.getuid()
            if mine and (_is_remainder(directory) or not _owner_of(directory).alive):
                gone.append(directory)
                _remove(directory)
    return gone


def _owner_of(directory: Path) -> HostProcess:
    return HostProcess(*json.loads((directory / OWNER).read_text(encoding="utf-8")))


def _is_remainder(directory: Path) -> bool:
    """Return whether a directory has only the records of nodes that ended after it was removed."""
    return os.listdir(directory) == ["nodes"] and os.listdir(directory / "nodes") == [".ended"]  # noqa: PTH208


def _remove(directory: Path) -> None:
    """Remove a directory, and the name of its owner last: what is still written into it meanwhile can be removed by the
    next sweep. What is left of nodes whose supervisors were killed is ended.
    """
    for home in directory.glob("nodes/*"):
        if not any(_is_supervised(host) for host in home.glob("host-*")):
            kill_marked(home.resolve())
    for one in directory.iterdir():
        if one.name != OWNER:
            shutil.rmtree(one) if one.is_dir() and not one.is_symlink() else one.unlink()
    shutil.rmtree(directory)


def _is_supervised(host: Path) -> bool:
    """Return whether the supervisor of a node lives: it ends the node's processes after their grace period."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return HostProcess(*json.loads((host / PROCESS).read_text(encoding="utf-8"))["supervisor"]).alive
    return False


SWEEPS = 20
PAUSE = 0.25
"""How often a process of a killed program's pool sweeps, and the seconds before each time: its nodes still end."""


def sweep_after_kill(base: Path | None = None) -> None:
    """Remove the directory of a program that was killed."""
    for _ in range(SWEEPS):
        time.sleep(PAUSE)
        if not sweep(base or Path(tempfile.gettempdir())):
            return
