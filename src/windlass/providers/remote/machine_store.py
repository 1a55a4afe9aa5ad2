"""The store keeps the state of a machine on its disk: the slice that uses it, the highest epochs, and ended slices.

It runs on the machine as a part of the agent, with Python 3.8 or later and the standard library only.

    sold.json            the assignment: which slice of which cluster uses the machine, since when, in which phase
    epochs/CLUSTER       the highest fencing epoch that a controller of this cluster has used
    ended/DAY/NAME       empty: the slice of this name has ended here; its id is not used again
    images/HASH/         the files of a bootstrap; `done` is written last
    run/                 of the slice that uses the machine: supervisor.json, mux.sock, program.log
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MARK = "WINDLASS_REMOTE"
"""A variable in the environment of a program and all of its children, by which orphans are found."""
REMEMBERED_DAYS = 30
LONGEST_LOG = 32 << 20
"""Bytes of a program's output that a machine keeps, so that a program that prints a lot does not fill the disk."""
PUBLIC = ("WINDLASS_SLICE", "WINDLASS_GROUP", "WINDLASS_HOST", "WINDLASS_NODE")
"""Variables of a program that are never secret."""
SHORTEST_SECRET = 6
"""Shorter values occur in ordinary words, so they are not replaced in output."""


class OrderRefused(Exception):
    """A request that the agent refuses; the controller reacts to ``kind``."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


def stat_of(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def identity(pid: int) -> str | None:
    """Identify a live process beyond its pid, which may be reused: its start time and the machine's boot."""
    fields = stat_of(pid)
    if fields is None or fields[0] in ("Z", "X"):
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")[:8]
    return f"{fields[19]}@{boot}"


def alive(process: dict[str, Any] | None) -> bool:
    return process is not None and identity(process["pid"]) == process["start"]


def all_pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def descendants() -> list[int]:
    children: dict[int, list[int]] = {}
    for pid in all_pids():
        fields = stat_of(pid)
        if fields is not None and fields[0] not in ("Z", "X"):
            children.setdefault(int(fields[1]), []).append(pid)
    found: list[int] = []
    border = [os.getpid()]
    while border:
        below = children.get(border.pop(), [])
        found += below
        border += below
    return found


def kill_marked(mark: str) -> int:
    """Kill every process with our mark in its environment; return how many there were."""
    killed = 0
    wanted = (f"{MARK}={mark}").encode()
    for pid in all_pids():
        with contextlib.suppress(OSError):
            if pid != os.getpid() and wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                os.kill(pid, signal.SIGKILL)
                killed += 1
    return killed


def prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def write_json(path: Path, value: object) -> None:
    beside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with open(str(beside), "w", encoding="utf-8") as file:  # noqa: PTH123  # Path.open takes no opener
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(str(beside), str(path))  # noqa: PTH105


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def end_of(path: Path) -> bytes:
    """Return the last bytes of a file; more than is shown, so that no hidden value is cut and missed."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 64_000))
            return file.read()
    except OSError:
        return b""


def shorten(path: Path, most: int = LONGEST_LOG) -> None:
    """Empty a log that has become too long, and keep its end beside it. Its writer must append."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > most:
            beside = path.with_name(path.name + ".old")
            beside.write_bytes(end_of(path))
            os.truncate(str(path), 0)


def tail(path: Path, hidden: Iterable[str] = ()) -> str:
    """Return the end of a log, without the values in ``hidden``."""
    text = (end_of(path.with_name(path.name + ".old")) + end_of(path)).decode("utf-8", "replace")
    return without(text, hidden)[-4000:]


def without(text: str, hidden: Iterable[str]) -> str:
    for value in hidden:
        text = text.replace(value, "***")
    return text


def secrets_of(environment: dict[str, str]) -> list[str]:
    """Return the values of variables that must not be shown, and each of their lines, longest first."""
    found = {value for name, value in environment.items() if name not in PUBLIC}
    found |= {line for value in found for line in value.splitlines()}
    return sorted((one for one in found if len(one) >= SHORTEST_SECRET), key=len, reverse=True)


class Store:
    """Reads and writes the state of the machine in its directory."""

    def __init__(self, directory: str) -> None:
        self.root = Path(directory)
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for part in ("epochs", "ended", "images", "incoming"):
            (self.root / part).mkdir(mode=0o700, exist_ok=True)
        self.run = self.root / "run"

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        with (self.root / "lock").open("a") as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX)
            yield

    @property
    def assignment(self) -> dict[str, Any] | None:
        return read_json(self.root / "sold.json")

    def assign(self, assignment: dict[str, Any] | None) -> None:
        if assignment is None:
            with contextlib.suppress(FileNotFoundError):
                (self.root / "sold.json").unlink()
        else:
            write_json(self.root / "sold.json", assignment)

    def epoch(self, cluster: str) -> int:
        try:
            return int((self.root / "epochs" / cluster).read_text())
        except (OSError, ValueError):
            return 0

    def check_epoch(self, cluster: str, epoch: int) -> None:
        """Store a new highest epoch; refuse a lower one."""
        highest = self.epoch(cluster)
        if epoch < highest:
            raise OrderRefused(
                "stale", f"a newer controller has taken over; this one has number {epoch}, that one {highest}"
            )
        if epoch > highest:
            write_json(self.root / "epochs" / cluster, epoch)

    def has_ended(self, cluster: str, slice_id: str) -> bool:
        return any(self.root.glob(f"ended/*/{cluster}~{slice_id}"))

    def remember_end(self, cluster: str, slice_id: str) -> None:
        day = self.root / "ended" / time.strftime("%Y-%m-%d", time.gmtime())
        day.mkdir(mode=0o700, exist_ok=True)
        (day / (f"{cluster}~{slice_id}")).touch()
        for old in sorted((self.root / "ended").iterdir())[:-REMEMBERED_DAYS]:
            shutil.rmtree(str(old), ignore_errors=True)

    def note_contact(self, cluster: str) -> None:
        """Store the time of a request of the cluster that uses the machine."""
        assignment = self.assignment
        if assignment is not None and assignment["cluster"] == cluster:
            (self.root / "heard").touch()

    def is_abandoned(self, assignment: dict[str, Any]) -> bool:
        """Whether the cluster that uses the machine is gone: its lease is over, and its program has ended."""
        if not assignment.get("lease") or alive(self.supervisor()):
            return False
        try:
            heard = (self.root / "heard").stat().st_mtime
        except OSError:
            heard = 0.0
        return time.time() - max(heard, float(assignment["taken"])) > float(assignment["lease"])

    def release(self, assignment: dict[str, Any]) -> None:
        """Free the machine, also on a full disk, and remember that the slice has ended. Call it under ``changing``."""
        shutil.rmtree(str(self.run), ignore_errors=True)
        try:
            self.remember_end(assignment["cluster"], assignment["slice"])
            self.assign(None)
        except OSError:  # a full disk: the files of the slice may leave enough space
            self.assign(None)
            with contextlib.suppress(OSError):
                self.remember_end(assignment["cluster"], assignment["slice"])

    def assignment_of(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the assignment if it is to the slice of the request; refuse otherwise."""
        assignment = self.assignment
        if assignment is None or (assignment["cluster"], assignment["slice"]) != (request["cluster"], request["slice"]):
            raise OrderRefused("gone", "this machine is not in use by {}".format(request["slice"]))
        return assignment

    def supervisor(self) -> dict[str, Any] | None:
        return read_json(self.run / "supervisor.json")
