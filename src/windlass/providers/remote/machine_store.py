"""The store keeps the state of a machine on its disk: which slice it is sold to, which epochs it saw, which slices
have ended.

Runs on the machine, as a part of the agent: the standard library only, from Python 3.8 on.

    sold.json            which slice of which cluster has the machine, since when, in which phase
    epochs/CLUSTER       the highest fencing epoch that this cluster's controllers have shown
    ended/DAY/NAME       empty: a slice of this name has ended here; its id never buys again
    images/HASH/         what a bootstrap has made; `done` is written last
    run/                 of the slice that has the machine: supervisor.json, mux.sock, program.log
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
"""In the environment of everything that a program starts: by it the last orphan is found."""
REMEMBERED_DAYS = 30
PUBLIC = ("WINDLASS_SLICE", "WINDLASS_GROUP", "WINDLASS_HOST", "WINDLASS_NODE")
"""Variables of a program that hold no secret."""
SHORTEST_SECRET = 6
"""A shorter value is in too many words to be replaced."""


class OrderRefused(Exception):
    """A request that is not carried out; ``kind`` steers the controller."""

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
    """What distinguishes a live process from another one with its number: when it started, in which boot."""
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
    """Kill every process with our mark in its environment; how many there were."""
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


def tail(path: Path, hidden: Iterable[str] = ()) -> str:
    """The end of a file, without the values in ``hidden``."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 64_000))  # more than is kept: a value that is cut would not be found
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    for value in hidden:
        text = text.replace(value, "***")
    return text[-4000:]


def secrets_of(environment: dict[str, str]) -> list[str]:
    """Values of variables that must not be shown, the longest first: a private key as a whole and line by line."""
    found = {value for name, value in environment.items() if name not in PUBLIC}
    found |= {line for value in found for line in value.splitlines()}
    return sorted((one for one in found if len(one) >= SHORTEST_SECRET), key=len, reverse=True)


class Store:
    """What the directory says of the machine."""

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
    def sold(self) -> dict[str, Any] | None:
        return read_json(self.root / "sold.json")

    def sell(self, sold: dict[str, Any] | None) -> None:
        if sold is None:
            with contextlib.suppress(FileNotFoundError):
                (self.root / "sold.json").unlink()
        else:
            write_json(self.root / "sold.json", sold)

    def epoch(self, cluster: str) -> int:
        try:
            return int((self.root / "epochs" / cluster).read_text())
        except (OSError, ValueError):
            return 0

    def check_epoch(self, cluster: str, epoch: int) -> None:
        """Keep the highest epoch; refuse a lower one."""
        highest = self.epoch(cluster)
        if epoch < highest:
            raise OrderRefused("stale", f"a controller with epoch {highest} has taken over from epoch {epoch}")
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

    def heard(self, cluster: str) -> None:
        """Note that a controller of the cluster that has the machine is there."""
        sold = self.sold
        if sold is not None and sold["cluster"] == cluster:
            (self.root / "heard").touch()

    def abandoned(self, sold: dict[str, Any]) -> bool:
        """Whether the owner of the machine is gone: its lease is over, and nothing of it runs."""
        if not sold.get("lease") or alive(self.supervisor()):
            return False
        try:
            heard = (self.root / "heard").stat().st_mtime
        except OSError:
            heard = 0.0
        return time.time() - max(heard, float(sold["taken"])) > float(sold["lease"])

    def release(self, sold: dict[str, Any]) -> None:
        """The slice has ended: its id never buys again, and the machine is free. Under ``changing``."""
        self.remember_end(sold["cluster"], sold["slice"])
        shutil.rmtree(str(self.run), ignore_errors=True)
        self.sell(None)

    def mine(self, request: dict[str, Any]) -> dict[str, Any]:
        """What was sold, if it is the slice that the request names."""
        sold = self.sold
        if sold is None or (sold["cluster"], sold["slice"]) != (request["cluster"], request["slice"]):
            raise OrderRefused("gone", "this machine does not hold slice {}".format(request["slice"]))
        return sold

    def supervisor(self) -> dict[str, Any] | None:
        return read_json(self.run / "supervisor.json")
