"""The supervisor starts the command of one host of a local slice, and ends all of its processes.

    python local_host.py SLICE_DIRECTORY NUMBER

One supervisor stands over each host. It leaves the process that started it, so that a controller may die and come back
without losing the host. What it guarantees:

- A host starts at most once. The supervisor holds the lock of its host's directory for as long as it lives, and writes
  ``process.json`` before it does anything else; a second one finds the lock taken or the file there, and goes.
- Nothing stays behind. It adopts what its command leaves orphaned (a "subreaper"), so that a daemon that slipped out of
  the process group is found too. Asked to end (SIGTERM), or when the owner it is tied to is dead, or when the command
  has ended, it sends SIGTERM to all of it, waits the grace period, and sends SIGKILL until nothing is left.
- If the supervisor itself is killed, the kernel kills the command (its parent-death signal); the rest is found by the
  mark in its environment when the slice is terminated.

It is run in isolation from the package and imports the standard library only, so that it starts in milliseconds. The
provider imports from here how a process is distinguished from a later one with the same pid.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

RECORD: Final = "record.json"
PROCESS: Final = "process.json"
LOCK: Final = "lock"
ENDED: Final = ".ended"

TICK: Final = 0.2
"""Seconds between two looks at the owner, and between two sweeps of what must end."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_HEARD: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})


class HostProcess(NamedTuple):
    """A process identity: its number and its start time, so that a recycled number is another process."""

    pid: int
    start: str
    """Clock ticks since the machine was booted, and which boot that was."""

    @classmethod
    def of(cls, pid: int) -> HostProcess | None:
        """The process that has this number now; None when none has, or only a dead one."""
        fields = _stat(pid)
        if fields is None or fields[0] in ("Z", "X"):
            return None
        return cls(pid, f"{fields[19]}@{_boot()}")

    @property
    def alive(self) -> bool:
        return HostProcess.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Send a signal to this very process, never to one that took its number; False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # Looked at again with the handle open: from here on the number cannot come to mean another process.
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True


class StartTime(NamedTuple):
    """When a slice started: the time of day, and the time of a clock that cannot be set."""

    at: float
    steady: float
    boot: str
    """Which boot of this machine the steady clock counts from."""

    @classmethod
    def now(cls, at: float) -> StartTime:
        """Now, which is ``at`` by the time of day."""
        return cls(at, time.clock_gettime(time.CLOCK_BOOTTIME), _boot())

    @classmethod
    def read(cls, value: Any) -> StartTime | None:
        return None if value is None else cls(float(value[0]), float(value[1]), str(value[2]))

    def elapsed_to_now(self, now: float) -> float:
        """The time of day that it would be if the clock had not been set since; ``now`` after another boot."""
        return self.at + time.clock_gettime(time.CLOCK_BOOTTIME) - self.steady if self.boot == _boot() else now


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third (the state) on; the name before them may hold anything."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def write_json(path: Path, value: object) -> None:
    """The whole file or the old one, never a part of it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    with beside.open("w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def day_of(at: float) -> str:
    """The day of a time, so that days sort as text."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def remember_end(root: Path, slice_id: str, at: float) -> None:
    """Leave an empty file that says that this id has had its slice, with the time of its end: it never buys again."""
    day = root / ENDED / day_of(at)
    day.mkdir(mode=0o700, parents=True, exist_ok=True)
    (day / slice_id).touch(mode=0o600)
    os.utime(day / slice_id, (at, at))


def take_lock(path: Path, *, wait: bool) -> int | None:
    """An open handle that holds the lock until it is closed; None when another one holds it."""
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


# -- the program ---------------------------------------------------------------------------------------------------


def main(slice_directory: str, number: str) -> int:
    """Take the host, leave the caller, stand over the command. Returns to the caller once the host is taken."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    home, pipe = Path(slice_directory), os.pipe()
    if os.fork():
        os.close(pipe[1])
        return 0 if os.read(pipe[0], 1) else 1
    os.close(pipe[0])
    os.setsid()
    directory = home / f"host-{number}"
    try:
        lock = take_lock(directory / LOCK, wait=False)
    except FileNotFoundError:
        lock = None  # ended before it began
    if lock is None or (directory / PROCESS).exists():
        os.write(pipe[1], b"1")
        return 0
    me = HostProcess.of(os.getpid())
    write_json(directory / PROCESS, {"supervisor": me})
    os.write(pipe[1], b"1")
    os.close(pipe[1])
    # Read after process.json is written: the caller that ends the slice marks the record first and then looks for us,
    # so that either we see the mark or it sees us.
    try:
        record = json.loads((home / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0
    if not record.get("ending"):
        supervise(home, directory, record, int(number), me)
    return 0


def supervise(home: Path, directory: Path, record: dict[str, Any], number: int, me: HostProcess | None) -> None:
    """From the boot delay to the end of the last process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    owner = HostProcess(*record["tie_to"]) if record.get("tie_to") else None
    cause = _wait(None, owner, float(record.get("boot_delay", 0)))
    known: dict[str, Any] = {"supervisor": me}
    child, ends = None, dict[int, int]()
    if cause == "time":
        child = _start(record["hosts"][number]["command"])
        command = HostProcess.of(child)
        if command is not None:
            known["command"] = command
        cause = _note(directory, known, child, owner, ends) or _wait(child, owner, None, ends)
        if child in ends:
            known["exit"] = os.waitstatus_to_exitcode(ends[child])
            with suppress(OSError):  # before what it left is ended, which takes a while
                write_json(directory / PROCESS, known)
    _end_all(child, float(record.get("grace", 5)))
    with suppress(OSError):
        write_json(directory / PROCESS, {**known, "ended": cause})
    if cause == "orphaned":
        started, now = StartTime.read(record.get("started")), time.time()
        _remove(home, directory, now if started is None else started.elapsed_to_now(now))


def _note(directory: Path, known: dict[str, Any], child: int, owner: HostProcess | None, ends: dict[int, int]) -> str:
    """Write down which process the command is. A full disk must not end the command: it is tried again until there is
    room. What ended the wait, if something did."""
    while True:
        try:
            write_json(directory / PROCESS, known)
            return ""
        except OSError:
            cause = _wait(child, owner, 1.0, ends)
            if cause != "time":
                return cause


def _wait(
    child: int | None, owner: HostProcess | None, seconds: float | None, ends: dict[int, int] | None = None
) -> str:
    """Wait until ``time`` is over, the command has ``ended``, SIGTERM came (``told``), or the owner is gone
    (``orphaned``).

    ``ends`` gets the wait status of every child that has ended.
    """
    until = None if seconds is None else time.monotonic() + seconds
    while True:
        if owner is not None and not owner.alive:
            return "orphaned"
        if until is not None and time.monotonic() >= until:
            return "time"
        left = None if until is None else until - time.monotonic()
        if owner is not None:
            left = TICK if left is None else min(left, TICK)
        heard = signal.sigwaitinfo(_HEARD) if left is None else signal.sigtimedwait(_HEARD, max(left, 0.001))
        if heard is not None and heard.si_signo != signal.SIGCHLD:
            return "told"
        reaped = _reaped()
        if ends is not None:
            ends.update(reaped)
        if child in reaped:
            return "ended"


def _start(command: list[str]) -> int:
    """The host's command, in a session and process group of its own."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HEARD)
            # Python ignores this one, and what is ignored stays so over exec.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"windlass: cannot run {command[0]}: {error}\n".encode())
    os._exit(127)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _reaped() -> dict[int, int]:
    """Children, our own and adopted, that have ended since the last check, with their wait status."""
    found = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            found[ended[0]] = ended[1]
    return found


def _descendants() -> dict[int, int]:
    """Every process below this one, with its process group."""
    children: dict[int, list[int]] = {}
    groups: dict[int, int] = {}
    for pid in all_pids():
        if (fields := _stat(pid)) is not None and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(pid)
            groups[pid] = int(fields[2])
    found: dict[int, int] = {}
    border = [os.getpid()]
    while border:
        below = children.get(border.pop(), [])
        found |= {pid: groups[pid] for pid in below}
        border += below
    return found


def _end_all(child: int | None, grace: float) -> None:
    """SIGTERM to everything once, SIGKILL after the grace period until nothing is left."""
    _reaped()
    if not _descendants():
        return
    if child is not None:
        with suppress(ProcessLookupError):
            os.killpg(child, signal.SIGTERM)
    for pid, group in _descendants().items():
        if group != child:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + grace
    while left := _descendants():
        if time.monotonic() >= until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, min(TICK, max(until - time.monotonic(), 0.01)))
        _reaped()
    _reaped()  # the last may have ended between two looks: leave no zombies to the process that adopts them


def _remove(home: Path, directory: Path, at: float) -> None:
    """The owner does not come back: take the host's directory away, and with the last host the slice's."""
    with suppress(OSError):  # no room for a name is no reason to stay
        remember_end(home.parent, home.name, at)
    shutil.rmtree(directory, ignore_errors=True)
    if not any(home.glob("host-*")):
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
