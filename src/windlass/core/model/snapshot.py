"""A Snapshot holds everything that is known at one instant, as frozen types.

It is everything that a plan depends on, the time included. Amounts are whole numbers (``quantities``), held as sorted
pairs, so that equal needs are equal values. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from fractions import Fraction
from operator import attrgetter
from typing import Final, Literal, NoReturn

from .cached import cached_attribute
from .conditions import Condition, Taint, Toleration
from .constraints import NO_RULES, Apart, Rules, Spread, Together
from .lifecycle import IN_FLIGHT, State
from .quantities import ACCELERATORS, DEVICE

Alternatives = tuple[tuple[Condition, ...], ...]
"""Lists of conditions of which one must hold, the preferred first."""

Selector = tuple[tuple[Condition, ...], tuple[Condition, ...], tuple[Toleration, ...], tuple[Alternatives, ...]]
"""Where demand may go: ``where``, ``prefer``, ``tolerates``, and every ``any_of`` that must hold."""


def selector_of(demand: Demand, bundle: Bundle | None = None) -> Selector:
    """Returns where the tasks of a demand may go; a bundle with conditions of its own must meet both."""
    any_of = (demand.any_of,) if demand.any_of else ()
    if bundle is None or not bundle.selective:
        return demand.where, demand.prefer, demand.tolerates, any_of
    return (
        (*demand.where, *bundle.where),
        (*demand.prefer, *bundle.prefer),
        (*demand.tolerates, *bundle.tolerates),
        (*any_of, bundle.any_of) if bundle.any_of else any_of,
    )


def rules_of(demand: Demand, bundle: Bundle | None = None) -> Rules:
    """Returns the constraints of the tasks of a demand; a bundle with constraints of its own must obey both."""
    rules = demand.rules
    if bundle is None or (own := bundle.rules) is NO_RULES:
        return rules
    return rules.plus(own)


Amounts = tuple[tuple[str, int], ...]
"""(resource, amount) pairs, sorted by name."""

Seconds = int | float

Choose = Literal["best-fit", "rank", "cheapest"]


def amounts(values: Mapping[str, int]) -> Amounts:
    """Returns amounts in canonical form."""
    return tuple(sorted(values.items()))


class FrozenDict(dict[str, str]):
    """An immutable mapping, so that a snapshot cannot change."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("labels cannot be changed; make a new group or node with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, str]]]:
        return FrozenDict, (dict(self),)


NO_LABELS: Final = FrozenDict()


class Gang(StrEnum):
    """How the members of a gang must be placed relative to each other."""

    ANY = "any"
    SAME_NODE = "same-node"
    SAME_SLICE = "same-slice"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class LowUtilization:
    """Shrink when less than ``below`` of the group is used; keep ``keep`` slices beyond what the work needs."""

    below: Fraction
    keep: int = 0


@dataclass(frozen=True, slots=True)
class UtilizationTarget:
    """Mark surplus empty slices for release after ``delay``, so that ``percent`` of the ready ones are in use."""

    percent: int
    delay: Seconds
    spare_nodes: int = 0
    resource: str | None = None


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """The rules that may release slices of a group; a group without any never shrinks."""

    idle_timeout: Seconds | None = None
    low_utilization: LowUtilization | None = None
    utilization: UtilizationTarget | None = None
    consolidate: bool = False


@dataclass(frozen=True, slots=True)
class Availability:
    """The known state of the provider's capacity for a group."""

    state: Literal["available", "backoff", "quota_exceeded"] = "available"
    until: Seconds | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """A kind of machine that can be bought."""

    name: str
    resources: Amounts
    """Of one node."""
    max: int
    """Slices."""
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    taints: tuple[Taint, ...] = ()
    hosts: int = 1
    """Nodes per slice."""
    min: int = 0
    spare: int = 0
    rank: int = 100
    price: int | None = None
    """Nanodollars per hour for one slice."""
    preemptible: bool = False
    max_launching: int | None = None
    scale_down: ScaleDown | None = None
    availability: Availability = Availability()
    protected: frozenset[str] = frozenset()
    boot_seconds: Seconds = 300
    """Seconds until a new slice can take work; consolidation counts their cost."""
    frozen: bool = False
    """An operator has frozen it: nothing is launched in it and nothing of it is released, until it is resumed."""
    family: str = ""
    """The family whose limits hold over this group and others together; empty: none."""
    fallback: bool = False
    """Whether it is bought only where no other group of its family is available."""
    max_of_family: bool = False
    """Whether it has no max of its own: ``max`` is that of its family, and changes with it."""

    def __post_init__(self) -> None:
        if type(self.labels) is not FrozenDict:
            object.__setattr__(self, "labels", FrozenDict(self.labels))

    def node_labels(self) -> dict[str, str]:
        """Returns the labels of its nodes; ``preemptible`` is one of them."""
        return {"preemptible": "true" if self.preemptible else "false", **self.labels}


@dataclass(frozen=True, slots=True)
class Node:
    """One host, where work runs."""

    id: str
    used: Amounts = ()
    tasks: int = 0
    idle_since: Seconds | None = None
    labels: Mapping[str, str] = field(default_factory=lambda: NO_LABELS)
    healthy: bool = True
    classes: tuple[tuple[str, int], ...] = ()
    """(class, tasks of it that run here), sorted by class."""

    def __post_init__(self) -> None:
        if type(self.labels) is not FrozenDict:
            object.__setattr__(self, "labels", FrozenDict(self.labels))

    @property
    def busy(self) -> bool:
        return self.tasks > 0 or any(amount for _, amount in self.used)


def idle_since(nodes: Iterable[Node], default: Seconds) -> Seconds:
    """Returns when the last of the nodes became idle; ``default`` for a node without a time."""
    return max([default if node.idle_since is None else node.idle_since for node in nodes], default=default)


_BUSY: Final = attrgetter("busy")
_HEALTHY: Final = attrgetter("healthy")


@dataclass(frozen=True)
class Slice:
    """The unit that is bought and released: one node, or several hosts that start and end together.

    A controller passes the same object again while nothing about a slice changes, so values that follow from it alone
    are computed once.
    """

    id: str
    group: str
    state: State
    since: Seconds | None = None
    marked_until: Seconds | None = None
    nodes: tuple[Node, ...] = ()
    hosts: int = 0
    """Number of its hosts, joined or not; 0: not known.

    Set for a slice whose group is gone; otherwise the group has it.
    """
    price: int = 0
    """Nanodollars per hour; set for a slice whose group is gone, as ``hosts``."""
    final: bool = False
    """Whether its workload cannot undo the cordon, drain or mark. Such a slice takes no demand and is about to end, but
    counts for the limits until it is gone."""

    @property
    def taken_nodes(self) -> int:
        """Returns how many nodes it counts for if its group is gone."""
        return max(self.hosts, len(self.nodes), 1)

    @cached_attribute
    def busy(self) -> bool:
        return any(map(_BUSY, self.nodes))

    @cached_attribute
    def counts_as_busy(self) -> bool:
        """Whether it counts as busy; a slice in flight does not."""
        return self.busy and self.state not in IN_FLIGHT

    @cached_attribute
    def busy_group(self) -> str | None:
        """Its group, if it is ready, busy, healthy and not marked; None otherwise."""
        if self.state != State.READY or self.marked_until is not None or self.final:
            return None
        return self.group if self.busy and self.healthy else None

    @cached_attribute
    def healthy(self) -> bool:
        return all(map(_HEALTHY, self.nodes))

    @cached_attribute
    def tasks(self) -> int:
        return sum([node.tasks for node in self.nodes])

    @cached_attribute
    def offering_nodes(self) -> tuple[Node, ...]:
        """Its nodes that can take work, by id."""
        if self.final:
            return ()
        if self.healthy and len(self.nodes) == 1:
            return self.nodes
        return tuple(sorted([node for node in self.nodes if node.healthy], key=lambda node: node.id))

    @cached_attribute
    def loads(self) -> tuple[Amounts, ...]:
        """The use of each of these nodes."""
        return tuple([node.used for node in self.offering_nodes])

    def idle_since(self, now: Seconds) -> Seconds:
        """Returns the time since which nothing runs on any of its nodes (undefined while one is busy)."""
        return idle_since(self.nodes, now if self.since is None else self.since)


@dataclass(frozen=True)
class Bundle:
    """``count`` equal tasks."""

    needs: Amounts
    count: int = 1
    where: tuple[Condition, ...] = ()
    """This and the following keys hold for this bundle, in addition to those of its demand."""
    prefer: tuple[Condition, ...] = ()
    tolerates: tuple[Toleration, ...] = ()
    any_of: Alternatives = ()
    classes: tuple[str, ...] = ()
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    together: tuple[Together, ...] = ()

    @property
    def selective(self) -> bool:
        """Whether it has conditions of its own."""
        return bool(self.where or self.prefer or self.tolerates or self.any_of)

    @cached_attribute
    def plain(self) -> bool:
        """Whether it has no conditions or constraints of its own."""
        return not self.selective and self.rules is NO_RULES

    @cached_attribute
    def mistake(self) -> str | None:
        """Why no machine could ever run its tasks."""
        for name, amount in self.needs:
            if amount < 0:
                return f"needs a negative amount of {name}"
            if name in ACCELERATORS and amount > DEVICE and amount % DEVICE:
                return f"needs {amount / DEVICE:g} {name}: above 1 it must be a whole number of devices"
        return f"has a negative count ({self.count})" if self.count < 0 else None

    @property
    def rules(self) -> Rules:
        if not (self.classes or self.apart or self.spread or self.together):
            return NO_RULES
        return Rules(self.classes, self.apart, self.spread, self.together)


@dataclass(frozen=True)
class Demand:
    """Work that is not placed yet. Without ``gang`` its tasks are independent; with it, all start or none."""

    id: str
    bundles: tuple[Bundle, ...]
    gang: Gang | None = None
    where: tuple[Condition, ...] = ()
    prefer: tuple[Condition, ...] = ()
    tolerates: tuple[Toleration, ...] = ()
    priority: int = 0
    since: Seconds | None = None
    deadline: Seconds | None = None
    held: str = ""
    """Why no machine would help, as its workload says: nothing is placed or bought for it.

    Empty: a machine would help.
    """
    not_understood: bool = False
    """Whether ``held`` names something about it that the workload does not understand."""
    any_of: Alternatives = ()
    """Lists of conditions of which at least one must hold; an earlier one is preferred to a later one."""
    classes: tuple[str, ...] = ()
    """The classes of its tasks, sorted."""
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    together: tuple[Together, ...] = ()

    @property
    def rules(self) -> Rules:
        """Its constraints, without those of single bundles."""
        if not (self.classes or self.apart or self.spread or self.together):
            return NO_RULES
        return Rules(self.classes, self.apart, self.spread, self.together)

    def like(self, name: str, bundles: tuple[Bundle, ...], since: Seconds | None) -> Demand:
        """Returns this demand with another id, other tasks and another time.

        It costs a quarter of the constructor, because a field without a value of its own has the default of the class.
        """
        made = object.__new__(Demand)
        for key, value in (("id", name), ("bundles", bundles), ("since", since), ("plain", self.plain), *self._given):
            object.__setattr__(made, key, value)
        return made

    @cached_attribute
    def _given(self) -> tuple[tuple[str, object], ...]:
        """The fields that differ from their defaults, without those that ``like`` replaces."""
        own = ("id", "bundles", "since")
        given = [(one.name, getattr(self, one.name), one.default) for one in fields(self) if one.name not in own]
        return tuple((name, value) for name, value, default in given if value != default)

    @cached_attribute
    def plain(self) -> bool:
        """Whether it is no gang and has no conditions or constraints; its bundles may have some."""
        conditions = self.where or self.prefer or self.tolerates or self.any_of
        constraints = self.classes or self.apart or self.spread or self.together
        return not (self.gang or conditions or constraints)

    @cached_attribute
    def count(self) -> int:
        return sum([bundle.count for bundle in self.bundles])

    @property
    def mistake(self) -> str | None:
        """Why no machine could ever run it; a controller ignores such a record and goes on."""
        for bundle in self.bundles:
            if bundle.mistake is not None:
                return bundle.mistake
        return None


@dataclass(frozen=True, slots=True)
class Family:
    """Limits that hold over several groups together, such as all offers for one accelerator."""

    name: str
    max: int
    """Slices of all its groups."""
    min: int = 0
    spare: int = 0
    section: Literal["families", "groups"] = "families"
    """The section of the file that has these limits."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Limits and settings over all groups."""

    max_nodes: int | None = None
    max_hourly_cost: int | None = None
    """Nanodollars per hour."""
    max_launching: int | None = None
    choose: Choose | None = None
    """None: ``cheapest`` if every group has a price, else ``best-fit``."""
    effort: int = 1
    """Number of rounds in which ``cheapest`` searches for a better mix."""
    apart: Fraction | None = None
    """``cheapest``: largest extra cost, as a share, of giving tasks slices of their own."""
    name: str = "windlass"
    """The name with which machines are marked at their provider; no decision depends on it."""
    families: tuple[Family, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that is known at one instant. The order of its parts has no meaning."""

    groups: tuple[Group, ...]
    slices: tuple[Slice, ...] = ()
    demands: tuple[Demand, ...] = ()
    requests: tuple[Demand, ...] = ()
    cluster: Cluster = Cluster()
    now: Seconds = 0

    def strategy(self) -> Choose:
        """Returns the strategy that chooses the group of a new slice."""
        if self.cluster.choose is not None:
            return self.cluster.choose
        priced = self.groups and all(group.price is not None for group in self.groups)
        return "cheapest" if priced else "best-fit"
