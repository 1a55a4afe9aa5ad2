"""The local provider launches slices as processes on this computer, for elastic pools, demos and tests.

A slice is a group of hosts; a host is one command with its own session and directory, run by a supervisor
(`supervisor`). Slices outlive the controller: the next one finds them in the directory and adopts them. Pid and start
time distinguish them from other processes. With ``tie_to`` they end when that process ends for any reason.

The record is written first (`files`). ``launch`` and ``list`` carry out every recorded order: they start every host
that no supervisor has claimed yet, and finish every end that was begun. So after a kill at any point the result is the
same: all hosts, or none. Two controllers may do so at once, because a host can be claimed only once. With
``repair=False`` the provider is read-only: its list changes nothing, and shows unfinished changes as they are.

An id launches once. The ids of ended slices are kept for a month, so that a late or repeated order does not launch an
ended slice again.

Needs Linux: processes are distinguished through /proc and signalled by handle.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from windlass.core.model.snapshot import amounts
from windlass.providers.protocol import (
    ClusterConflict,
    ClusterIdentity,
    Host,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    ProviderError,
)

from . import supervisor
from .faults import LocalFault, LocalFaults, refusal_of
from .files import CorruptRecord, Files, HostRecord, LocalHost, LocalRecord
from .supervisor import MARK, HostProcess, StartTime, kill_marked

log = logging.getLogger(__name__)

INHERITED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TERM", "VIRTUAL_ENV"),
        *("PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_RUNTIME_DIR"),
    }
)
INHERITED_PREFIXES: Final = ("LC_", "CUDA_", "NVIDIA_")
"""Variables that hosts inherit from the controller's environment. Its passwords and cloud secrets are not among them.
"""

LAST_OUTPUT: Final = 2000
"""Bytes of a dead host's standard error that the list shows."""
_PAUSE: Final = 0.02
_PATIENCE: Final = 5.0
"""Seconds beyond the grace period after which a supervisor that does not end its host is killed."""


class LocalProvider:
    """Launches groups of processes on this computer. ``directory`` holds its state over restarts."""

    one_machine = True
    """All slices share one computer: a workload may limit how many of its hosts start at once."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        boot_delay: float = 0.0,
        faults: Sequence[LocalFault] | None = None,
        now: Callable[[], float] = time.time,
        tie_to: int | None = None,
        grace: float = 5.0,
        repair: bool = True,
        environment: Iterable[str] | None = (),
    ) -> None:
        """``tie_to``: the pid of a process; all slices launched here end with it; None: they outlive every process.
        ``grace``: seconds between SIGTERM and SIGKILL.

        ``environment``: names of variables that hosts get from this process, besides the usual ones (``INHERITED``).
        None: all of them, for hosts that are part of the caller's own program.

        ``repair``: whether ``list`` finishes the changes of a dead controller. With False it is read-only: it starts,
        ends, creates and removes nothing, and a missing directory is an empty list.
        """
        self._files = Files(Path(directory), make=repair)
        self._repair = repair
        self._named = None if environment is None else frozenset(environment)
        self._boot_delay = boot_delay
        self._faults = LocalFaults(faults or (), now)
        self._now = now
        self._grace = grace
        self._tie_to = None if tie_to is None else HostProcess.of(tie_to)
        if tie_to is not None and self._tie_to is None:
            raise InvalidRequest(f"there is no process {tie_to} to tie slices to; give one that runs, such as your own")
        self._starting: set[str] = set()
        self.mistakes: tuple[str, ...] = ()
        """Records that the last list could not read, as messages."""

    # -- the contract -----------------------------------------------------------------------------------------------

    def bind(self, cluster: ClusterIdentity) -> None:
        self._files.bind(cluster)

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        with _typed_errors():
            home = self._files.home(order.slice_id)
            known = await asyncio.to_thread(self._known, home, epoch)
            if not known:
                record = self._record(order)
                fault = self._faults.next_fault(order.group)
                if fault is not None:
                    record = await _apply_fault(fault, record)
                await asyncio.to_thread(self._buy, home, record, epoch)
            else:
                await asyncio.to_thread(self._carry_out, home)

    async def terminate(self, slice_id: str, epoch: int) -> None:
        with _typed_errors():
            home = self._files.home(slice_id)
            await asyncio.to_thread(self._begin_end, home, epoch)
            began = time.monotonic()
            while not await asyncio.to_thread(self._finish_end, home, self._forced(began)):
                if time.monotonic() - began > self._grace + 2 * _PATIENCE:
                    return  # not ended by SIGKILL yet: it stays listed as ending, and the call is repeated
                await asyncio.sleep(_PAUSE)

    async def list(self) -> Sequence[Instance]:
        with _typed_errors():
            return await asyncio.to_thread(self._list)

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        with _typed_errors():
            return await asyncio.to_thread(self._ended, tuple(slice_ids))

    async def offerings(self) -> Sequence[Offering]:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return (Offering("local", amounts({"cpu": 1000 * (os.cpu_count() or 1), "memory": memory}), zones=("local",)),)

    async def close(self) -> None:
        """Does nothing: no resource is open, and slices keep running."""

    # -- launching --------------------------------------------------------------------------------------------------

    def _record(self, order: LaunchOrder) -> LocalRecord:
        if not order.hosts:
            raise InvalidRequest(f"slice {order.slice_id} has no hosts; order at least one")
        for number, host in enumerate(order.hosts):
            where = f"host {number} of slice {order.slice_id}"
            if not host.command or not host.command[0]:
                raise InvalidRequest(f"{where} has no command; give the program to run and its arguments")
            path = {**os.environ, **host.environment}.get("PATH", os.defpath)
            if shutil.which(host.command[0], path=path) is None:
                raise InvalidRequest(
                    f"{where}: there is no program {host.command[0]!r} on PATH; install it, or give its full path"
                )
            texts = (*host.command, *host.environment, *host.environment.values())
            if any("\0" in text for text in texts) or any("=" in name or not name for name in host.environment):
                raise InvalidRequest(f"{where}: a name or a value that no process can be given; leave out NUL and '='")
        return LocalRecord(
            slice_id=order.slice_id,
            group=order.group,
            hosts=tuple(
                HostRecord(tuple(host.command), {**self._inherited(), **host.environment}) for host in order.hosts
            ),
            boot_delay=self._boot_delay,
            grace=self._grace,
            tie_to=self._tie_to,
            cluster=(order.cluster.name, order.cluster.id),
        )

    def _inherited(self) -> dict[str, str]:
        """Return the variables that hosts inherit from this process."""
        return {
            name: value
            for name, value in os.environ.items()
            if self._named is None or name in self._named or name in INHERITED or name.startswith(INHERITED_PREFIXES)
        }

    def _known(self, home: Path, epoch: int) -> bool:
        with self._files.changing(epoch):
            self._check_owner(home)
            spent = self._is_spent(home)
        if spent and not _is_slice(home):
            log.warning("%s starts nothing: a slice of that id has ended already, and an id buys once", home.name)
        return spent

    def _check_owner(self, home: Path) -> None:
        """Raise ``ClusterConflict`` if a slice with this id belongs to another cluster."""
        try:
            record = LocalRecord.read(home)
        except (FileNotFoundError, CorruptRecord):
            return
        if not self._files.owns(record):
            raise ClusterConflict(
                f"slice {home.name} is of cluster {record.cluster[0]}, not of {self._files.cluster.name}"
            )

    def _is_spent(self, home: Path) -> bool:
        """Whether this id was launched before. Call under ``changing``."""
        return _is_slice(home) or self._files.has_ended(home.name)

    def _buy(self, home: Path, record: LocalRecord, epoch: int) -> None:
        """Store the order and carry it out; a caller that is cancelled meanwhile leaves nothing half done."""
        self._starting.add(home.name)
        try:
            with self._files.changing(epoch):  # checked again: a fault may have delayed us
                taken = not self._is_spent(home)
                if taken:
                    self._files.add(replace(record, started=StartTime.now(self._now())))
            try:
                self._carry_out(home)
            except ProviderError:
                if taken:
                    # Refused: the order may be repeated, unless some of its hosts have run.
                    ran = any(host.taken for host in _local_hosts(home))
                    self._begin_end(home, None)
                    self._finish_end(home, force=True, spent=ran)
                raise
        finally:
            self._starting.discard(home.name)

    def _carry_out(self, home: Path) -> None:
        """Start every host that no supervisor has claimed yet."""
        try:
            self._start_missing(home)
        except OSError as error:
            raise InsufficientCapacity(f"this machine cannot start {home.name}: {error}") from error

    def _start_missing(self, home: Path) -> None:
        try:
            record = LocalRecord.read(home)
        except FileNotFoundError:
            return
        except CorruptRecord as error:
            raise InvalidRequest(f"{error}; terminate {home.name}, or remove its directory, and retry") from error
        if record.ending:
            return
        missing = [number for number in range(len(record.hosts)) if not LocalHost.read(home / f"host-{number}").taken]
        begun: list[subprocess.Popen[bytes]] = []
        try:
            begun.extend(_begin(home, record, number) for number in missing)
        finally:
            # Each ends as soon as its host is claimed, in a fraction of a second.
            codes = [process.wait() for process in begun]
        if any(codes) and home.exists():
            raise OSError(f"a supervisor did not start; see {home.name}/host-*/stderr.log")

    # -- ending -----------------------------------------------------------------------------------------------------

    def _begin_end(self, home: Path, epoch: int | None) -> None:
        with self._files.changing(epoch):
            self._check_owner(home)
            try:
                record = LocalRecord.read(home)
                if not record.ending:
                    record.mark_ending(home)
            except (FileNotFoundError, CorruptRecord):
                pass  # no record to mark; processes are found by their environment variable
            finally:  # also if the mark cannot be written because the disk is full
                for host in _local_hosts(home):
                    if host.supervisor is not None:
                        host.supervisor.signal(signal.SIGTERM)
                        host.supervisor.signal(signal.SIGCONT)  # a stopped one would react only to SIGKILL

    def _forced(self, began: float) -> bool:
        return time.monotonic() - began > self._grace + _PATIENCE

    def _finish_end(self, home: Path, force: bool, *, spent: bool = True) -> bool:
        """Remove the slice once none of its processes runs; return True when it is gone. ``spent``: its id never
        launches again.
        """
        if not home.exists():
            return True
        supervisors = [host.supervisor for host in _local_hosts(home) if host.supervisor is not None]
        if any(process.alive for process in supervisors) and not force:
            return False
        for process in supervisors:
            process.signal(signal.SIGKILL)
        with self._files.changing(None):
            if not _is_slice(home):
                return True
            if kill_marked(home):
                return False
            if spent:
                try:
                    self._files.remember(home.name, self._end_of(home))
                except OSError as error:
                    # The disk is full. Its directory keeps the id until a later list finds space.
                    log.info("%s has ended, and its directory stays for now: %s", home.name, error)
                    return True
            self._files.remove(home)
        return True

    def _end_of(self, home: Path) -> float:
        """Return the current time on the clock of the slice's start, so that a clock that was set does not change its
        lifetime.
        """
        now = self._now()
        try:
            started = LocalRecord.read(home).started
        except (FileNotFoundError, CorruptRecord):
            return now
        return now if started is None else started.elapsed_to_now(now)

    def _ended(self, slice_ids: Sequence[str]) -> Collection[str]:
        """Return the slices whose directory was removed after their last process had ended."""
        self._files.check_cluster()
        ended = {name: self._files.ended_at(name) for name in slice_ids if not self._files.home(name).exists()}
        return {name: at for name, at in ended.items() if at is not None}

    # -- listing ----------------------------------------------------------------------------------------------------

    def _list(self) -> Sequence[Instance]:
        found, mistakes = [], []
        self._files.check_cluster()
        for home in self._files.homes():
            try:
                if not self._files.owns(LocalRecord.read(home)):
                    continue
                record = self._repaired_record(home) if self._repair else _record_as_it_is(home)
                if record is not None:
                    found.append(_instance(home, record))
            except FileNotFoundError:
                continue  # no record: not a slice, or removed meanwhile
            except CorruptRecord as error:
                mistakes.append(f"{error}; terminate {home.name} or remove its directory")
        for mistake in mistakes:
            if mistake not in self.mistakes:
                log.warning("%s", mistake)
        self.mistakes = tuple(mistakes)
        return found

    def _repaired_record(self, home: Path) -> LocalRecord | None:
        """Return the record of a slice, after finishing the changes of a dead controller."""
        record, hosts = LocalRecord.read(home), _local_hosts(home)
        if record.ending or _is_abandoned(record, hosts):
            if not any(host.supervised for host in hosts) and self._finish_end(home, force=False):
                return None
        elif home.name not in self._starting and any(not host.taken for host in hosts) and not _is_orphaned(record):
            try:
                self._start_missing(home)
            except OSError as error:
                log.warning("%s waits to be started: %s", home.name, error)
        return LocalRecord.read(home)


def _record_as_it_is(home: Path) -> LocalRecord:
    """Return the record of a slice without changes; one that the next controller will end counts as ending."""
    record = LocalRecord.read(home)
    return replace(record, ending=True) if _is_abandoned(record, _local_hosts(home)) else record


def _is_orphaned(record: LocalRecord) -> bool:
    return record.tie_to is not None and not record.tie_to.alive


def _is_abandoned(record: LocalRecord, hosts: Sequence[LocalHost]) -> bool:
    """Whether it is tied to a process that died before any host was claimed: no supervisor can end it."""
    return _is_orphaned(record) and not any(host.taken for host in hosts)


def _is_slice(home: Path) -> bool:
    return (home / supervisor.RECORD).exists()


def _local_hosts(home: Path) -> list[LocalHost]:
    hosts = sorted(home.glob("host-*"), key=lambda path: (len(path.name), path.name))
    return [LocalHost.read(host) for host in hosts]


def _instance(home: Path, record: LocalRecord) -> Instance:
    hosts = [LocalHost.read(home / f"host-{number}") for number in range(len(record.hosts))]
    dead = any(not host.running and not host.pending for host in hosts)
    pending = any(host.pending for host in hosts) and not dead
    return Instance(
        slice_id=record.slice_id,
        group=record.group,
        state="ending" if record.ending else "pending" if pending else "running",
        hosts=tuple(
            _host(home / f"host-{number}", f"{record.slice_id}/{number}", host) for number, host in enumerate(hosts)
        ),
        zone="local",
        started_at=None if record.started is None else record.started.at,
    )


def _host(directory: Path, name: str, host: LocalHost) -> Host:
    """Return a host for the list; a dead one with its exit code and last output."""
    if host.running or host.pending:
        return Host(name, running=host.running, address="127.0.0.1")
    return Host(name, False, "127.0.0.1", host.exit_code, _last_lines(directory / "stderr.log"))


def _last_lines(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_OUTPUT))
            return file.read(LAST_OUTPUT).decode(errors="replace").strip()
    except OSError:
        return ""


def _begin(home: Path, record: LocalRecord, number: int) -> subprocess.Popen[bytes]:
    """Start the supervisor of one host. It detaches itself, and the process started here ends at once."""
    directory = home / f"host-{number}"
    environment = {
        **record.hosts[number].environment,
        "WINDLASS_SLICE": record.slice_id,
        "WINDLASS_GROUP": record.group,
        "WINDLASS_HOST": str(number),
        "WINDLASS_NODE": f"{record.slice_id}/{number}",
        MARK: str(directory),
    }
    program = [sys.executable, "-I", "-S", str(Path(supervisor.__file__)), str(home), str(number)]
    with (directory / "stdout.log").open("ab") as out, (directory / "stderr.log").open("ab") as err:
        return subprocess.Popen(
            program,
            env=environment,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


async def _apply_fault(fault: LocalFault, record: LocalRecord) -> LocalRecord:
    """Apply a fault: a refusal, a call that never returns, or a slower boot."""
    refusal = refusal_of(fault, record.group)
    if refusal is not None:
        raise refusal
    if fault.kind == "hang":
        await asyncio.Event().wait()
    return replace(record, boot_delay=record.boot_delay + fault.seconds)


@contextmanager
def _typed_errors() -> Iterator[None]:
    """A context that turns any error into a ``ProviderError``."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise ProviderError(f"the local provider cannot do this: {error}") from error
