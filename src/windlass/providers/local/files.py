"""This module reads and writes the files of the local provider: the record of each slice, the ended ids, and the
highest epoch.

    DIRECTORY/.lock                   held for the moment of a change
    DIRECTORY/.epoch-ID               the highest fencing epoch seen of the cluster with that id
    DIRECTORY/.clusters/NAME          the id of the cluster that uses this name here
    DIRECTORY/.ended/DAY/SLICE        empty: a slice of this name ended on that day
    DIRECTORY/SLICE/record.json       the order, as it was taken
    DIRECTORY/SLICE/host-N/           where host N runs: stdout.log, stderr.log, lock, process.json

A slice is created and removed atomically: its directory is made under another name and renamed, and renamed again
before it is deleted. So a crash never leaves half a record. Names that begin with a dot are never slices.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from windlass.providers.protocol import ClusterIdentity, InvalidRequest, ProviderError, StaleEpoch

from .supervisor import (
    ENDED,
    LOCK,
    PROCESS,
    RECORD,
    HostProcess,
    StartTime,
    day_of,
    remember_end,
    take_lock,
    write_json,
)

CLUSTERS: Final = ".clusters"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")

REMEMBERED: Final = 30 * 86400.0
"""Seconds for which the id of an ended slice is kept. A launch is repeated within minutes, while its answer is missing,
or by a controller that was down and has it in its journal, at worst after a month. A thousand slices a day are then
30,000 empty files; they are deleted a day at a time.
"""


class CorruptRecord(Exception):
    """A file cannot be parsed; the message has its name."""


@dataclass(frozen=True, slots=True)
class HostRecord:
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class LocalRecord:
    """The stored order of a slice."""

    slice_id: str
    group: str
    hosts: tuple[HostRecord, ...]
    boot_delay: float
    grace: float
    tie_to: HostProcess | None
    ending: bool = False
    cluster: tuple[str, str] = ("", "")
    """The name and the id of the cluster that ordered it; empty in records of older versions."""
    started: StartTime | None = None
    """When the order was taken; None in records of older versions."""

    @classmethod
    def read(cls, directory: Path) -> LocalRecord:
        """Return the record in a slice's directory. ``FileNotFoundError``: it is not a slice. ``CorruptRecord``: it
        cannot be parsed.
        """
        path = directory / RECORD
        try:
            data = json.loads(path.read_bytes())
            record = cls(
                slice_id=_text(data["slice_id"]),
                group=_text(data["group"]),
                hosts=tuple(_host(host) for host in data["hosts"]),
                boot_delay=float(data["boot_delay"]),
                grace=float(data["grace"]),
                tie_to=_process(data["tie_to"]),
                ending=bool(data["ending"]),
                cluster=_cluster(data.get("cluster", ("", ""))),
                started=StartTime.read(data.get("started")),
            )
        except (FileNotFoundError, NotADirectoryError):
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CorruptRecord(f"{path} is not a record of a slice ({type(error).__name__}: {error})") from error
        if record.slice_id != directory.name or not record.hosts:
            raise CorruptRecord(f"{path} does not belong to this slice: it is the record of {record.slice_id!r}")
        return record

    def write(self, directory: Path) -> None:
        write_json(directory / RECORD, asdict(self))

    def mark_ending(self, directory: Path) -> None:
        """Record that the slice ends. On a full disk the file is changed in place: that needs no space."""
        try:
            replace(self, ending=True).write(directory)
        except OSError:
            with (directory / RECORD).open("r+b") as file:
                file.seek(file.read().index(b'"ending": false'))
                file.write(b'"ending": true ')


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _host(value: Any) -> HostRecord:
    environment = {_text(key): _text(one) for key, one in dict(value["environment"]).items()}
    return HostRecord(tuple(_text(part) for part in value["command"]), environment)


def _cluster(value: Any) -> tuple[str, str]:
    name, id = value
    return _text(name), _text(id)


def _process(value: Any) -> HostProcess | None:
    return None if value is None else HostProcess(int(value[0]), _text(value[1]))


@dataclass(frozen=True, slots=True)
class LocalHost:
    """The state of one host's processes."""

    supervisor: HostProcess | None = None
    command: HostProcess | None = None
    taken: bool = False
    """Whether a supervisor has claimed the host; it is never started again."""
    exit_code: int | None = None
    """Exit code of its command, once the supervisor has seen it end."""

    @classmethod
    def read(cls, directory: Path) -> LocalHost:
        try:
            data = json.loads((directory / PROCESS).read_bytes())
            code = data.get("exit")
            exit_code = code if isinstance(code, int) else None
            return cls(_process(data.get("supervisor")), _process(data.get("command")), True, exit_code)
        except (FileNotFoundError, NotADirectoryError):
            return cls()
        except (OSError, ValueError, TypeError, AttributeError, LookupError):
            return cls(taken=True)

    @property
    def supervised(self) -> bool:
        return self.supervisor is not None and self.supervisor.alive

    @property
    def running(self) -> bool:
        if self.command is None:
            return False
        # The exit code is written milliseconds after the end of the command: a host is dead only when both are there.
        return self.command.alive or (self.exit_code is None and self.supervised)

    @property
    def pending(self) -> bool:
        """Whether its command has not started yet: it waits for a supervisor, or for the boot delay."""
        return not self.taken or (self.command is None and self.supervised)


class Files:
    """The directory of one local provider. All calls block briefly."""

    def __init__(self, root: Path, *, make: bool = True) -> None:
        """Without ``make`` the first change creates the directory."""
        self.root = root.resolve()
        self.cluster = ClusterIdentity()
        self._made = False
        if make:
            self._make()

    def _make(self) -> None:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        (self.root / ".lock").touch(mode=0o600)
        self._made = True

    def home(self, slice_id: str) -> Path:
        if not _NAME.fullmatch(slice_id):
            raise InvalidRequest(
                f"{slice_id!r} cannot be the name of a directory: use letters, digits, '.', '_' and '-', "
                "a letter or digit first, at most 200"
            )
        return self.root / slice_id

    def homes(self) -> list[Path]:
        """Return every directory that may be a slice's. If the provider's directory has vanished, that is an error, not
        an empty list.
        """
        try:
            found = list(self.root.iterdir())
        except FileNotFoundError:
            if self._made:
                raise
            return []
        return sorted(path for path in found if _NAME.fullmatch(path.name) and path.is_dir())

    # -- clusters ---------------------------------------------------------------------------------------------------

    def bind(self, cluster: ClusterIdentity) -> None:
        self.cluster = cluster

    def check_cluster(self) -> None:
        """Raise ``ClusterConflict`` if another journal uses our cluster's name in this directory."""
        try:
            taken = self._claim.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return
        if self.cluster.id:
            self.cluster.owns(self.cluster.name, taken)

    def owns(self, record: LocalRecord) -> bool:
        """Whether a slice belongs to our cluster. Slices of older versions have no mark, and belong to the only cluster
        here.
        """
        if not any(record.cluster):
            return not self._other_claims()
        return self.cluster.owns(*record.cluster)

    def _other_claims(self) -> bool:
        try:
            return any(path != self._claim for path in (self.root / CLUSTERS).iterdir())
        except FileNotFoundError:
            return False

    @property
    def _claim(self) -> Path:
        return self.root / CLUSTERS / self.cluster.name

    @property
    def _epoch_file(self) -> Path:
        return self.root / (f".epoch-{self.cluster.id}" if self.cluster.id else ".epoch")

    # -- changes ----------------------------------------------------------------------------------------------------

    @contextmanager
    def changing(self, epoch: int | None) -> Iterator[None]:
        """A context for one change at a time over all processes on this directory; refuses controllers with an old
        epoch.
        """
        if not self._made:
            self._make()
        handle = take_lock(self.root / ".lock", wait=True)
        assert handle is not None
        try:
            self.check_cluster()
            if epoch is not None:
                self._see(epoch)
                self._take_name()
            yield
        finally:
            os.close(handle)

    def _take_name(self) -> None:
        if self.cluster.id and not self._claim.exists():
            self._claim.parent.mkdir(mode=0o700, exist_ok=True)
            fresh = self.root / f".new-{uuid.uuid4().hex}"
            fresh.write_text(self.cluster.id, encoding="utf-8")
            fresh.rename(self._claim)

    def _see(self, epoch: int) -> None:
        path = self._epoch_file
        try:
            seen = int(path.read_text(encoding="ascii")) if path.exists() else epoch
        except ValueError as error:
            raise ProviderError(f"{path} is not a number; if no other controller runs here, delete it") from error
        if epoch < seen:
            raise StaleEpoch.of(epoch, seen)
        if epoch > seen or not path.exists():
            write_json(path, epoch)

    def add(self, record: LocalRecord) -> Path:
        """Create the slice's directory atomically. Call under ``changing``."""
        self.sweep()
        fresh = self.root / f".new-{uuid.uuid4().hex}"
        for number in range(len(record.hosts)):
            host = fresh / f"host-{number}"
            host.mkdir(mode=0o700, parents=True)
            for name in (LOCK, "stdout.log", "stderr.log"):
                (host / name).touch(mode=0o600)
        record.write(fresh)
        return fresh.rename(self.root / record.slice_id)

    def remove(self, home: Path) -> None:
        """Remove a directory atomically. Call under ``changing``."""
        gone = self.root / f".gone-{uuid.uuid4().hex}"
        try:
            home.rename(gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def remember(self, slice_id: str, at: float) -> None:
        """Store the id of a slice that ends, and delete old ones. Call under ``changing``."""
        remember_end(self.root, slice_id, at)
        oldest = day_of(at - REMEMBERED)
        for day in (self.root / ENDED).iterdir():
            if day.name < oldest:
                shutil.rmtree(day, ignore_errors=True)

    def has_ended(self, slice_id: str) -> bool:
        return self.ended_at(slice_id) is not None

    def ended_at(self, slice_id: str) -> float | None:
        """Return when a slice ended; None: it has not, or its id was deleted."""
        try:
            for day in (self.root / ENDED).iterdir():
                with suppress(FileNotFoundError):
                    return (day / slice_id).stat().st_mtime
        except FileNotFoundError:
            pass
        return None

    def sweep(self) -> None:
        """Remove leftovers of a crash during ``add`` or ``remove``. Call under ``changing``."""
        for pattern in (".new-*", ".gone-*"):
            for path in self.root.glob(pattern):
                shutil.rmtree(path, ignore_errors=True)
