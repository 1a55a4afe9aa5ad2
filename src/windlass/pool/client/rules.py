"""This module reads the options ``apart`` and ``spread`` of a task into rules of the planner.

The class of a task is the name of its function. So ``apart="node"`` keeps tasks of one function on different nodes, and
``apart={"by": "node", "from": "train", "at_most": 0}`` keeps them off nodes on which ``train`` runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from windlass.core.model.constraints import NO_RULES, Apart, Rules, Spread
from windlass.pool.errors import BadPool, is_whole

Rule = str | Mapping[str, Any]
"""The kind of a domain, or a mapping with the keys of a scenario file."""
MOST: Final = 10**6
APART: Final = {"by": "", "from": "", "at_most": 1}
SPREAD: Final = {"over": "", "of": "", "max_skew": 1, "min_domains": 1}


def rules_of(name: str, apart: Rule | Sequence[Rule], spread: Rule | Sequence[Rule]) -> Rules:
    """Return the rules of a function's tasks; raise ``BadPool`` for a wrong one. ``name``: the function's name."""
    if not apart and not spread:
        return NO_RULES
    aparts = [_read("apart", one, APART, "by", "from", name) for one in _listed(apart)]
    spreads = [_read("spread", one, SPREAD, "over", "of", name) for one in _listed(spread)]
    return Rules(
        (name,),
        tuple(Apart(one["from"], one["by"], one["at_most"]) for one in aparts),
        tuple(Spread(one["of"], one["over"], one["max_skew"], one["min_domains"]) for one in spreads),
    )


def _listed(given: Rule | Sequence[Rule]) -> Sequence[Any]:
    return (given,) if isinstance(given, str | Mapping) or not isinstance(given, Sequence) else given


def _read(option: str, given: Any, known: Mapping[str, Any], domain: str, class_: str, name: str) -> dict[str, Any]:
    example = f"{option}='node'" if option == "apart" else f"{option}='zone'"
    if isinstance(given, str):
        given = {domain: given}
    if not isinstance(given, Mapping):
        raise BadPool(f"{option} must be such as {example}, or {{{domain!r}: 'zone', ...}}, is {given!r}")
    if unknown := [key for key in given if key not in known]:
        raise BadPool(f"{option} has no {', '.join(map(repr, unknown))}; there are {', '.join(known)}")
    rule = {**known, class_: name, **given}
    for key in (domain, class_):
        if not isinstance(rule[key], str) or not rule[key]:
            raise BadPool(f"{option}: {key} must be a name, is {rule[key]!r}; write it such as {example}")
    for key in rule.keys() - {domain, class_}:
        lowest = 0 if key == "at_most" else 1
        if not is_whole(rule[key], lowest, MOST):
            raise BadPool(f"{option}: {key} must be a whole number, at least {lowest}, is {rule[key]!r}")
    return rule
