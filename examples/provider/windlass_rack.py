"""An example provider: a rack of machines, each of which is a process on this computer.

The account is one SQLite file, so that it outlives the controller. It shows everything the contract asks for: ids that
never buy twice, tags with the cluster, one highest epoch a cluster, and a list that is the truth.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from windlass.providers.protocol import (
    ClusterIdentity,
    Host,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    Provider,
    StaleEpoch,
)
from windlass.providers.registry import ProviderContext, ProviderType
from windlass.setting_types import Place, Section, Setting, Whole

TABLES = """
CREATE TABLE IF NOT EXISTS slices (id TEXT PRIMARY KEY, owner TEXT, owner_name TEXT, grp TEXT, ended INTEGER);
CREATE TABLE IF NOT EXISTS hosts (slice TEXT, number INTEGER, pid INTEGER, born TEXT, PRIMARY KEY (slice, number));
CREATE TABLE IF NOT EXISTS epochs (owner TEXT PRIMARY KEY, highest INTEGER);
"""

# Starts the command in a session of its own and prints its process id. The shell ends at once.
START = 'setsid "$@" </dev/null >/dev/null 2>&1 & echo $!'


class RackProvider:
    """Sells slices of processes, up to a number of hosts."""

    def __init__(self, file: str, places: int = 64) -> None:
        self._file, self._places, self._cluster = Path(file), places, ClusterIdentity()

    def bind(self, cluster: ClusterIdentity) -> None:
        self._cluster = cluster

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        if not order.hosts or not all(host.command for host in order.hosts):
            raise InvalidRequest(f"{order.slice_id}: a slice needs hosts, and each host a command")
        with self._account(epoch) as account:
            if account.execute("SELECT 1 FROM slices WHERE id = ?", (order.slice_id,)).fetchone():
                return  # there, in flight or ended: the same id never buys twice
            taken = sum(len(hosts) for _, _, hosts in self._living(account))
            if taken + len(order.hosts) > self._places:
                raise InsufficientCapacity(f"{taken} of {self._places} places of the rack are taken")
            owner = order.cluster
            # The row is written before the first process starts: after a crash in between, list() finds it.
            account.execute(
                "INSERT INTO slices VALUES (?, ?, ?, ?, 0)", (order.slice_id, owner.id, owner.name, order.group)
            )
            for number, host in enumerate(order.hosts):
                pid = _start(host.command, host.environment)
                account.execute("INSERT INTO hosts VALUES (?, ?, ?, ?)", (order.slice_id, number, pid, _born(pid)))

    async def terminate(self, slice_id: str, epoch: int) -> None:
        with self._account(epoch) as account:
            for living, _, hosts in self._living(account):
                if living == slice_id:
                    for pid, born in hosts:
                        if _born(pid) == born:
                            _kill(pid)
                    account.execute("UPDATE slices SET ended = 1 WHERE id = ?", (slice_id,))

    async def list(self) -> Sequence[Instance]:
        with self._account() as account:
            return [
                Instance(slice_id, group, "running", tuple(Host(str(pid), _born(pid) == born) for pid, born in hosts))
                for slice_id, group, hosts in self._living(account)
            ]

    async def offerings(self) -> Sequence[Offering]:
        return ()  # it sells whatever the configuration has groups for

    async def close(self) -> None:
        """Every call opens and closes the account itself."""

    @contextmanager
    def _account(self, epoch: int | None = None) -> Iterator[sqlite3.Connection]:
        """Open the account in one transaction. A changing call has an epoch; a lower one than before is refused."""
        self._file.parent.mkdir(parents=True, exist_ok=True)
        account = sqlite3.connect(self._file, timeout=30)
        try:
            account.executescript(TABLES)
            account.execute("BEGIN IMMEDIATE")
            for name, id_ in account.execute("SELECT DISTINCT owner_name, owner FROM slices WHERE ended = 0"):
                self._cluster.owns(name, id_)  # raises ClusterConflict for our name with another journal
            if epoch is not None:
                owner = self._cluster.id
                row = account.execute("SELECT highest FROM epochs WHERE owner = ?", (owner,)).fetchone()
                if row is not None and epoch < row[0]:
                    raise StaleEpoch(f"a controller with epoch {row[0]} has taken over; this one has {epoch}")
                account.execute("REPLACE INTO epochs VALUES (?, ?)", (owner, epoch))
            yield account
            account.commit()
        finally:
            account.close()

    def _living(self, account: sqlite3.Connection) -> list[tuple[str, str, list[tuple[int, str]]]]:
        rows = account.execute("SELECT id, grp, owner_name, owner FROM slices WHERE ended = 0 ORDER BY id").fetchall()
        hosts = "SELECT pid, born FROM hosts WHERE slice = ? ORDER BY number"
        return [
            (slice_id, group, account.execute(hosts, (slice_id,)).fetchall())
            for slice_id, group, name, id_ in rows
            if self._cluster.owns(name, id_)
        ]


def _start(command: Sequence[str], environment: Mapping[str, str]) -> int:
    done = subprocess.run(
        ["sh", "-c", START, "sh", *command], env={**os.environ, **environment}, capture_output=True, check=True
    )
    return int(done.stdout)


def _kill(pid: int) -> None:
    for kill in (os.kill, os.killpg):  # the group may not exist yet, a moment after the start
        with suppress(ProcessLookupError):
            kill(pid, signal.SIGKILL)


def _born(pid: int) -> str:
    """Return when a living process started, so that a number that is used again is not mistaken for it; "" if gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def _build(settings: Mapping[str, Any], context: ProviderContext) -> Provider:
    return RackProvider(settings["file"], settings["places"])


RACK = ProviderType(
    summary="a rack of processes on this computer, from the example package.",
    section=Section(
        "a rack",
        (
            Setting("file", Place(), ".windlass/rack.db", "", "The account: one SQLite file."),
            Setting("places", Whole(low=1, high=10_000), 64, "", "How many hosts it can hold."),
        ),
    ),
    build=_build,
    runs=frozenset({"queue"}),
)
