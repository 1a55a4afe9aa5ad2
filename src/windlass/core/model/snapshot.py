"""A Snapshot holds everything that is known at one instant, as frozen types.

A ``Snapshot`` is everything a plan depends on, the time included. Amounts are whole numbers (``quantities``), held as
sorted pairs, so that equal needs are equal values. Nothing here computes a decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
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
    """Where the tasks of a demand may go; those of a bundle with conditions of its own by both."""
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
    """The constraints of the tasks of a demand; those of a bundle with constraints of its own, both."""
    rules = demand.rules
    return rules if bundle is None else rules.plus(bundle.rules)


Amounts = tuple[tuple[str, int], ...]
"""(resource, amount) pairs, sorted by name."""

Seconds = int | float

Choose = Literal["best-fit", "rank", "cheapest"]


def amounts(values: Mapping[str, int]) -> Amounts:
    """Amounts in their one canonical form."""
    return tuple(sorted(values.items()))


class FrozenDict(dict[str, str]):
    """A mapping that cannot be changed: a snapshot stays what it was when it was made."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("labels cannot be changed; make a new group or node with dataclasses.replace")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, str]]]:
        return FrozenDict, (dict(self),)


NO_LABELS: Final = FrozenDict()


class Gang(StrEnum):
    """How the members of a gang must lie to each other."""

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
    """Which rules may release slices of a group; a group without any never shrinks."""

    idle_timeout: Seconds | None = None
    low_utilization: LowUtilization | None = None
    utilization: UtilizationTarget | None = None
    consolidate: bool = False


@dataclass(frozen=True, slots=True)
class Availability:
    """What is believed about the provider's stock of a group."""

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
    """What a new slice costs before it is of use; consolidation counts it."""
    frozen: bool = False
    """By an operator's order nothing is launched in it and nothing of it is released, until it is resumed."""
    family: str = ""
    """The family whose limits hold over this group and others together; empty: none."""
    fallback: bool = False
    """Whether it is bought only where no other group of its family can be had."""

    def __post_init__(self) -> None:
        if type(self.labels) is not FrozenDict:
            object.__setattr__(self, "labels", FrozenDict(self.labels))

    def node_labels(self) -> dict[str, str]:
        """What its nodes will carry; ``preemptible`` is a label like any other."""
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
    """The idle clock: when the last of the nodes became idle; ``default`` for a node that does not say."""
    return max([default if node.idle_since is None else node.idle_since for node in nodes], default=default)


_BUSY: Final = attrgetter("busy")
_HEALTHY: Final = attrgetter("healthy")


@dataclass(frozen=True)
class Slice:
    """The unit that is bought and released: one node, or several hosts that live and die together. A loop hands in the
    same slice again while nothing about it changes, so what follows from it alone is worked out once."""

    id: str
    group: str
    state: State
    since: Seconds | None = None
    marked_until: Seconds | None = None
    nodes: tuple[Node, ...] = ()
    hosts: int = 0
    """How many it has, joined or not; 0: not known. Set for a slice whose group is gone; for the others the group has
    it."""
    price: int = 0
    """Nanodollars per hour, likewise."""
    final: bool = False
    """Its workload cannot take the cordon, drain or mark back: it offers nothing and is about to end, but counts for
    the limits until it is."""

    @property
    def taken_nodes(self) -> int:
        """How many nodes it counts for if its group is gone."""
        return max(self.hosts, len(self.nodes), 1)

    @cached_attribute
    def busy(self) -> bool:
        return any(map(_BUSY, self.nodes))

    @cached_attribute
    def busy_count(self) -> bool:
        """Whether it counts as busy; a slice in flight does not."""
        return self.busy and self.state not in IN_FLIGHT

    @cached_attribute
    def busy_group(self) -> str | None:
        """Its group, if it is plainly busy: ready, with work, healthy, not marked. None otherwise."""
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
        """What each of these uses."""
        return tuple([node.used for node in self.offering_nodes])

    def idle_since(self, now: Seconds) -> Seconds:
        """Since when nothing runs on any of its nodes (meaningless while one is busy)."""
        return idle_since(self.nodes, now if self.since is None else self.since)


@dataclass(frozen=True, slots=True)
class Bundle:
    """``count`` equal tasks."""

    needs: Amounts
    count: int = 1
    where: tuple[Condition, ...] = ()
    """These and the following hold for this bundle, beside those of its demand."""
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

    @property
    def rules(self) -> Rules:
        if not (self.classes or self.apart or self.spread or self.together):
            return NO_RULES
        return Rules(self.classes, self.apart, self.spread, self.together)


@dataclass(frozen=True)
class Demand:
    """Work with no place to run yet. Without ``gang`` its tasks are independent; with it, all start or none."""

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
    """Why no machine would help, according to its workload: nothing is placed or bought for it. Empty: one would."""
    not_understood: bool = False
    """Whether ``held`` says what the workload does not understand about it."""
    any_of: Alternatives = ()
    """At least one of these lists of conditions holds; an earlier one is preferred to a later one."""
    classes: tuple[str, ...] = ()
    """What its tasks count as, sorted."""
    apart: tuple[Apart, ...] = ()
    spread: tuple[Spread, ...] = ()
    together: tuple[Together, ...] = ()

    @property
    def rules(self) -> Rules:
        """Its constraints, without those of single bundles."""
        if not (self.classes or self.apart or self.spread or self.together):
            return NO_RULES
        return Rules(self.classes, self.apart, self.spread, self.together)

    @cached_attribute
    def count(self) -> int:
        return sum([bundle.count for bundle in self.bundles])

    @cached_attribute
    def mistake(self) -> str | None:
        """Why no machine could ever run it; a loop that reads such a record goes on without it."""
        for bundle in self.bundles:
            for name, amount in bundle.needs:
                if amount < 0:
                    return f"needs a negative amount of {name}"
                if name in ACCELERATORS and amount > DEVICE and amount % DEVICE:
                    return f"needs {amount / DEVICE:g} {name}: above 1 it must be a whole number of devices"
            if bundle.count < 0:
                return f"has a negative count ({bundle.count})"
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
    """The section of the file where these limits stand."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Limits and ways that hold over all groups."""

    max_nodes: int | None = None
    max_hourly_cost: int | None = None
    """Nanodollars per hour."""
    max_launching: int | None = None
    choose: Choose | None = None
    """None: ``cheapest`` if every group has a price, else ``best-fit``."""
    effort: int = 1
    """How many rounds of work ``cheapest`` puts into a better mix."""
    apart: Fraction | None = None
    """``cheapest``: the share that slices of their own may cost more for tasks that could share one."""
    name: str = "windlass"
    """What machines are marked with at their provider; it decides nothing."""
    families: tuple[Family, ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that is known at one instant. The order of its parts means nothing."""

    groups: tuple[Group, ...]
    slices: tuple[Slice, ...] = ()
    demands: tuple[Demand, ...] = ()
    requests: tuple[Demand, ...] = ()
    cluster: Cluster = Cluster()
    now: Seconds = 0

    def strategy(self) -> Choose:
        """How a group is chosen for a new slice."""
        if self.cluster.choose is not None:
            return self.cluster.choose
        priced = self.groups and all(group.price is not None for group in self.groups)
        return "cheapest" if priced else "best-fit"
