"""How a program of this package is started by another Python, here or on another machine, and when it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import site
from pathlib import Path


def program(python: str, module: str) -> tuple[str, ...]:
    """The command. From a source tree it says where the package is, for an interpreter that would find another one or
    none; on a machine without that directory nothing changes."""
    directory = str(Path(__file__).resolve().parents[3])  # where the package lies; importing it would be upwards
    if directory in (*site.getsitepackages(), site.getusersitepackages()):
        return python, "-m", module
    text = f"import sys; sys.path.insert(0, {directory!r}); from {module} import main; sys.exit(main())"
    return python, "-c", text


def told_to_end(owner: int) -> asyncio.Event:
    """Set when the process that started this one has ended, or wants this one to: nothing outlives its pool."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(os.pidfd_open(owner), ended.set)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    if os.getppid() != owner:  # it ended before we could look
        ended.set()
    return ended
