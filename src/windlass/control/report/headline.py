"""The headline states the condition of a cluster in one or two sentences, with counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from windlass.core.model.reasons import IMPOSSIBLE, Code, plural

NAMED: Final = 3
"""Blockers that a sentence names; the others are counted."""
LIMITS: Final = frozenset({Code.AT_MAX, Code.MAX_NODES, Code.BUDGET, Code.FROZEN, Code.RATE_LIMITED})
MARKET: Final = frozenset({Code.STOCKOUT, Code.QUOTA, Code.BACKOFF})
NEVER: Final = IMPOSSIBLE | {Code.NO_SHAPE_FITS, Code.INVALID_DEMAND}
COMING: Final = frozenset({Code.LAUNCHING, Code.BOOTING, Code.GANG_FORMING})


def headline(
    demands: Iterable[Mapping[str, Any]],
    summary: Mapping[str, Any],
    frozen: Mapping[str, str],
    leader: Mapping[str, Any],
    family_of: Mapping[str, str],
) -> str:
    """What is most worth knowing, from the rows of a status document. ``family_of``: a limit of a family is named once,
    and not for each of its groups."""
    waiting = list(demands)
    sentences = [_unknown(summary["unknown_sources"])] if summary["unknown_sources"] else []
    if not waiting:
        sentences.append("Nothing waits.")
        sentences.append(_machines(summary))
    else:
        sentences.append(f"{plural(len(waiting), 'job')} {'waits' if len(waiting) == 1 else 'wait'}.")
        sentences += _kinds(waiting, family_of)
    if "*" in frozen:
        sentences.append(f"Everything is frozen by {frozen['*']}.")
    if not leader["alive"]:
        sentences.append("No controller runs, so nothing changes.")
    return " ".join(one for one in sentences if one)


def _machines(summary: Mapping[str, Any]) -> str:
    if not summary["slices"]:
        return "No machine runs."
    busy = "none of them busy" if not summary["busy"] else f"{summary['busy']} of them busy"
    there = f"{plural(summary['slices'], 'machine')} {'is' if summary['slices'] == 1 else 'are'} there, {busy}"
    return f"{there}{', ' + str(summary['coming']) + ' coming' if summary['coming'] else ''}."


def _unknown(sources: Iterable[str]) -> str:
    names = list(sources)
    verb = "does" if len(names) == 1 else "do"
    return f"{_listed(names)} {verb} not answer: nothing is released while that is so."


def _kinds(waiting: list[Mapping[str, Any]], family_of: Mapping[str, str]) -> list[str]:
    """A sentence for each kind of blocker, the one that an operator can change first."""
    limited, market, never, coming = ([one for one in waiting if _code(one) in kind] for kind in _KINDS)
    found = []
    if limited:
        verb = "is" if len(limited) == 1 else "are"
        found.append(f"{_share(limited, waiting)} {verb} held up by limits: {_listed(_limits(limited, family_of))}.")
    if market:
        verb, offers = "waits" if len(market) == 1 else "wait", _listed(_markets(market, family_of))
        found.append(f"{_share(market, waiting)} {verb} for machines that cannot be had now: {offers}.")
    if never:
        found.append(f"{_share(never, waiting)} can never run here: {_plain(never[0])}.")
    if coming:
        verb = "starts" if len(coming) == 1 else "start"
        found.append(f"{_share(coming, waiting)} {verb} soon: {_plain(coming[0])}.")
    return found


_KINDS: Final = (LIMITS, MARKET, NEVER, COMING)


def _code(demand: Mapping[str, Any]) -> str | None:
    """The code of a demand: its first part is the one that finds no place."""
    return demand["parts"][0]["code"] if demand["parts"] else None


def _plain(demand: Mapping[str, Any]) -> str:
    """The reason of a demand in the first group that has it, without how long it waits: that number moves."""
    code = _code(demand)
    codes = {code, Code.TOO_SMALL} if code == Code.NO_SHAPE_FITS else {code}
    for _, reason in sorted(demand["groups"].items()):
        if reason["code"] in codes:
            return str(reason["why"])
    return str(demand["parts"][0]["why"])


def _share(some: list[Any], of: list[Any]) -> str:
    if len(some) < len(of):
        return str(len(some))
    return "It" if len(of) == 1 else f"All {len(of)}"


def _limits(demands: Iterable[Mapping[str, Any]], family_of: Mapping[str, str]) -> list[str]:
    """The limits in the way, each once."""
    found: dict[str, None] = {}
    for name, reason in _reasons(demands):
        group = family_of.get(name, name)
        match reason["code"]:
            case Code.AT_MAX:
                found[f"{group} at its max"] = None
            case Code.BUDGET:
                found["the cost ceiling"] = None
            case Code.FROZEN:
                found[f"{group} frozen"] = None
            case Code.MAX_NODES:
                found["the limit of machines"] = None
            case Code.RATE_LIMITED:
                found["the launch rate"] = None
    return list(found)


def _reasons(demands: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each reason of each group once: equal demands share the mapping of their reasons."""
    seen: set[int] = set()
    for one in demands:
        if id(one["groups"]) not in seen:
            seen.add(id(one["groups"]))
            yield from one["groups"].items()


def _markets(demands: Iterable[Mapping[str, Any]], family_of: Mapping[str, str]) -> list[str]:
    found: dict[str, None] = {}
    words = {Code.STOCKOUT: "out of stock", Code.QUOTA: "over its quota", Code.BACKOFF: "backing off after refusals"}
    for name, reason in _reasons(demands):
        if reason["code"] in words:
            found[f"{family_of.get(name, name)} {words[reason['code']]}"] = None
    return list(found)


def _listed(names: list[str]) -> str:
    shown = names[:NAMED] + ([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])
    if len(shown) < 2:
        return "".join(shown) or "a limit"
    return f"{', '.join(shown[:-1])}{',' if len(shown) > 2 else ''} and {shown[-1]}"
