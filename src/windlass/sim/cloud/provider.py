"""The simulated cloud keeps the contract of a provider and injects the faults of a real one.

It never sleeps. The state at any time follows from the given clock: a machine's future is computed when it is launched
and put on an agenda, and ``step`` processes what is due. The cost of a call grows with the changes, and unchanged items
are returned as the same objects.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import chain
from math import inf
from typing import Any

from windlass.control.observe.completed import Completed
from windlass.providers.protocol import (
    ClusterIdentity,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    ProviderError,
    QuotaExceeded,
    StaleEpoch,
    Throttled,
)
from windlass.sim.faults.catalogue import Fault, FaultKind, FaultSet
from windlass.sim.random_source import RandomSource

from .machines import Ending, LiveHost, Machine, MachineKind, made

PAGE_CYCLE = 60.0
"""Period in seconds: a lost page is missing at the start of a period and back for the rest of it."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A terminate call that the cloud has carried out."""

    slice_id: str
    at: float
    epoch: int


class SimulatedProvider:
    """A provider of simulated machines."""

    def __init__(
        self,
        kinds: Iterable[MachineKind],
        *,
        now: Callable[[], float],
        seed: int | str = 0,
        faults: Iterable[Fault] = (),
        quota: int | None = None,
        terminate_seconds: float = 5.0,
        struck: dict[str, int] | None = None,
        confirms_ends: bool = True,
        reports_times: bool = False,
    ) -> None:
        """``quota``: slices that the account may have at once. A group launches the kind with its own name, or with the
        name in its setting ``offering``, in the zone of its setting ``zone``, or where there is stock. ``struck``
        counts the applied faults. Without ``confirms_ends`` it does not report which slices have ended, as many clouds
        do not. With ``reports_times`` it reports when each of its machines was created and when it ended.
        """
        self._kinds = {kind.offering.name: kind for kind in kinds}
        self._now = now
        self._fault_set = FaultSet.of(faults, RandomSource(seed), struck)
        self._quota = quota
        self._terminate_seconds = terminate_seconds
        self._confirms_ends, self.reports_times = confirms_ends, reports_times
        self._machines: dict[str, Machine] = {}
        self._agenda: list[tuple[float, str]] = []
        self._alive: Counter[tuple[str, str]] = Counter()
        """Live machines by kind and zone."""
        self._counted: set[str] = set()
        """Machines that are included in these counts."""
        self._living: dict[str, Machine] | None = None
        self._held = 0
        self._epoch = 0
        self._occasion: dict[tuple[str, str], int] = {}
        self._shown: dict[str, Instance] = {}
        self._joined: dict[str, list[LiveHost]] = {}
        self._shown_in_order = self._joined_in_order = True
        """Whether both are sorted by name, so that a change does not move the others."""
        self._whole_list: tuple[Instance, ...] | None = ()
        self._hosts: tuple[LiveHost, ...] | None = ()
        self._last_list: tuple[Instance, ...] = ()
        self._handed_out: tuple[Instance, ...] = ()
        self._ending: list[Ended] = []
        self._came: list[str] = []
        self._showed: list[str] = []
        self._rehosted: dict[str, None] = {}
        self.twins: dict[str, Machine] = {}
        """Second machines under the tag of a first."""
        self.listed_at = -inf
        """Time of the last list."""
        self.living_slices: Counter[str] = Counter()
        """Number of live machines with our tag, by group."""
        self.living_hosts = 0
        self.history: dict[str, Ending] = {}
        """How each ended machine ended."""
        self.made: dict[str, float] = {}
        """When each machine with our tag was created, ended ones included."""
        self.on_change: Callable[[str, int], None] = lambda _call, _epoch: None
        """Called with each launch and terminate call that arrives, with its epoch."""
        self.refused_epochs: set[int] = set()
        """Epochs whose calls were refused because a newer one is known."""

    def sell(self, kinds: Iterable[MachineKind]) -> None:
        """Replace the offered kinds; existing machines stay."""
        self._kinds = {kind.offering.name: kind for kind in kinds}

    # -- the contract -----------------------------------------------------------------------------------------------

    def bind(self, cluster: ClusterIdentity) -> None:
        """Does nothing: a simulated account has one cluster."""

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        self.on_change(f"the launch of {order.slice_id}", epoch)
        self._see(epoch)
        self.step()
        kind, name, group = self._kind(order), order.slice_id, order.group
        if name in self._machines or name in self.history:
            return  # an id launches only once, even after its machine has ended
        if fault := self._met("throttled", name, group=group):
            raise Throttled(f"too many calls; again in {fault.seconds:g} s", fault.seconds)
        zone = self._zone(order, kind)
        if self._met("quota", name, group=group, zone=zone):
            raise QuotaExceeded(f"the account may have no more {group}")
        if self._quota is not None and self._held >= self._quota:
            raise QuotaExceeded(f"the account may have {self._quota} slices and has {self._held}")
        self._add(made(order, kind, zone, self._now(), self._fault_set))
        if self._met("created-twice", name, group=group, zone=zone):
            self.twins[name] = made(order, kind, zone, self._now(), self._fault_set)
        if self._met("launch-hangs", name, group=group, zone=zone):
            await asyncio.Event().wait()
        if self._met("launch-lost", name, group=group, zone=zone):
            raise ProviderError(f"no answer to the order of {name}; it may come or not")

    async def terminate(self, slice_id: str, epoch: int) -> None:
        self.on_change(f"the end of {slice_id}", epoch)
        self._see(epoch)
        self.step()
        machine = self._machines.get(slice_id)
        if machine is None or not machine.ours or not machine.alive(self._now()):
            return
        where = {"group": machine.order.group, "zone": machine.zone}
        if self._met("terminate-fails", slice_id, **where):
            raise ProviderError(f"{slice_id} could not be ended just now")
        if self._met("terminate-hangs", slice_id, **where):
            await asyncio.Event().wait()
        if machine.ending_since is None:
            slow = self._met("terminate-slow", slice_id, **where)
            machine.ending_since = self._now()
            machine.gone = self._now() + (slow.seconds if slow else self._terminate_seconds)
            self._ending.append(Ended(slice_id, self._now(), epoch))
            self._changed(machine)

    def list(self) -> Coroutine[Any, Any, Sequence[Instance]]:
        return self._listed_with_faults() if self._fault_set.faults else Completed(self._listed())

    async def _listed_with_faults(self) -> Sequence[Instance]:
        self.step()
        if self._met("list-fails", ""):
            raise ProviderError("the list cannot be had just now")
        if self._met("list-hangs", ""):
            await asyncio.Event().wait()
        return self._listed()

    def _listed(self) -> Sequence[Instance]:
        self.step()
        self.listed_at = self._now()
        self._end_twins()
        if self._met("list-stale", ""):
            self._handed_out = self._last_list
            return self._handed_out
        if self._whole_list is None:
            self._shown = self._shown if self._shown_in_order else dict(sorted(self._shown.items()))
            self._whole_list, self._shown_in_order = tuple(self._shown.values()), True
        self._last_list = self._handed_out = self._whole_list
        if "page-lost" in self._fault_set.by_kind:
            self._handed_out = tuple([one for one in self._last_list if not self._page_lost(one.slice_id)])
        return self._handed_out

    def confirm_ended(self, slice_ids: Collection[str]) -> Coroutine[Any, Any, Collection[str]]:
        self.step()
        known = self.history if self._confirms_ends else {}
        ended = [name for name in slice_ids if name in known and name not in self._machines]
        return Completed({name: known[name].at for name in ended} if self.reports_times else ended)

    async def offerings(self) -> Sequence[Offering]:
        return tuple(kind.offering for _, kind in sorted(self._kinds.items()))

    async def close(self) -> None:
        """Does nothing: no resource is open, and machines keep running."""

    # -- the world --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Process everything that is due: ended machines move to the history, and leave the list when it is updated."""
        now = self._now()
        while self._agenda and self._agenda[0][0] <= now:
            machine = self._machines.get(heappop(self._agenda)[1])
            if machine is not None:
                self._look_at(machine, now)

    def next_event(self) -> float | None:
        """Return the next time at which something changes without input; None: never."""
        self.step()
        while self._agenda and (self._agenda[0][1] not in self._machines or not self._is_due()):
            heappop(self._agenda)
        return self._agenda[0][0] if self._agenda else None

    def live_hosts(self) -> Sequence[LiveHost]:
        """Return every live host that has joined: the truth, independent of the list. The same object while nothing
        changes.
        """
        self.step()
        if self._hosts is None:
            self._joined = self._joined if self._joined_in_order else dict(sorted(self._joined.items()))
            self._hosts, self._joined_in_order = tuple(chain.from_iterable(self._joined.values())), True
        return self._hosts

    def hosts_changed_lately(self) -> Sequence[str]:
        """Return the names of slices whose hosts have joined or left since the last call."""
        if self._agenda and self._agenda[0][0] <= self._now():
            self.step()
        if not self._rehosted:
            return ()
        lately, self._rehosted = sorted(self._rehosted), {}
        return lately

    def hosts_of(self, slice_id: str) -> Sequence[LiveHost]:
        """Return the live hosts of one slice that have joined."""
        return self._joined.get(slice_id, ())

    def living(self) -> dict[str, Machine]:
        """Return every live machine with our tag by its slice, ending ones included: the truth.

        The same object while none comes or goes.
        """
        self.step()
        if self._living is None:
            self._living = {name: self._machines[name] for name in sorted(self._counted) if self._machines[name].ours}
        return self._living

    def living_one(self, slice_id: str) -> Machine | None:
        """Return one live machine; None: it is not alive, or not ours."""
        machine = self._machines.get(slice_id) if slice_id in self._counted else None
        return machine if machine is not None and machine.ours else None

    def is_listed(self, slice_id: str) -> bool:
        """Whether a complete and current list shows it now."""
        return slice_id in self._shown

    def was_shown(self, slice_id: str) -> bool:
        """Whether the last returned list showed it; a stale or incomplete one may not."""
        return any(one.slice_id == slice_id for one in self._handed_out)

    def reported_life(self, slice_id: str) -> tuple[float, float] | None:
        """Return when a machine was created and when it ended, if the cloud reports that."""
        if not (self._confirms_ends and self.reports_times) or slice_id in self._machines:
            return None
        end, made = self.history.get(slice_id), self.made.get(slice_id)
        return None if end is None or made is None else (made, end.at)

    def ended_lately(self) -> Sequence[Ended]:
        """Return the terminate calls that were carried out since the last call."""
        lately, self._ending = self._ending, []
        return lately

    def came_lately(self) -> Sequence[str]:
        """Return the machines with our tag that were created since the last call."""
        lately, self._came = self._came, []
        return lately

    def shown_lately(self) -> Sequence[str]:
        """Return the machines that a list showed for the first time since the last call."""
        lately, self._showed = self._showed, []
        return lately

    def calm(self) -> None:
        """Stop all faults; their effects on machines stay."""
        self._fault_set = FaultSet.of((), self._fault_set.chance, self._fault_set.struck)

    def preempt(self, slice_id: str, notice: float = 0.0) -> None:
        """Preempt a machine after a delay in seconds."""
        machine = self._machines[slice_id]
        machine.notice, machine.taken = notice, min(machine.taken, self._now() + notice)
        self._changed(machine)

    def preempt_zone(self, zone: str, notice: float = 0.0) -> None:
        for slice_id, machine in list(self._machines.items()):
            if machine.zone == zone:
                self.preempt(slice_id, notice)

    def restock(self, zone: str, machines: int) -> None:
        """Set the stock of a zone for each kind that has one; random machines beyond it are preempted."""
        for name, kind in self._kinds.items():
            if kind.stock is None or zone not in kind.stock:
                continue
            self._kinds[name] = replace(kind, stock={**kind.stock, zone: machines})
            here = [one for one in self._counted if self._machines[one].kind == name]
            here = sorted(one for one in here if self._machines[one].zone == zone)
            here.sort(key=lambda one: self._fault_set.chance.wait(1.0, "restock", one))
            for one in here[machines:]:
                self.preempt(one)

    def delete_by_hand(self, slice_id: str) -> None:
        """End a machine as a user does in the cloud's console."""
        self._uncount(self._machines.pop(slice_id))
        self._hide(slice_id)
        self.history[slice_id] = Ending(self._now(), "hand")

    def create_by_hand(self, order: LaunchOrder, *, tagged: bool) -> None:
        """Create a machine as a user does in the cloud's console, with our tag or without."""
        kind = self._kind(order)
        self._add(made(order, kind, self._zone(order, kind), self._now(), self._fault_set, ours=tagged))

    def set_price(self, offering: str, price: int | None) -> None:
        """Set the price of machines that are launched from now on."""
        kind = self._kinds[offering]
        self._kinds[offering] = replace(kind, offering=replace(kind.offering, price=price))

    @property
    def kinds(self) -> dict[str, MachineKind]:
        """The offered kinds, by name."""
        return self._kinds

    # -- keeping what shows -----------------------------------------------------------------------------------------

    def _add(self, machine: Machine) -> None:
        machine.reports_times = self.reports_times
        self._machines[machine.order.slice_id] = machine
        self._counted.add(machine.order.slice_id)
        self._alive[machine.kind, machine.zone] += 1
        if machine.ours:
            self.made[machine.order.slice_id] = machine.made
            self._came.append(machine.order.slice_id)
            self._count(machine, 1)
        self._changed(machine)

    def _uncount(self, machine: Machine) -> None:
        if machine.order.slice_id in self._counted:
            self._counted.discard(machine.order.slice_id)
            self._alive[machine.kind, machine.zone] -= 1
            if machine.ours:
                self._count(machine, -1)

    def _count(self, machine: Machine, more: int) -> None:
        """Count one more or one fewer of our live machines."""
        self._living = None
        self._held += more
        self.living_slices[machine.order.group] += more
        self.living_hosts += more * machine.shown_hosts

    def _changed(self, machine: Machine) -> None:
        """Update the agenda and the list after its future has changed."""
        now, name = self._now(), machine.order.slice_id
        for at in {at for at in machine.instants() if now < at < inf}:
            heappush(self._agenda, (at, name))
        self._look_at(machine, now)

    def _is_due(self) -> bool:
        """Whether the first entry of the agenda is current: postponed and cancelled changes leave old entries."""
        at, name = self._agenda[0]
        return at in self._machines[name].instants()

    def _look_at(self, machine: Machine, now: float) -> None:
        """Update the list entry of a machine."""
        name, end = machine.order.slice_id, machine.end
        if end is not None and end.at <= now:
            if name not in self.history:
                self.history[name] = end
                where = {"group": machine.order.group, "zone": machine.zone}
                shown = self._fault_set.occurs("ended-shown", now, name, **where)
                machine.listed_until = end.at + (shown.seconds if shown else 0)
                self._uncount(machine)
                if machine.listed_until > now:
                    heappush(self._agenda, (machine.listed_until, name))
            if machine.listed_until <= now:
                del self._machines[name]
                self._hide(name)
                return
        if machine.ours and machine.listed_from <= now:
            instance = machine.instance(now)
            if name not in self._shown:
                self._showed.append(name)
                self._shown_in_order = False
            if self._shown.get(name) != instance:
                self._shown[name] = instance
                self._whole_list = None
        hosts = machine.live_hosts(now)
        before = self._joined.get(name)
        if (before or []) != hosts:
            self._joined_in_order = self._joined_in_order and before is not None
            self._joined[name] = hosts
            self._hosts = None
            self._rehosted[name] = None

    def _hide(self, name: str) -> None:
        if self._shown.pop(name, None) is not None:
            self._whole_list = None
        if self._joined.pop(name, None):
            self._hosts = None
            self._rehosted[name] = None

    # -- rules of the house -----------------------------------------------------------------------------------------

    def _see(self, epoch: int) -> None:
        if epoch < self._epoch:
            self.refused_epochs.add(epoch)
            raise StaleEpoch.of(epoch, self._epoch)
        self._epoch = epoch

    def _met(self, kind: FaultKind, name: str, *, group: str = "", zone: str = "") -> Fault | None:
        """Return the fault for the n-th call about this name, if any."""
        if kind not in self._fault_set.by_kind:
            return None
        number = self._occasion[kind, name] = self._occasion.get((kind, name), 0) + 1
        return self._fault_set.occurs(kind, self._now(), name, number, group=group, zone=zone)

    def _page_lost(self, slice_id: str) -> bool:
        cycle, into = divmod(self._now(), PAGE_CYCLE)
        lost = self._fault_set.occurs("page-lost", self._now(), slice_id, cycle)
        return lost is not None and into < lost.seconds

    def _end_twins(self) -> None:
        """End the younger of two machines under one tag as soon as it is listed. Only the provider can tell them apart,
        because a controller has only the slice's id.
        """
        if not self.twins:
            return
        now = self._now()
        for name, twin in list(self.twins.items()):
            if twin.listed_from <= now:
                del self.twins[name]

    def _kind(self, order: LaunchOrder) -> MachineKind:
        name = order.settings.get("offering", order.group)
        kind = self._kinds.get(name)
        if kind is None:
            raise InvalidRequest(f"there is no offering {name!r}; this cloud sells {', '.join(sorted(self._kinds))}")
        if len(order.hosts) != kind.offering.hosts:
            hosts = kind.offering.hosts
            raise InvalidRequest(f"{name} is sold with {hosts} hosts, {len(order.hosts)} were ordered; order {hosts}")
        return kind

    def _zone(self, order: LaunchOrder, kind: MachineKind) -> str:
        """Return the zone of the order, or the first with stock; raise ``InsufficientCapacity`` when there is none."""
        asked = order.settings.get("zone")
        zones = kind.offering.zones or ("",)
        if asked is not None and asked not in zones:
            raise InvalidRequest(f"{kind.offering.name} is not sold in {asked!r}; choose from {', '.join(zones)}")
        for zone in (asked,) if asked is not None else zones:
            refused = self._met("stock-out", f"{order.slice_id}@{zone}", group=order.group, zone=zone)
            if refused is None and self._left(kind, zone) > 0:
                return zone
        raise InsufficientCapacity(f"{kind.offering.name} is out of stock in {asked or ', '.join(zones)}")

    def _left(self, kind: MachineKind, zone: str) -> float:
        return inf if kind.stock is None else kind.stock.get(zone, 0) - self._alive[kind.offering.name, zone]
