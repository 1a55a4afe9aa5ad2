"""The supervisor starts the command of one host of a local slice, and ends all of its processes.

    python supervisor.py SLICE_DIRECTORY NUMBER

Each host has one supervisor. It detaches from the process that started it, so that a controller may die and restart
without losing the host. It guarantees:

- A host starts at most once. The supervisor holds the lock of its host's directory for its whole life, and writes
  ``process.json`` before anything else; a second one finds the lock or the file, and exits.
- No process is left. It is a "subreaper" that adopts orphans of its command, so that a daemon that left the process
  group is found too. On SIGTERM, when the owner it is tied to is dead, or when the command has ended, it sends SIGTERM
  to all of them, waits the grace period, and sends SIGKILL until none is left.
- If the supervisor itself is killed, the kernel kills the command (its parent-death signal); the rest is found by an
  environment variable when the slice is terminated.

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
MARK: Final = "WINDLASS_DIRECTORY"
"""An environment variable of every process on a host, by which orphans are found."""

TICK: Final = 0.2
"""Seconds between two checks of the owner, and between two rounds of signals."""

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD})


class HostProcess(NamedTuple):
    """A process identity: its pid and start time, so that a reused pid is another process."""

    pid: int
    start: str
    """Start time in clock ticks since boot, with the boot id."""

    @classmethod
    def of(cls, pid: int) -> HostProcess | None:
        """Return the process that has this pid now; None when there is none, or only a dead one."""
        fields = _stat(pid)
        if fields is None or fields[0] in ("Z", "X"):
            return None
        return cls(pid, f"{fields[19]}@{_boot()}")

    @property
    def alive(self) -> bool:
        return HostProcess.of(self.pid) == self

    def signal(self, number: int) -> bool:
        """Send a signal to exactly this process, never to one that reuses its pid; return False when it is gone."""
        try:
            handle = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            # Checked again with the handle open: from here on the pid cannot be reused.
            if not self.alive:
                return False
            signal.pidfd_send_signal(handle, number)
        except OSError:
            return False
        finally:
            os.close(handle)
        return True


class StartTime(NamedTuple):
    """The start of a slice by the time of day, and by a clock that cannot be set."""

    at: float
    steady: float
    boot: str
    """The boot id from which the steady clock counts."""

    @classmethod
    def now(cls, at: float) -> StartTime:
        """Return the current time, which is ``at`` by the time of day."""
        return cls(at, time.clock_gettime(time.CLOCK_BOOTTIME), _boot())

    @classmethod
    def read(cls, value: Any) -> StartTime | None:
        return None if value is None else cls(float(value[0]), float(value[1]), str(value[2]))

    def elapsed_to_now(self, now: float) -> float:
        """Return the time of day as if the clock had not been set since the start; ``now`` after another boot."""
        return self.at + time.clock_gettime(time.CLOCK_BOOTTIME) - self.steady if self.boot == _boot() else now


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third (the state) on; the name before them may contain any
    character.
    """
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def kill_marked(home: Path) -> int:
    """Kill every process with the environment variable of this slice; return how many there were."""
    mark = f"{MARK}={home}/host-".encode()
    killed = 0
    for pid in all_pids():
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            # Read after the handle is open, so that the signal goes to the process that was checked.
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if pid != os.getpid() and any(word.startswith(mark) for word in words):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                killed += 1
        except OSError:
            continue
        finally:
            os.close(handle)
    return killed


def write_json(path: Path, value: object) -> None:
    """Write a file atomically."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with beside.open("w", encoding="utf-8") as file:
            json.dump(value, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:  # on a full disk it is retried, and must not leave a file each time
        beside.unlink(missing_ok=True)
        raise


def day_of(at: float) -> str:
    """Return the day of a time as sortable text."""
    return time.strftime("%Y-%m-%d", time.gmtime(at))


def remember_end(root: Path, slice_id: str, at: float) -> None:
    """Create an empty file which records that this id has ended, and when: it never launches again. A root that was
    removed meanwhile is not made again: ``FileNotFoundError``.
    """
    day = root / ENDED / day_of(at)
    day.parent.mkdir(mode=0o700, exist_ok=True)
    day.mkdir(mode=0o700, exist_ok=True)
    (day / slice_id).touch(mode=0o600)
    os.utime(day / slice_id, (at, at))


def take_lock(path: Path, *, wait: bool) -> int | None:
    """Return an open file that holds the lock until it is closed; None when another process holds it."""
    handle = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


# -- the program ---------------------------------------------------------------------------------------------------


def main(slice_directory: str, number: str) -> int:
    """Claim the host, detach from the caller, supervise the command. Returns to the caller once the host is claimed."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
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
    # Read after process.json is written: a caller that ends the slice marks the record first and then searches for us,
    # so that either we see the mark or it sees us.
    try:
        record = json.loads((home / RECORD).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return 0
    if not record.get("ending"):
        supervise(home, directory, record, int(number), me)
    return 0


def supervise(home: Path, directory: Path, record: dict[str, Any], number: int, me: HostProcess | None) -> None:
    """Supervise the host from the boot delay to the end of the last process."""
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
            with suppress(OSError):  # before its remaining processes are ended, which takes a while
                write_json(directory / PROCESS, known)
    _end_all(child, float(record.get("grace", 5)))
    with suppress(OSError):
        write_json(directory / PROCESS, {**known, "ended": cause})
    if cause == "orphaned":
        started, now = StartTime.read(record.get("started")), time.time()
        _remove(home, directory, now if started is None else started.elapsed_to_now(now))


def _note(directory: Path, known: dict[str, Any], child: int, owner: HostProcess | None, ends: dict[int, int]) -> str:
    """Record the process of the command. On a full disk it is retried until there is space: the command must not end
    for that. Return what ended the wait, if something did.
    """
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
    """Wait until ``time`` is over, the command has ``ended``, SIGTERM came (``terminated``), or the owner is gone
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
        received = signal.sigwaitinfo(_SIGNALS) if left is None else signal.sigtimedwait(_SIGNALS, max(left, 0.001))
        if received is not None and received.si_signo != signal.SIGCHLD:
            return "terminated"
        reaped = _reaped()
        if ends is not None:
            ends.update(reaped)
        if child in reaped:
            return "ended"


def _start(command: list[str]) -> int:
    """Start the host's command in a session and process group of its own."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            # Python ignores this one, and what is ignored stays so over exec.
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"windlass: cannot run {command[0]}: {error}\n".encode())
    os._exit(127)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _reaped() -> dict[int, int]:
    """Return the children, adopted ones included, that have ended since the last check, with their wait status."""
    found = {}
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            found[ended[0]] = ended[1]
    return found


def _descendants() -> dict[int, int]:
    """Return every descendant of this process, with its process group."""
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
    """Send SIGTERM to all descendants once, and SIGKILL after the grace period until none is left. SIGCONT follows
    SIGTERM, because a stopped process does not react to it.
    """
    _reaped()
    if not _descendants():
        return
    for number in (signal.SIGTERM, signal.SIGCONT):
        if child is not None:
            with suppress(ProcessLookupError):
                os.killpg(child, number)
        for pid, group in _descendants().items():
            if group != child:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
    until = time.monotonic() + grace
    while left := _descendants():
        if time.monotonic() >= until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, min(TICK, max(until - time.monotonic(), 0.01)))
        _reaped()
    _reaped()  # the last may have ended since the check: leave no zombies to the adopting process


def _remove(home: Path, directory: Path, at: float) -> None:
    """Remove the host's directory after the owner has died, and with the last host that of the slice."""
    with suppress(OSError):  # a full disk must not keep the supervisor alive
        remember_end(home.parent, home.name, at)
    shutil.rmtree(directory, ignore_errors=True)
    if not any(home.glob("host-*")):
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
