"""This module converts Ray's resources and label selectors, and makes the id of a shape. Pure.

Ray counts in ten-thousandths, Windlass in thousandths. Needs are rounded down, so that three thirds fit into one, but
never to zero. The resources of a node are rounded down, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from windlass.core.model.conditions import Condition
from windlass.core.model.quantities import BYTES
from windlass.core.model.snapshot import Amounts, amounts

from . import wire_pb2 as wire

NAMES: Final = {"CPU": "cpu", "GPU": "gpu", "TPU": "tpu", "memory": "memory"}
RAY_NAMES: Final = {ours: theirs for theirs, ours in NAMES.items()}
IMPLICIT: Final = "__internal_implicit_resource_"
"""Every node has 1 of each such resource: Serve's ``max_replicas_per_node``."""
NODE: Final = "node:"
"""Prefix of a resource that only the node of that name has; it cannot be bought."""
HEAD: Final = "node:__internal_head__"
ACCELERATOR: Final = "accelerator_type:"
ACCELERATOR_LABEL: Final = "ray.io/accelerator-type"
_SYSTEM: Final = frozenset({"object_store_memory"})
_IN_GROUP: Final = re.compile(r"_group_(\d+_)?[0-9a-f]{36}$")
"""The name of a resource inside a placement group that has been placed."""
_OPERATORS: Final = {1: "in", 2: "not in"}

Selector = tuple[Condition, ...]
"""Conditions that must all hold."""


def is_in_group(resources: Iterable[str]) -> bool:
    """Return whether a task waits inside a placement group that has been placed: it needs no machine."""
    return any(_IN_GROUP.search(name) or name == "bundle" for name in resources)


def ours(name: str) -> str:
    return NAMES.get(name, name)


def amount(name: str, value: float) -> int:
    """Convert ``value`` of Ray's resource ``name`` to our unit, rounded down; a positive value gives at least 1."""
    if value <= 0:
        return 0
    exact = value if ours(name) in BYTES else 1000 * value
    return max(1, int(exact + 1e-6))  # 0.29 * 1000 is 289.99… as a float


def needs_of(resources: Mapping[str, float]) -> tuple[Amounts, Selector]:
    """Return what a task needs, and the conditions that follow from its resources."""
    needs, where = dict[str, int](), list[Condition]()
    for name, value in resources.items():
        if name.startswith(ACCELERATOR):
            where.append(Condition(ACCELERATOR_LABEL, "in", (name.removeprefix(ACCELERATOR),)))
        elif not name.startswith(IMPLICIT) and (exact := amount(name, value)):
            needs[ours(name)] = exact
    return amounts(needs), tuple(sorted(where, key=str))


def per_node(resources: Mapping[str, float]) -> dict[str, int]:
    """Return how many such tasks may run on one node, by implicit resource."""
    return {
        name: max(1, 1000 // amount(name, value))
        for name, value in resources.items()
        if name.startswith(IMPLICIT) and value > 0
    }


def counted(resources: Mapping[str, float]) -> dict[str, int]:
    """Convert the resources of a node, without those that only Ray itself uses."""
    return {
        ours(name): amount(name, value)
        for name, value in resources.items()
        if not (name.startswith((NODE, IMPLICIT)) or name in _SYSTEM or is_in_group((name,)))
    }


def selectors_of(selectors: Iterable[wire.LabelSelector]) -> tuple[Selector, ...]:
    """Return the alternatives in order of preference; none: anywhere. An empty alternative matches all nodes."""
    found = tuple(dict.fromkeys(tuple(_conditions(selector)) for selector in selectors))
    return () if found == ((),) else found


def _conditions(selector: wire.LabelSelector) -> list[Condition]:
    found = [
        Condition(one.label_key, _OPERATORS[one.operator], tuple(sorted(one.label_values)))  # type: ignore[arg-type]
        for one in selector.label_constraints
        if one.operator in _OPERATORS
    ]
    return sorted(found, key=str)


def shape_id(resources: Mapping[str, float], selectors: Sequence[Selector]) -> str:
    """Return the id of a demand, which ``windlass why`` accepts: ``CPU=1,widget=2@zone in (z1)``."""
    needs = ",".join(f"{name}={_number(value)}" for name, value in sorted(resources.items()) if value > 0)
    where = " or ".join(" and ".join(map(str, selector)) or "anywhere" for selector in selectors)
    return f"{needs or 'nothing'}@{where}" if where else needs or "nothing"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.4f}".rstrip("0")
