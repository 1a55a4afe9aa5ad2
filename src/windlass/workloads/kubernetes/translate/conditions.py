"""This module translates node selectors, affinities and tolerations into the planner's conditions.

Kubernetes ORs the terms of a node affinity and ANDs the expressions of a term. The planner has ``where`` for what must
hold and ``any_of`` for alternatives. In both, a missing label meets NotIn and DoesNotExist only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from windlass.core.model.conditions import EFFECTS, Condition, Effect, Taint, Toleration
from windlass.kubernetes_api.names import NODE_NAME
from windlass.kubernetes_api.objects import (
    NodeSelector,
    NodeSelectorTerm,
    NodeTaint,
    PodToleration,
    PreferredTerm,
    Requirement,
)


class NeverMatches(Exception):
    """A selector that no node can match; the text says why."""


def conditions_of(term: NodeSelectorTerm) -> tuple[Condition, ...]:
    """Return the conditions of one term; ``NeverMatches`` for an empty one, which selects no node."""
    found = [_condition(one, one.key) for one in term.match_expressions or ()]
    found += [_condition(one, NODE_NAME) for one in term.match_fields or () if one.key == NODE_NAME]
    if not found:
        raise NeverMatches("an empty term of a node affinity selects no node")
    return tuple(found)


def _condition(one: Requirement, key: str) -> Condition:
    values = one.values or ()
    match one.operator:
        case "In":
            return Condition(key, "==", values) if len(values) == 1 else Condition(key, "in", tuple(sorted(values)))
        case "NotIn":
            return Condition(key, "not in", tuple(sorted(values)))
        case "Exists":
            return Condition(key, "exists", ())
        case "DoesNotExist":
            return Condition(key, "absent", ())
        case "Gt" | "Lt":
            try:
                limit = int(values[0])
            except (ValueError, IndexError):
                raise NeverMatches(f"{one.operator} of {key} needs one whole number, has {list(values)}") from None
            return Condition(key, ">" if one.operator == "Gt" else "<", (str(limit),))
        case _:
            raise NeverMatches(f"the operator {one.operator!r} is not known")


def alternatives_of(selector: NodeSelector | None) -> tuple[tuple[Condition, ...], ...]:
    """Return the alternatives of a required node affinity; () if there is none.

    ``NeverMatches`` if no term of it can be met.
    """
    if selector is None:
        return ()
    found, wrong = [], ""
    for term in selector.node_selector_terms or ():
        try:
            found.append(conditions_of(term))
        except NeverMatches as error:
            wrong = str(error)
    if not found:
        raise NeverMatches(wrong or "a node affinity without terms selects no node")
    return tuple(dict.fromkeys(found))


def preferences_of(terms: Iterable[PreferredTerm]) -> tuple[Condition, ...]:
    """Return the preferences, by falling weight. The planner counts expressions one by one, also those of the same
    term.
    """
    found: list[Condition] = []
    for term in sorted(terms, key=lambda one: -one.weight):
        if term.preference is not None:
            try:
                found += conditions_of(term.preference)
            except NeverMatches:
                continue
    return tuple(dict.fromkeys(found))


def tolerations_of(tolerations: Iterable[PodToleration]) -> tuple[Toleration, ...]:
    """Return tolerations in the planner's model."""
    found = [
        Toleration(one.key, "Exists" if one.operator == "Exists" else "Equal", one.value, _effect(one.effect))
        for one in tolerations
        if one.operator in ("", "Equal", "Exists") and (not one.effect or one.effect in EFFECTS)
    ]
    return tuple(dict.fromkeys(found))


def _effect(text: str) -> Effect | Literal[""]:
    return text if text in EFFECTS else ""


def taints_of(taints: Iterable[NodeTaint] | None) -> tuple[Taint, ...]:
    """Return taints in the planner's model."""
    return tuple(Taint(one.key, one.value, one.effect) for one in taints or () if one.effect in EFFECTS)


def tolerated(taint: NodeTaint, tolerations: Iterable[PodToleration]) -> bool:
    """Whether one of the tolerations covers a taint."""
    for one in tolerations:
        if one.effect and one.effect != taint.effect:
            continue
        if one.key and one.key != taint.key:
            continue
        if not one.key and one.operator != "Exists":
            continue
        if one.operator == "Exists" or one.value == taint.value:
            return True
    return False
