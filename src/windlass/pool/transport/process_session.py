"""ProcessSession runs a program in a new session, and ends all processes of that session.

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
    """A command, and all processes that it starts."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: str) -> None:
        """``directory``: is removed with the session. The output of the command is written to a file there."""
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
        """Processes that were stopped at the last check, and since when."""

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def last_output(self) -> str:
        """Return the end of its output."""
        with suppress(OSError):
            return Path(self._directory, "output").read_text(errors="replace").strip()[-2000:]
        return ""

    def end_stopped(self, seconds: float) -> list[int]:
        """Kill processes of the session that have been stopped (SIGSTOP) for too long; return their ids. Call it
        regularly.
        """
        now, stopped = time.monotonic(), _members(self._process.pid, "T")
        self._stopped = {pid: self._stopped.get(pid, now) for pid in stopped}
        late = [pid for pid, since in self._stopped.items() if now - since >= seconds]
        for pid in late:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return late

    def end(self) -> None:
        """Kill all processes of the session, and wait until none is left."""
        _kill_session(self._process.pid)
        self._process.wait()
        with suppress(OSError):
            os.kill(self._guard, signal.SIGKILL)
            os.waitpid(self._guard, 0)
        shutil.rmtree(self._directory, ignore_errors=True)


def _guard(session: int, directory: str) -> int:
    """Start a process that ends the session after this process has ended."""

    def end() -> None:
        _kill_session(session)
        shutil.rmtree(directory, ignore_errors=True)

    return watch_over_this(end)


def watch_over_this(then: Callable[[], object]) -> int:
    """Start a process that waits for the end of this one, however it ends, and then calls ``then``; return its id. Call
    it before any other thread is started.
    """
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
    """Return the living processes of a session; with ``states`` only those in one of these kernel states."""
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
    """Return the command that runs a module. In a source tree it adds the package's directory to the path, for an
    interpreter that would find another package or none; on a machine without that directory it has no effect.
    """
    directory = str(Path(__file__).resolve().parents[3])  # where the package lies; importing it would be upwards
    if directory in (*site.getsitepackages(), site.getusersitepackages()):
        return python, "-m", module
    text = f"import sys; sys.path.insert(0, {directory!r}); from {module} import main; sys.exit(main())"
    return python, "-c", text


def stop_event(owner: int) -> asyncio.Event:
    """Return an event that is set when the parent process has ended, or has asked this process to end."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(os.pidfd_open(owner), ended.set)
    loop.add_signal_handler(signal.SIGTERM, ended.set)
    if os.getppid() != owner:  # it ended before we could look
        ended.set()
    return ended
