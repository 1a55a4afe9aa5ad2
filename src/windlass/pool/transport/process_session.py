"""ProcessSession runs a program in a new session, and ends all processes of that session.

A guard process watches it: when the process that started the session has ended in any way, the guard kills the rest
of the session. If both were killed, the next process of the same user that starts a session or a pool does it
(`sweep_sessions`). Needs Linux.
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

from windlass.providers.local.supervisor import HostProcess, all_pids

from .owned_directory import disown, owned_directory, ownerless

BASE: Final = Path("/tmp")
"""Where directories of sessions are made: sockets are in them, and their paths must be short."""
PREFIX: Final = "wl-"
MARK: Final = "WINDLASS_SESSION"
"""An environment variable of every process of a session: its directory. By it the session is found when no process that
knows it is left.
"""
_PAUSE: Final = 0.02
_SWEEPING: Final = 5.0
"""Seconds for the end of a session that is swept. If it takes longer, the next sweep continues."""


def session_directory(base: Path = BASE) -> str:
    """Make the directory of a session, after ending the sessions of processes that were killed."""
    sweep_sessions(base)
    return str(owned_directory(base, PREFIX))


class ProcessSession:
    """A command, and all processes that it starts."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], directory: str) -> None:
        """``directory``: made by `session_directory`; is removed with the session. The output of the command is written
        to a file there.
        """
        self._directory = directory
        with Path(directory, "output").open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env={**environment, MARK: directory},
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
        disown(Path(self._directory))


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


def sweep_sessions(base: Path = BASE) -> list[Path]:
    """End the sessions of this user whose starting process and guard have both ended, and remove their directories;
    return these.
    """
    gone = []
    for directory in ownerless(base, PREFIX):
        until = time.monotonic() + _SWEEPING
        while left := _of_directory(directory):
            for process in left:
                process.signal(signal.SIGKILL)
            if time.monotonic() > until:
                break
            time.sleep(_PAUSE)
        else:
            shutil.rmtree(directory, ignore_errors=True)
            gone.append(directory)
    return gone


def _of_directory(directory: Path) -> list[HostProcess]:
    """Return the living processes of the sessions that have the mark of a directory. Some programs overwrite the
    environment that the kernel shows, but all processes of a session come from the one that has the mark.
    """
    mark, processes = f"{MARK}={directory}".encode(), []
    for pid in all_pids():
        process = HostProcess.of(pid)  # first: it gets a signal only if it is the same process then
        if process is not None:
            with suppress(OSError):
                session, environment = os.getsid(pid), Path(f"/proc/{pid}/environ").read_bytes()
                processes.append((process, session, mark in environment.split(b"\0")))
    sessions = {session for _, session, marked in processes if marked} - {os.getsid(0)}
    return [process for process, session, _ in processes if session in sessions]


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
