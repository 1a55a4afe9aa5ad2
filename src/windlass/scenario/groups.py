"""This module reads the cluster and its groups, which a scenario and a configuration write in the same way.

A ``GroupReader`` returns the core's ``Cluster`` and ``Group`` from plain data. Each kind of file adds its own sections:
a scenario slices and demands, a configuration providers and policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any, TypeVar

from windlass.core.model.conditions import Taint
from windlass.core.model.quantities import ACCELERATORS, DEVICE, format_quantity, parse_money, parse_quantity
from windlass.core.model.reasons import nearest_name
from windlass.core.model.snapshot import (
    Amounts,
    Availability,
    Cluster,
    Family,
    Group,
    LowUtilization,
    ScaleDown,
    UtilizationTarget,
    amounts,
)

from .declarations import WRONG, Form
from .reader import SCENARIO_FILE, DataReader, FileKind, Path, is_name, shown
from .schema import (
    AVAILABILITY,
    CLUSTER,
    CLUSTER_NAME,
    FAMILY,
    GROUP,
    LOW_UTILIZATION,
    MOST,
    MOST_DEVICES,
    MOST_SLICES,
    SCALE_DOWN,
    TAINT,
    UTILIZATION,
)

T = TypeVar("T")


class GroupReader(DataReader):
    """Reads the sections ``cluster`` and ``groups``."""

    def __init__(self, kind: FileKind = SCENARIO_FILE) -> None:
        super().__init__(kind)
        self.doubtful: set[str] = set()
        """Groups with mistakes of their own: slices and demands are not checked against them."""
        self.known_families: dict[str, Family] = {}
        self._ranks: dict[str, int] = {}
        """The default rank of the groups of each family."""

    def seconds(self, at: Path, value: object, default: T) -> int | float | T:
        """Reads a duration."""
        return self.number(at, value, default, low=0)

    def cluster(self, at: Path, value: object, form: Form = CLUSTER) -> Cluster:
        if value is None:
            return Cluster()
        return Cluster(**self.values(at, self.fields(at, value, form), CLUSTER))

    def cluster_name(self, at: Path, value: object) -> str:
        if isinstance(value, str) and CLUSTER_NAME.fullmatch(value):
            return value
        self.wrong(
            at,
            "must be up to 40 lower-case letters, digits and dashes, with a letter first and no dash at the end, "
            f"is {shown(value)}",
        )
        return Cluster().name

    def families(self, named: object) -> tuple[Family, ...]:
        """Reads the families; groups that are read after them may belong to one."""
        if named is None:
            return ()
        for name, value in self.mapping(("families",), named, "a mapping from names to families").items():
            at = ("families", name)
            if not is_name(name):
                self.wrong(("families",), f"has a family named {shown(name)}; a name must be visible text in one line")
            fields = self.fields(at, value, FAMILY)
            family = Family(**{"name": name, "max": MOST_SLICES, **self.values(at, fields, FAMILY)})
            if family.max < family.min:
                self.wrong((*at, "max"), f"must be at least min ({family.min}), is {family.max}")
            self.known_families[name] = family
            self._ranks[name] = self.integer((*at, "rank"), fields.get("rank"), 100, high=MOST)
        return tuple(self.known_families.values())

    def family_name(self, at: Path, value: object) -> str:
        """Reads the family of a group, which must be one of the file."""
        name = self.name(at, value)
        if name and name not in self.known_families:
            known = f"there are {', '.join(self.known_families)}" if self.known_families else "there are none"
            self.wrong(at, f"must be a name under families, is {shown(name)}; {known}")
            return ""
        return name

    def groups(self, named: object, cluster: Cluster, form: Form = GROUP) -> dict[str, Group]:
        """Reads the groups by name; those with mistakes of their own are recorded as ``doubtful``."""
        found: dict[str, Group] = {}
        if named is None:
            return found
        for name, value in self.mapping(("groups",), named, "a mapping from names to groups").items():
            before = len(self.mistakes)
            if not is_name(name):
                self.wrong(("groups",), f"has a group named {shown(name)}; a name must be visible text in one line")
            found[name] = self.group(("groups", name), name, value, form)
            if cluster.choose == "cheapest" and isinstance(value, Mapping) and not self.has_price(value):
                self.wrong(("groups", name, "price"), "is required because cluster.choose is cheapest, and is missing")
            if len(self.mistakes) > before:
                self.doubtful.add(name)
        return found

    def has_price(self, value: Mapping[str, Any]) -> bool:
        """Whether a group has a price."""
        return value.get("price") is not None

    def group(self, at: Path, name: str, value: object, form: Form = GROUP) -> Group:
        fields = self.fields(at, value, form)
        found = self.values(at, fields, GROUP)
        if family := self.known_families.get(found.get("family", "")):
            own = "max" in found
            found = {"max": family.max, "rank": self._ranks.get(family.name, 100), **found, "max_of_family": not own}
        elif isinstance(value, Mapping) and fields.get("max") is None and fields.get("family") is None:
            self.wrong((*at, "max"), f"is required in {form.noun}, and is missing")
        if found.get("fallback") and fields.get("family") is None:
            self.wrong(
                (*at, "fallback"), "needs a family: a fallback is bought where no other group of it is available"
            )
        group = Group(**{"name": name, "resources": (), "max": MOST_SLICES, **found})
        if group.max < group.min:
            self.wrong((*at, "max"), f"must be at least min ({group.min}), is {group.max}")
        if group.scale_down is not None and group.scale_down.utilization is not None:
            self._check_counted(
                (*at, "scale_down", "utilization", "resource"), group.scale_down.utilization.resource, group.resources
            )
        return group

    def resources(self, at: Path, value: object) -> Amounts:
        """Reads the resources of a node of a group."""
        found = self.plain_amounts(at, value)
        for name, amount in found:
            if name in ACCELERATORS and amount % DEVICE:
                self.wrong((*at, name), f"must be a whole number of devices, is {format_quantity(amount, name)}")
            elif name in ACCELERATORS and amount > MOST_DEVICES * DEVICE:
                self.wrong((*at, name), f"must be at most {MOST_DEVICES} devices, is {format_quantity(amount, name)}")
        return found

    def slice_ids(self, at: Path, value: object) -> frozenset[str]:
        return frozenset(self.name((*at, index), one) for index, one in enumerate(self.items(at, value, "slice ids")))

    def scale_down(self, at: Path, value: object) -> ScaleDown | None:
        rules = ScaleDown(**self.values(at, self.fields(at, value, SCALE_DOWN), SCALE_DOWN))
        return None if rules == ScaleDown() else rules

    def low_utilization(self, at: Path, value: object) -> LowUtilization:
        found = self.values(at, self.fields(at, value, LOW_UTILIZATION), LOW_UTILIZATION)
        return LowUtilization(**{"below": Fraction(1), **found})

    def utilization(self, at: Path, value: object) -> UtilizationTarget:
        found = self.values(at, self.fields(at, value, UTILIZATION), UTILIZATION)
        return UtilizationTarget(**{"percent": 100, "delay": 0, **found})

    def _check_counted(self, at: Path, resource: str | None, resources: Amounts) -> None:
        has = dict(resources)
        if resource and resource not in has:
            meant = nearest_name(resource[:80], has)
            hint = f"did you mean {meant}?" if meant else f"it has {', '.join(has) or 'none'}"
            self.wrong(at, f"must be a resource of the group, is {shown(resource)}; {hint}")

    def availability(self, at: Path, value: object) -> Availability:
        fields = self.fields(at, value, AVAILABILITY)
        found = Availability(**self.values(at, fields, AVAILABILITY))
        if found.until is not None and fields.get("state") == "available":
            self.wrong((*at, "until"), "has no effect with state available; leave it out, or say what it waits for")
        return found

    def taints(self, at: Path, value: object) -> tuple[Taint, ...]:
        return tuple(self._taint((*at, index), one) for index, one in enumerate(self.items(at, value, "taints")))

    def _taint(self, at: Path, value: object) -> Taint:
        return Taint(**{"key": "", **self.values(at, self.fields(at, value, TAINT), TAINT)})

    def plain_amounts(self, at: Path, value: object) -> Amounts:
        """Reads amounts by resource; an amount of zero is left out."""
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

    def money(self, at: Path, value: object) -> object:
        found = self.parsed(at, value, parse_money, "dollars per hour such as 1.25")
        return WRONG if found is None else found
