"""The cluster and its groups: what a scenario and a configuration write in the same way.

A ``GroupReader`` gives the core's ``Cluster`` and ``Group`` out of plain data. Each file adds what is its own: a
scenario slices and demands, a configuration providers and policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Literal, TypeVar, cast

from windlass.core.model.conditions import EFFECTS, Effect, Taint
from windlass.core.model.quantities import ACCELERATORS, DEVICE, format_quantity, parse_money, parse_quantity
from windlass.core.model.reasons import nearest_name
from windlass.core.model.snapshot import (
    Amounts,
    Availability,
    Choose,
    Cluster,
    Group,
    LowUtilization,
    ScaleDown,
    UtilizationTarget,
    amounts,
)

from .reader import SCENARIO_FILE, DataReader, FileKind, Form, Path, is_name, shown
from .schema import (
    AVAILABILITY,
    CLUSTER,
    CLUSTER_NAME,
    GROUP,
    LOW_UTILIZATION,
    MOST,
    MOST_APART,
    MOST_DEVICES,
    MOST_EFFORT,
    MOST_HOSTS,
    MOST_SLICES,
    SCALE_DOWN,
    STRATEGIES,
    TAINT,
    UTILIZATION,
)

T = TypeVar("T")
PREMIUM = "own_machine_premium"
OLD_PREMIUM = "apart"


class GroupReader(DataReader):
    """Reads the sections ``cluster`` and ``groups``."""

    def __init__(self, kind: FileKind = SCENARIO_FILE) -> None:
        super().__init__(kind)
        self.doubtful: set[str] = set()
        """Groups with mistakes of their own: what refers to them is not measured against them."""

    def seconds(self, at: Path, value: object, default: T) -> int | float | T:
        """A span of time."""
        return self.number(at, value, default, low=0)

    def cluster(self, at: Path, value: object, form: Form = CLUSTER) -> Cluster:
        if value is None:
            return Cluster()
        given = value if isinstance(value, Mapping) else {}
        fields = self.fields(at, self._with_new_names(at, value), form)
        return Cluster(
            max_nodes=self.integer((*at, "max_nodes"), fields.get("max_nodes"), None, high=MOST),
            max_hourly_cost=self.money((*at, "max_hourly_cost"), fields.get("max_hourly_cost")),
            max_launching=self.integer((*at, "max_launching"), fields.get("max_launching"), None, high=MOST),
            choose=cast("Choose | None", self.choice((*at, "choose"), fields.get("choose"), STRATEGIES, None)),
            effort=self.integer((*at, "effort"), fields.get("effort"), 1, low=1, high=MOST_EFFORT),
            apart=self._premium((*at, OLD_PREMIUM if OLD_PREMIUM in given else PREMIUM), fields.get(PREMIUM)),
            name=self._cluster_name((*at, "name"), fields.get("name")),
        )

    def _cluster_name(self, at: Path, value: object) -> str:
        if value is None:
            return Cluster().name
        if isinstance(value, str) and CLUSTER_NAME.fullmatch(value):
            return value
        self.wrong(
            at,
            "must be up to 40 lower-case letters, digits and dashes, with a letter first and no dash at the end, "
            f"is {shown(value)}",
        )
        return Cluster().name

    def _with_new_names(self, at: Path, value: object) -> object:
        """The same with today's names for keys that were renamed."""
        if not isinstance(value, Mapping) or OLD_PREMIUM not in value:
            return value
        if PREMIUM in value:
            self.wrong((*at, OLD_PREMIUM), f"is the old name of {PREMIUM}; keep one of them")
        return {PREMIUM if key == OLD_PREMIUM else key: one for key, one in value.items() if key != PREMIUM} | (
            {PREMIUM: value[PREMIUM]} if PREMIUM in value else {}
        )

    def _premium(self, at: Path, value: object) -> Fraction | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MOST_APART:
            self.wrong(at, f"must be a share from 0 to {MOST_APART}, such as 0.4, is {shown(value)}")
            return None
        return Fraction(str(value))

    def groups(self, named: object, cluster: Cluster, form: Form = GROUP) -> dict[str, Group]:
        """The groups by name; those with mistakes of their own are remembered as ``doubtful``."""
        found: dict[str, Group] = {}
        if named is None:
            return found
        for name, value in self.mapping(("groups",), named, "a mapping from names to groups").items():
            before = len(self.mistakes)
            if not is_name(name):
                self.wrong(("groups",), f"has a group named {shown(name)}; a name must be visible text in one line")
            found[name] = self.group(("groups", name), name, value, form)
            if cluster.choose == "cheapest" and isinstance(value, Mapping) and value.get("price") is None:
                self.wrong(("groups", name, "price"), "is required because cluster.choose is cheapest, and is missing")
            if len(self.mistakes) > before:
                self.doubtful.add(name)
        return found

    def group(self, at: Path, name: str, value: object, form: Form = GROUP) -> Group:
        fields = self.fields(at, value, form)
        resources = self._resources((*at, "resources"), fields.get("resources"))
        least = self.integer((*at, "min"), fields.get("min"), 0, high=MOST_SLICES)
        most = self.integer((*at, "max"), fields.get("max"), None, high=MOST_SLICES)
        if most is not None and most < least:
            self.wrong((*at, "max"), f"must be at least min ({least}), is {most}")
        protected = self.items((*at, "protected"), fields.get("protected"), "slice ids")
        return Group(
            name=name,
            resources=resources,
            max=0 if most is None else most,
            labels=self.labels((*at, "labels"), fields.get("labels")),
            taints=tuple(
                self.taint((*at, "taints", index), one)
                for index, one in enumerate(self.items((*at, "taints"), fields.get("taints"), "taints"))
            ),
            hosts=self.integer((*at, "hosts"), fields.get("hosts"), 1, low=1, high=MOST_HOSTS),
            min=least,
            spare=self.integer((*at, "spare"), fields.get("spare"), 0, high=MOST_SLICES),
            rank=self.integer((*at, "rank"), fields.get("rank"), 100, high=MOST),
            price=self.money((*at, "price"), fields.get("price")),
            preemptible=self.boolean((*at, "preemptible"), fields.get("preemptible"), False),
            max_launching=self.integer((*at, "max_launching"), fields.get("max_launching"), None, high=MOST),
            scale_down=self.scale_down((*at, "scale_down"), fields.get("scale_down"), dict(resources)),
            availability=self.availability((*at, "availability"), fields.get("availability"))
            if "availability" in form.keys
            else Availability(),
            protected=frozenset(self.name((*at, "protected", index), one) for index, one in enumerate(protected)),
            boot_seconds=self.seconds((*at, "boot_seconds"), fields.get("boot_seconds"), 300),
            frozen=self.boolean((*at, "frozen"), fields.get("frozen"), False),
        )

    def _resources(self, at: Path, value: object) -> Amounts:
        if value is None:
            return ()
        found = self.plain_amounts(at, value)
        for name, amount in found:
            if name in ACCELERATORS and amount % DEVICE:
                self.wrong((*at, name), f"must be a whole number of devices, is {format_quantity(amount, name)}")
            elif name in ACCELERATORS and amount > MOST_DEVICES * DEVICE:
                self.wrong((*at, name), f"must be at most {MOST_DEVICES} devices, is {format_quantity(amount, name)}")
        return found

    def scale_down(self, at: Path, value: object, resources: dict[str, int]) -> ScaleDown | None:
        if value is None:
            return None
        fields = self.fields(at, value, SCALE_DOWN)
        rules = ScaleDown(
            idle_timeout=self.seconds((*at, "idle_timeout"), fields.get("idle_timeout"), None),
            low_utilization=self.low_utilization((*at, "low_utilization"), fields.get("low_utilization")),
            utilization=self.utilization((*at, "utilization"), fields.get("utilization"), resources),
            consolidate=self.boolean((*at, "consolidate"), fields.get("consolidate"), False),
        )
        return None if rules == ScaleDown() else rules

    def low_utilization(self, at: Path, value: object) -> LowUtilization | None:
        if value is None:
            return None
        fields = self.fields(at, value, LOW_UTILIZATION)
        below = fields.get("below")
        if below is not None and (isinstance(below, bool) or not isinstance(below, int | float) or not 0 < below <= 1):
            self.wrong((*at, "below"), f"must be a share above 0 and up to 1, such as 0.3, is {shown(below)}")
            below = None
        return LowUtilization(
            below=Fraction(1) if below is None else Fraction(str(below)),
            keep=self.integer((*at, "keep"), fields.get("keep"), 0, high=MOST_SLICES),
        )

    def utilization(self, at: Path, value: object, resources: dict[str, int]) -> UtilizationTarget | None:
        if value is None:
            return None
        fields = self.fields(at, value, UTILIZATION)
        resource = fields.get("resource")
        if resource is not None:
            resource = self.name((*at, "resource"), resource)
            if resource and resource not in resources:
                meant = nearest_name(resource[:80], resources)
                hint = f"did you mean {meant}?" if meant else f"it has {', '.join(resources) or 'none'}"
                self.wrong((*at, "resource"), f"must be a resource of the group, is {shown(resource)}; {hint}")
        return UtilizationTarget(
            percent=self.integer((*at, "percent"), fields.get("percent"), 100, low=1, high=100),
            delay=self.seconds((*at, "delay"), fields.get("delay"), 0),
            spare_nodes=self.integer((*at, "spare_nodes"), fields.get("spare_nodes"), 0, high=MOST_SLICES),
            resource=resource,
        )

    def availability(self, at: Path, value: object) -> Availability:
        if value is None:
            return Availability()
        fields = self.fields(at, value, AVAILABILITY)
        options = ("available", "backoff", "quota_exceeded")
        state = self.choice((*at, "state"), fields.get("state"), options, "available")
        until = self.number((*at, "until"), fields.get("until"), None)
        if until is not None and fields.get("state") == "available":
            self.wrong((*at, "until"), "has no effect with state available; leave it out, or say what it waits for")
        return Availability(
            state=cast('Literal["available", "backoff", "quota_exceeded"]', state),
            until=until,
            why=self.text((*at, "why"), fields.get("why")),
        )

    def taint(self, at: Path, value: object) -> Taint:
        fields = self.fields(at, value, TAINT)
        return Taint(
            key=self.name((*at, "key"), fields["key"]) if fields.get("key") is not None else "",
            value=self.text((*at, "value"), fields.get("value")),
            effect=cast("Effect", self.choice((*at, "effect"), fields.get("effect"), EFFECTS, "NoSchedule")),
        )

    def plain_amounts(self, at: Path, value: object) -> Amounts:
        """Amounts by resource; what is zero is not there."""
        found = {}
        for name, one in self.mapping(at, value, "a mapping of resources, such as {cpu: 4, gpu: 1}").items():
            if not is_name(name):
                self.wrong(at, f"has a resource named {shown(name)}; a name must be visible text in one line")
                continue
            wanted = "a number such as 4, 500m or 16Gi"
            amount = self.parsed((*at, name), one, partial(parse_quantity, resource=name), wanted)
            if amount:
                found[name] = amount
        return amounts(found)

    def money(self, at: Path, value: object) -> int | None:
        return None if value is None else self.parsed(at, value, parse_money, "dollars per hour such as 1.25")
