"""This module translates devices into plain resources of the planner, which are exact even where queries overlap.

A device may serve several queries, such as "any GPU" and "a GPU with 80 GB", so one count per query would hand it out
twice. By Hall's theorem all requests can be served if and only if, for every set of queries, the devices that at least
one of them selects are at least as many as their requests together. So the planner gets one resource for every set of
overlapping queries: a device counts for each set with a query that selects it, a request counts for each set that
contains its query. Queries that select the same devices are merged.

Three kinds of request are counted by how many of them a node can still serve, one resource for each: a share of devices
that can be shared, a partition of a device, and a set of devices that must have the same value of an attribute, or
different values. What different shares or partitions take of the same devices is counted by ``pooled_amounts``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import combinations
from typing import Final

from windlass.workloads.kubernetes.translate.provisioners import DEVICES

from .expressions import DeviceFacts, Expressions, NotUnderstood
from .partitions import NO_COUNTERS, Counter, allocatable
from .pooled_amounts import PooledAmounts
from .queries import ALL, AlikeDevices, DeviceCounts, DeviceKind
from .shares import claims_served

MOST_OVERLAPPING: Final = 6
"""The most queries that may overlap: they make 63 resources."""
_STAND_IN: Final = "extended resource "


def stand_ins(resource: str, count: int) -> list[DeviceFacts]:
    """Return the amount of an extended resource that a device plugin offers, as devices that only serve this
    resource.
    """
    return [DeviceFacts(_STAND_IN + resource, "{}", "{}")] * max(0, count)


@dataclass
class DeviceColumns:
    """The planner's resources for the queries of one observation."""

    expressions: Expressions
    bad: dict[DeviceKind, str] = field(default_factory=dict)
    """Queries that cannot be planned for, and why."""
    sets: dict[str, frozenset[DeviceKind]] = field(default_factory=dict)
    shared: dict[str, DeviceKind] = field(default_factory=dict)
    """Queries for a share of devices."""
    partitioned: dict[str, DeviceKind] = field(default_factory=dict)
    """Queries for devices that consume counters."""
    alike: dict[str, AlikeDevices] = field(default_factory=dict)
    pooled: PooledAmounts = field(default_factory=PooledAmounts)
    """Amounts that different shares and partitions take of the same devices."""
    _same: dict[DeviceKind, DeviceKind] = field(default_factory=dict)
    _serves: dict[DeviceFacts, frozenset[DeviceKind]] = field(default_factory=dict)

    @staticmethod
    def of(
        kinds: Iterable[DeviceKind],
        devices: Iterable[DeviceFacts],
        elsewhere: Iterable[DeviceFacts],
        expressions: Expressions,
        alike: Iterable[AlikeDevices] = (),
    ) -> DeviceColumns:
        """``devices``: all that belong to a node, or will. ``elsewhere``: those that do not. ``alike``: the queries for
        devices with something in common; their kinds are among ``kinds``."""
        columns = DeviceColumns(expressions)
        kinds = sorted(set(kinds), key=repr)
        every = list(devices)
        devices = set(every)
        outside = set(elsewhere)
        for kind in kinds:
            for device in devices | outside:
                try:
                    selected = columns._selects(kind, device)
                except NotUnderstood as error:
                    columns.bad[kind] = str(error)
                    break
                if selected and device in outside:
                    columns.bad[kind] = f"{kind.name} selects devices that do not belong to one node"
                    break
        good = [kind for kind in kinds if kind not in columns.bad]
        for device in devices:
            columns._serves[device] = frozenset(kind for kind in good if columns._selects(kind, device))
        columns._find_shared(good)
        counted = [*columns.shared.values(), *columns.partitioned.values()]
        columns.pooled = PooledAmounts.of(counted, every, lambda device, kind: kind in columns._serves[device])
        shared = {*counted, *columns.bad}
        columns._make_sets([kind for kind in good if kind not in shared and not kind.is_admin])
        for one in sorted(set(alike), key=repr):
            if not any(kind in shared for kind, _ in one.parts):
                columns.alike[f"sets of {one.name}"] = one
        return columns

    def _find_shared(self, kinds: list[DeviceKind]) -> None:
        for kind in kinds:
            selected = [device for device, serves in self._serves.items() if kind in serves]
            multiple = {device.multiple for device in selected}
            partitions = any(not device.is_plain for device in selected)
            if partitions and True in multiple:
                self.bad[kind] = f"{kind.name} selects partitions that can be shared, which is not planned for"
            elif partitions and not kind.is_admin:
                self.partitioned[f"partitions of {kind.name}"] = kind
            elif len(multiple) > 1:
                self.bad[kind] = f"{kind.name} selects devices that can be shared and others, which is not planned for"
            elif multiple == {True} and not kind.is_admin:
                self.shared[f"shares of {kind.name}"] = kind

    def _selects(self, kind: DeviceKind, device: DeviceFacts) -> bool:
        if device.driver.startswith(_STAND_IN):
            return device.driver == _STAND_IN + kind.extended
        return kind.selects(device, self.expressions)

    def _make_sets(self, kinds: list[DeviceKind]) -> None:
        selected = {kind: frozenset(one for one, serves in self._serves.items() if kind in serves) for kind in kinds}
        first: dict[object, DeviceKind] = {}
        for kind in kinds:
            # A query that selects no device is not merged with others, so that a reason can name it.
            self._same[kind] = first.setdefault(selected[kind] or kind.name, kind)
        left = list(dict.fromkeys(self._same.values()))
        while left:
            component = [left.pop(0)]
            reach = selected[component[0]]
            while more := [one for one in left if selected[one] & reach]:
                for one in more:
                    left.remove(one)
                    component.append(one)
                    reach |= selected[one]
            if len(component) > MOST_OVERLAPPING:
                why = f"more than {MOST_OVERLAPPING} different selectors overlap, which is not planned for"
                self.bad |= {kind: why for kind in kinds if self._same[kind] in component}
                continue
            for size in range(1, len(component) + 1):
                for chosen in combinations(component, size):
                    name = "devices of " + " or ".join(sorted(one.name for one in chosen))
                    while name in self.sets:
                        name += "'"
                    self.sets[name] = frozenset(chosen)

    def count(self, kind: DeviceKind, devices: Iterable[DeviceFacts]) -> int:
        """Return how many devices a query selects."""
        return sum(kind in self._serves.get(one, ()) for one in devices)

    def room(self, devices: Iterable[DeviceFacts], counters: Mapping[Counter, Decimal] = NO_COUNTERS) -> dict[str, int]:
        """Return the resources that devices offer. ``counters``: what partitions may consume."""
        devices = list(devices)
        kinds = [self._kinds(one) for one in devices]
        found = {name: 1000 * sum(not chosen.isdisjoint(one) for one in kinds) for name, chosen in self.sets.items()}
        for name, kind in self.shared.items():
            here = [one for one in devices if kind in self._serves.get(one, ())]
            found[name] = 1000 * sum(claims_served(one.driver, one.shares, kind.capacity) for one in here)
        for name, kind in self.partitioned.items():
            here = [one for one in devices if kind in self._serves.get(one, ())]
            found[name] = 1000 * allocatable(counters, here)
        for name, alike in self.alike.items():
            found[name] = 1000 * self._alike_sets(alike, devices)
        return {name: amount for name, amount in found.items() if amount}

    def _alike_sets(self, alike: AlikeDevices, devices: Iterable[DeviceFacts]) -> int:
        """Return how many sets of devices with equal attributes, or with different ones, there are."""
        counts: dict[tuple[str, ...], list[int]] = {}
        for one in devices:
            value = tuple(one.attribute(name) for name in alike.attributes)
            if all(value):
                here = counts.setdefault(value, [0] * len(alike.parts))
                for number, (kind, _) in enumerate(alike.parts):
                    here[number] += kind in self._serves.get(one, ())
        if alike.differ:
            return _different_sets([has for (has,) in counts.values()], alike.parts[0][1])
        return sum(
            min(has // count for has, (_, count) in zip(here, alike.parts, strict=True)) for here in counts.values()
        )

    @property
    def names(self) -> set[str]:
        """All resources of the planner that stand for devices."""
        return {*self.sets, *self.shared, *self.partitioned, *self.alike}

    def _kinds(self, device: DeviceFacts) -> frozenset[DeviceKind]:
        return frozenset(self._same[kind] for kind in self._serves.get(device, ()) if kind in self._same)

    def needs(self, counts: DeviceCounts) -> dict[str, int]:
        """Return the resources that requests take; the caller must have replaced requests for all devices by counts."""
        found: dict[str, int] = {}
        for one, count in counts:
            if isinstance(one, AlikeDevices):
                for kind, members in one.parts:
                    self._add(found, kind, members * count)
                name = f"sets of {one.name}"
                if name not in self.alike:
                    raise NotUnderstood(f"{one.name}: shared devices or partitions, which is not planned for")
                found[name] = found.get(name, 0) + 1000 * count
            else:
                self._add(found, one, count)
        return found

    def _add(self, found: dict[str, int], kind: DeviceKind, count: int) -> None:
        if kind in self.bad:
            raise NotUnderstood(self.bad[kind])
        assert count != ALL, "a request for all devices was not counted"
        if kind.is_admin:
            return
        for name, known in ((f"shares of {kind.name}", self.shared), (f"partitions of {kind.name}", self.partitioned)):
            if known.get(name) == kind:
                found[name] = found.get(name, 0) + 1000 * count
                for pool, amount in self.pooled.needs(kind).items():
                    found[pool] = found.get(pool, 0) + amount * count
                return
        for name, chosen in self.sets.items():
            if self._same[kind] in chosen:
                found[name] = found.get(name, 0) + 1000 * count
        if not kind.extended:
            found[DEVICES] = found.get(DEVICES, 0) + 1000 * count


def _different_sets(counts: Sequence[int], size: int) -> int:
    """Return how many disjoint sets of ``size`` devices with different values there are. ``counts``: devices of each
    value.

    So many sets exist if and only if the values have that many devices for them, each value at most one for a set.
    """
    sets = sum(counts) // size
    while sets and sum(min(one, sets) for one in counts) < size * sets:
        sets -= 1
    return sets


def fits(needs: Mapping[str, int], room: Mapping[str, int]) -> bool:
    return all(room.get(name, 0) >= amount for name, amount in needs.items())
