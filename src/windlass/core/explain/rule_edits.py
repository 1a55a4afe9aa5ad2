"""Rule edits change a condition or a constraint of a demand, or the same one in all of its bundles that have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from windlass.core.model.conditions import Condition
from windlass.core.model.reasons import nearest_names
from windlass.core.model.snapshot import Bundle, Demand

from .edits import Edit, on_demand, written_apart, written_bundle, written_conditions, written_spread

_Key = Literal["where", "any_of", "apart", "spread"]

_WRITTEN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "where": written_conditions,
    "any_of": lambda alternatives: list(map(written_conditions, alternatives)),
    "apart": written_apart,
    "spread": written_spread,
}
"""How the value of a key is written in a scenario file."""

_NUMBER: Final = {"apart": "at_most", "spread": "max_skew"}
"""The number of a constraint that limits how many tasks share a domain."""

Raised = tuple[int, Callable[[int], Edit]]
"""The number of a constraint as it is, and the edit that sets another one."""


def mended_conditions(demand: Demand, labels: Iterable[Mapping[str, str]]) -> Iterator[Edit]:
    """Returns conditions with a value that no group has, and the value that was probably meant.

    ``labels``: those of each group.
    """
    everywhere = list(labels)
    for key, in_bundles, condition in _conditions(demand):
        known = {here[condition.key] for here in everywhere if condition.key in here}
        if condition.op not in ("==", "in") or known & set(condition.values):
            continue
        for meant in dict.fromkeys(name for value in condition.values for name in nearest_names(value, known)):
            mended = Condition(condition.key, "==", (meant,))
            change = f"{condition} -> {mended}"
            yield _edit(demand, key, in_bundles, change, _over_conditions(key, condition, (mended,)))


def dropped_conditions(demand: Demand) -> Iterator[Edit]:
    for key, in_bundles, condition in _conditions(demand):
        parts = demand.bundles if in_bundles else (demand,)
        if key == "any_of" and any(one == (condition,) for part in parts for one in part.any_of):
            continue  # a list without conditions matches all, so the others would mean nothing
        change = f"without the condition {condition}"
        yield _edit(demand, key, in_bundles, change, _over_conditions(key, condition, ()))
    if len(demand.where) > 1:
        yield _edit(demand, "where", False, "without any condition", lambda _: ())
    for in_bundles in (False, True):
        parts = demand.bundles if in_bundles else (demand,)
        if any(part.any_of for part in parts):
            yield _edit(demand, "any_of", in_bundles, "without any_of", lambda _: ())


def raised_numbers(demand: Demand, key: Literal["apart", "spread"]) -> Iterator[Raised]:
    """Returns the number of each constraint with this key, and the edit that sets another one."""
    name = _NUMBER[key]
    for in_bundles, rule in _rules(demand, key):

        def edit(value: int, rule: Any = rule, in_bundles: bool = in_bundles) -> Edit:
            of = f"{rule.class_} by {rule.by}" if key == "apart" else f"{rule.of} over {rule.over}"
            raised = replace(rule, **{name: value})
            change = f"{name} of {of} {getattr(rule, name)} -> {value}"
            return _edit(demand, key, in_bundles, change, lambda some: _exchanged(some, rule, (raised,)))

        yield getattr(rule, name), edit


def _conditions(demand: Demand) -> Iterator[tuple[_Key, bool, Condition]]:
    """Returns each condition, with its key and whether bundles have it."""
    for in_bundles, parts in _parts(demand):
        for condition in dict.fromkeys(one for part in parts for one in part.where):
            yield "where", in_bundles, condition
        for condition in dict.fromkeys(one for part in parts for some in part.any_of for one in some):
            yield "any_of", in_bundles, condition


def _rules(demand: Demand, key: _Key) -> Iterator[tuple[bool, Any]]:
    for in_bundles, parts in _parts(demand):
        yield from ((in_bundles, rule) for rule in dict.fromkeys(one for part in parts for one in getattr(part, key)))


def _parts(demand: Demand) -> Iterator[tuple[bool, tuple[Demand | Bundle, ...]]]:
    yield False, (demand,)
    yield True, demand.bundles


def _over_conditions(key: _Key, old: Condition, new: tuple[Condition, ...]) -> Callable[[Any], Any]:
    """Returns a function that replaces a condition in the value of ``where`` or ``any_of``."""
    if key == "where":
        return lambda some: _exchanged(some, old, new)
    return lambda alternatives: tuple(_exchanged(some, old, new) for some in alternatives)


def _exchanged(some: tuple[Any, ...], old: Any, new: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(one for item in some for one in (new if item == old else (item,)))


def _edit(demand: Demand, key: _Key, in_bundles: bool, change: str, changed: Callable[[Any], Any]) -> Edit:
    """Returns the edit that applies ``changed`` to the value of a key, of the demand or of all its bundles."""
    if not in_bundles:
        value = changed(getattr(demand, key))
        path, written = ("demands", demand.id, key), _WRITTEN[key](value)
        return Edit(change, path, written, on_demand(demand, lambda d: replace(d, **{key: value})))
    bundles = tuple(replace(one, **{key: changed(getattr(one, key))}) for one in demand.bundles)
    return Edit(
        f"{change} in its bundles",
        ("demands", demand.id, "bundles"),
        [written_bundle(bundle) for bundle in bundles],
        on_demand(demand, lambda d: replace(d, bundles=bundles)),
    )
