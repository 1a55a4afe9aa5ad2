"""The simulated cloud: keeps the contract of a provider, and does every wrong that a real one does.

It never sleeps. What has happened by now follows from the given clock alone: a machine's future is settled when it is
made (`machines`), and each call looks at it with the time of that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf

from windlass.providers.protocol import (
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

from .chance import Chance
from .faults import Fault, FaultKind, Storm
from .machines import Ending, LiveHost, Machine, MachineKind, made


class SimulatedProvider:
    """Sells machines that do not exist."""

    def __init__(
        self,
        kinds: Iterable[MachineKind],
        *,
        now: Callable[[], float],
        seed: int | str = 0,
        faults: Iterable[Fault] = (),
        quota: int | None = None,
        terminate_seconds: float = 5.0,
    ) -> None:
        """``quota``: slices that the account may have at once. A group orders the kind of its own name, or the one in
        its setting ``offering``; in its setting ``zone``, or where there is stock."""
        self._kinds = {kind.offering.name: kind for kind in kinds}
        self._now = now
        self._storm = Storm.of(faults, Chance(seed))
        self._quota = quota
        self._terminate_seconds = terminate_seconds
        self._machines: dict[str, Machine] = {}
        self._epoch = 0
        self._occasion: dict[tuple[str, str], int] = {}
        self._last_list: tuple[Instance, ...] = ()
        self.history: dict[str, Ending] = {}
        """How each machine that is gone came to its end."""

    def sell(self, kinds: Iterable[MachineKind]) -> None:
        """From now on it sells these kinds; machines that are there stay."""
        self._kinds = {kind.offering.name: kind for kind in kinds}

    # -- the contract -----------------------------------------------------------------------------------------------

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        self._see(epoch)
        self.step()
        kind = self._kind(order)
        if order.slice_id in self._machines or order.slice_id in self.history:
            return  # an id buys once, ever: also when what it bought is gone already
        if fault := self._met("throttled", order.slice_id, group=order.group):
            raise Throttled(f"too many calls; again in {fault.seconds:g} s", fault.seconds)
        zone = self._zone(order, kind)
        if self._met("quota", order.slice_id, group=order.group, zone=zone):
            raise QuotaExceeded(f"the account may have no more {order.group}")
        held = sum(machine.ours for machine in self._machines.values() if machine.alive(self._now()))
        if self._quota is not None and held >= self._quota:
            raise QuotaExceeded(f"the account may have {self._quota} slices and has {held}")
        self._machines[order.slice_id] = made(order, kind, zone, self._now(), self._storm)
        if self._met("launch-hangs", order.slice_id, group=order.group, zone=zone):
            await asyncio.Event().wait()
        if self._met("launch-lost", order.slice_id, group=order.group, zone=zone):
            raise ProviderError(f"no answer to the order of {order.slice_id}; it may come or not")

    async def terminate(self, slice_id: str, epoch: int) -> None:
        self._see(epoch)
        self.step()
        machine = self._machines.get(slice_id)
        if machine is None or not machine.ours or not machine.alive(self._now()):
            return
        where = {"group": machine.order.group, "zone": machine.zone}
        if self._met("terminate-fails", slice_id, **where):
            raise ProviderError(f"{slice_id} could not be ended just now")
        if machine.ending_since is None:
            slow = self._met("terminate-slow", slice_id, **where)
            machine.ending_since = self._now()
            machine.gone = self._now() + (slow.seconds if slow else self._terminate_seconds)

    async def list(self) -> Sequence[Instance]:
        self.step()
        if self._met("list-fails", ""):
            raise ProviderError("the list cannot be had just now")
        if self._met("list-stale", ""):
            return self._last_list
        now = self._now()
        self._last_list = tuple(
            machine.instance(now)
            for _, machine in sorted(self._machines.items())
            if machine.ours and machine.listed_from <= now
        )
        return self._last_list

    async def offerings(self) -> Sequence[Offering]:
        return tuple(kind.offering for _, kind in sorted(self._kinds.items()))

    async def close(self) -> None:
        """Nothing is open; machines live on."""

    # -- the world --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Make happen what is due by now: ended machines go into the history, and out of the list when it notices."""
        now = self._now()
        for slice_id, machine in list(self._machines.items()):
            end = machine.end
            if end is None or end.at > now:
                continue
            if slice_id not in self.history:
                self.history[slice_id] = end
                where = {"group": machine.order.group, "zone": machine.zone}
                shown = self._storm.strikes("ended-shown", now, slice_id, **where)
                machine.listed_until = end.at + (shown.seconds if shown else 0)
            if machine.listed_until <= now:
                del self._machines[slice_id]

    def next_event(self) -> float | None:
        """The next instant at which something changes by itself; None: never again."""
        now = self._now()
        later = (at for machine in self._machines.values() for at in machine.instants() if now < at < inf)
        return min(later, default=None)

    def live_hosts(self) -> Sequence[LiveHost]:
        """Every host that has joined and is alive: the truth, whatever the list says."""
        now = self._now()
        return [host for _, machine in sorted(self._machines.items()) for host in machine.live_hosts(now)]

    def cost_per_hour(self) -> int:
        """Nanodollars per hour for all that is alive now."""
        now = self._now()
        return sum(machine.price or 0 for machine in self._machines.values() if machine.ours and machine.alive(now))

    def preempt(self, slice_id: str, notice: float = 0.0) -> None:
        """The cloud takes a machine back, so many seconds from now."""
        machine = self._machines[slice_id]
        machine.notice, machine.taken = notice, min(machine.taken, self._now() + notice)

    def preempt_zone(self, zone: str, notice: float = 0.0) -> None:
        for slice_id, machine in self._machines.items():
            if machine.zone == zone:
                self.preempt(slice_id, notice)

    def delete_by_hand(self, slice_id: str) -> None:
        """Somebody ends a machine in the cloud's console."""
        self._machines.pop(slice_id)
        self.history[slice_id] = Ending(self._now(), "hand")

    def create_by_hand(self, order: LaunchOrder, *, tagged: bool) -> None:
        """Somebody makes a machine in the cloud's console, with our tag or without."""
        kind = self._kind(order)
        machine = made(order, kind, self._zone(order, kind), self._now(), self._storm, ours=tagged)
        self._machines[order.slice_id] = machine

    def set_price(self, offering: str, price: int | None) -> None:
        """For machines that are bought from now on."""
        kind = self._kinds[offering]
        self._kinds[offering] = replace(kind, offering=replace(kind.offering, price=price))

    # -- rules of the house -----------------------------------------------------------------------------------------

    def _see(self, epoch: int) -> None:
        if epoch < self._epoch:
            raise StaleEpoch(f"a controller with epoch {self._epoch} has taken over; this one has epoch {epoch}")
        self._epoch = epoch

    def _met(self, kind: FaultKind, name: str, *, group: str = "", zone: str = "") -> Fault | None:
        """Whether a fault strikes on this occasion: the n-th call about this name."""
        number = self._occasion[kind, name] = self._occasion.get((kind, name), 0) + 1
        return self._storm.strikes(kind, self._now(), name, number, group=group, zone=zone)

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
        """The zone of the order, or the first with stock; ``InsufficientCapacity`` when there is none."""
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
        if kind.stock is None:
            return inf
        sold = sum(
            machine.zone == zone and machine.alive(self._now()) and self._kind(machine.order) is kind
            for machine in self._machines.values()
        )
        return kind.stock.get(zone, 0) - sold
