"""An owned directory belongs to a living process, and is removed by others after that process has ended.

The owner holds a lock of a file in the directory while it lives, and so do the processes that it forks. A process id
would not be unique: two containers that share a directory may have processes with the same id.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

OWNER: Final = "owner"
"""The file that the owner locks."""

_locks: dict[str, int] = {}
"""The open files of the locks that this process holds, by directory."""


def owned_directory(base: Path, prefix: str) -> Path:
    """Make a new directory that belongs to this process."""
    directory = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
    new = directory / f"{OWNER}.new"
    handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    new.rename(directory / OWNER)
    _locks[str(directory)] = handle
    return directory


def disown(directory: Path) -> None:
    """Release the lock of a directory."""
    handle = _locks.pop(str(directory), None)
    if handle is not None:
        os.close(handle)


def ownerless(base: Path, prefix: str) -> list[Path]:
    """Return the directories of this user whose owners have ended."""
    found = []
    for directory in base.glob(f"{prefix}*"):
        with suppress(OSError):
            if not directory.is_symlink() and directory.stat().st_uid == os.getuid() and _is_ownerless(directory):
                found.append(directory)
    return found


def _is_ownerless(directory: Path) -> bool:
    handle = os.open(directory / OWNER, os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.fstat(handle).st_uid != os.getuid():
            return False  # Ray makes its directory writable for all users
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(handle)
    return True
