"""ProcessSession runs a program that starts many processes in its own session, and ends all of them.

A guard process watches it: when the process that started the session has ended in any way, the guard kills the rest
of the session. Needs Linux.
"""

from __future__ import annotations

import asyncio
import os
import select
import shutil
import signal
import site
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_PAUSE: Final = 0.02


class ProcessSession:
    """A command, and all that comes from it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: str) -> None:
        """``directory``: of its own; it goes with the session. What the command prints goes to a file there."""
        self._directory = directory
        with Path(directory, "output").open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._guard = _guard(self._process.pid, directory)
        self._stopped: dict[int, float] = {}
        """Processes that were stopped when they were last looked at, and since when."""

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def last_words(self) -> str:
        """The end of what it printed."""
        with suppress(OSError):
            return Path(self._directory, "output").read_text(errors="replace").strip()[-2000:]
        return ""

    def end_stopped(self, seconds: float) -> list[int]:
        """Kill processes of the session that have been stopped (SIGSTOP) for so long; those that were killed. To be
        called regularly."""
        now, stopped = time.monotonic(), _members(self._process.pid, "T")
        self._stopped = {pid: self._stopped.get(pid, now) for pid in stopped}
        late = [pid for pid, since in self._stopped.items() if now - since >= seconds]
        for pid in late:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return late

    def end(self) -> None:
        """Kill all of it; come back when nothing is left."""
        _kill_session(self._process.pid)
        self._process.wait()
        with suppress(OSError):
            os.kill(self._guard, signal.SIGKILL)
            os.waitpid(self._guard, 0)
        shutil.rmtree(self._directory, ignore_errors=True)


def _guard(session: int, directory: str) -> int:
    """A process that ends the session when this process is gone."""

    def end() -> None:
        _kill_session(session)
        shutil.rmtree(directory, ignore_errors=True)

    return watch_over_this(end)


def watch_over_this(then: Callable[[], object]) -> int:
    """Start a process that waits for the end of this one, however it ends, and does something ``then``; its id. To be
    called while there are no other threads."""
    parent = os.pidfd_open(os.getpid())
    pid = os.fork()
    if pid:
        os.close(parent)
        return pid
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        select.select([parent], [], [])
        then()
    finally:
        os._exit(0)


def _kill_session(session: int) -> None:
    while found := _members(session):
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_PAUSE)


def _members(session: int, states: str = "") -> list[int]:
    """The living processes of a session; with ``states`` only those in one of these states of the kernel."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):
                text = (entry / "stat").read_text(encoding="ascii", errors="replace")
                state, _, _, sid = text[text.rindex(")") + 2 :].split()[:4]
                if int(sid) == session and (state in states if states else state not in "ZX"):
                    found.append(int(entry.name))
    return found


def program(python: str, module: str) -> tuple[str, ...]:
    """The command. From a source tree it says where the package is, for an interpreter that would find another one or
    none; on a machine without that directory nothing changes."""
    directory = str(Path(__file__).resolve().parents[3])  # where the package lies; importing it would be upwards
    if directory in (*site.getsitepackages(), site.getusersitepackages()):
        return python, "-m", module
    text = f"import sys; sys.path.insert(0, {directory!r}); from {module} import main; sys.exit(main())"
    return python, "-c", text


def stop_event(owner: int) -> asyncio.Event:
    """Set when the process that started this one has ended, or wants this one to: nothing outlives its pool."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(os.pidfd_open(owner), ended.set)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    if os.getppid() != owner:  # it ended before we could look
        ended.set()
    return ended
