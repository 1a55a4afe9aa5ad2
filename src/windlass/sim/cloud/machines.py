"""This module simulates machines: the price and boot time of a kind, and the life of one machine.

The future of a machine (when it is up, when each host joins, when it is preempted) is computed when it is launched,
from its order, the seed and the faults. Only a terminate, a preemption or a manual change alters it later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Literal

from windlass.core.model.quantities import ACCELERATORS
from windlass.core.model.snapshot import Amounts
from windlass.providers.protocol import Host, Instance, LaunchOrder, Offering
from windlass.sim.faults.catalogue import Fault, FaultKind, FaultSet

EndedBy = Literal["terminate", "preemption", "hand", "twin"]
"""How a machine can end. A twin is the younger of two machines under one tag; its provider ends it."""


@dataclass(frozen=True, slots=True)
class MachineKind:
    """A kind of machine that a simulated cloud offers."""

    offering: Offering
    boot: float = 60.0
    """Median seconds from the launch until it is up."""
    join: float = 20.0
    """Median seconds from up until its hosts have joined the workload."""
    spread: float = 0.0
    """Spread of both, as the sigma of a log-normal; 0: always the median."""
    boots: tuple[float, ...] = ()
    """Observed boot times: each machine gets a random one of them instead of ``boot``."""
    stock: Mapping[str, int] | None = None
    """Available machines by zone; None: no limit."""


@dataclass(frozen=True, slots=True)
class LiveHost:
    """A host that has joined, as its workload agent would report it."""

    id: str
    slice_id: str
    group: str
    labels: Mapping[str, str]
    present: Amounts | None = None
    """Its real resources; None: as ordered."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a machine ended."""

    at: float
    by: EndedBy


@dataclass(slots=True)
class Machine:
    """One machine, of one host or several."""

    order: LaunchOrder
    ours: bool
    zone: str
    price: int | None
    made: float
    up: float
    joins: tuple[float, ...]
    """When each host joins; never is infinity."""
    present: Amounts | None
    """The real resources of its hosts; None: as ordered."""
    listed_from: float
    kind: str = ""
    """The name of the offering."""
    shown_hosts: int = 0
    """Number of hosts that exist and are listed; a host that was never created is not counted."""
    away: tuple[float, float] = (inf, inf)
    """While it restarts, none of its hosts is in the workload."""
    taken: float = inf
    notice: float = 0.0
    ending_since: float | None = None
    gone: float = inf
    """When a requested end completes."""
    listed_until: float = inf
    reports_times: bool = False
    """Whether its cloud reports its creation time."""

    @property
    def end(self) -> Ending | None:
        """When and why it ends, according to its current future."""
        first = min(self.taken, self.gone)
        if first == inf:
            return None
        return Ending(first, "preemption" if self.taken <= self.gone else "terminate")

    def alive(self, now: float) -> bool:
        return now < self.taken and now < self.gone

    def instance(self, now: float) -> Instance:
        alive = self.alive(now)
        booted = self.up <= now
        ending = self.ending_since is not None or not alive
        warned = self.taken < inf and self.taken - self.notice <= now
        return Instance(
            slice_id=self.order.slice_id,
            group=self.order.group,
            state="ending" if ending else "running" if booted else "pending",
            hosts=tuple([Host(self.host_id(number), running=booted and alive) for number in range(self.shown_hosts)]),
            preempted_at=self.taken if warned and self.notice else None,
            zone=self.zone,
            price=self.price,
            started_at=self.made if self.reports_times else None,
        )

    def host_id(self, number: int) -> str:
        return f"{self.order.slice_id}/{number}"

    def live_hosts(self, now: float) -> list[LiveHost]:
        if now < self.up or not self.alive(now) or self.away[0] <= now < self.away[1]:
            return []
        labels = {**self.order.labels, **({"zone": self.zone} if self.zone else {})}
        return [
            LiveHost(self.host_id(number), self.order.slice_id, self.order.group, labels, self.present)
            for number, joins in enumerate(self.joins)
            if joins <= now
        ]

    def instants(self) -> tuple[float, ...]:
        """Return every time at which it changes."""
        warned = self.taken - self.notice
        return (
            self.up,
            *self.joins,
            *self.away,
            self.listed_from,
            warned,
            self.taken,
            self.gone,
            self.listed_until,
        )


def made(
    order: LaunchOrder, kind: MachineKind, zone: str, now: float, fault_set: FaultSet, *, ours: bool = True
) -> Machine:
    """Return a new machine with its future."""
    chance, name, group = fault_set.chance, order.slice_id, order.group

    def met(what: FaultKind) -> Fault | None:
        return fault_set.occurs(what, now, name, group=group, zone=zone) if what in fault_set.by_kind else None

    boot = chance.around(kind.boot, kind.spread, "boot", name)
    if kind.boots:
        boot = kind.boots[chance.pick(len(kind.boots), "boot", name)]
    up = inf if met("boot-never") else now + boot * (10 if met("boot-slow") else 1)
    joins = [up + chance.around(kind.join, kind.spread, "join", name, number) for number in range(len(order.hosts))]
    shown = len(joins)
    if met("never-joins"):
        joins = [inf] * len(joins)
    elif met("host-missing"):
        joins[chance.pick(len(joins), "host-missing", name)] = inf
    elif len(joins) > 1 and met("created-fewer"):
        joins[-1], shown = inf, shown - 1
    missing = met("new-missing")
    machine = Machine(
        order=order,
        ours=ours,
        zone=zone,
        price=kind.offering.price,
        made=now,
        up=up,
        joins=tuple(joins),
        present=_present(order, bare=met("no-accelerator") is not None, halved=met("wrong-type") is not None),
        listed_from=now + (missing.seconds if missing else 0),
        kind=kind.offering.name,
        shown_hosts=shown,
    )
    if (restarts := met("restarts")) is not None and up < inf:
        begins = max(up, *(at for at in joins if at < inf), up) + chance.wait(1800, "restarts", name)
        machine.away = (begins, begins + restarts.seconds)
    taken = met("preempted") if kind.offering.preemptible else None
    if taken is not None:
        machine.notice = taken.notice
        machine.taken = up + chance.wait(taken.seconds, "preempted", name) + taken.notice
    return machine


def _present(order: LaunchOrder, *, bare: bool, halved: bool) -> Amounts | None:
    """Return the real resources of a machine's hosts, if they differ from the order."""
    if bare and any(name in ACCELERATORS for name, _ in order.resources):
        return tuple(pair for pair in order.resources if pair[0] not in ACCELERATORS)
    if halved:
        return tuple((name, amount // 2) for name, amount in order.resources)
    return None
