"""The headline describes the state of a cluster in one or two sentences, with counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from windlass.core.model.reasons import IMPOSSIBLE, Code

NAMED: Final = 3
"""A sentence names at most this many blockers and counts the others."""
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
    """Returns the headline for the rows of a status document. ``family_of``: the family of each group, so that a limit
    of a family is named once."""
    waiting = list(demands)
    sentences = [_unknown(summary["unknown_sources"])] if summary["unknown_sources"] else []
    if not waiting:
        sentences.append("Nothing waits.")
        sentences.append(_machines(summary))
    else:
        sentences.append(f"{_counted(len(waiting), 'job')} {'waits' if len(waiting) == 1 else 'wait'}.")
        sentences += _kinds(waiting, family_of, everything_frozen="*" in frozen)
    if "*" in frozen:
        sentences.append(f"Everything is frozen by {frozen['*']}.")
    if not leader["alive"]:
        sentences.append("No controller runs, so nothing changes.")
    return " ".join(one for one in sentences if one)


def _machines(summary: Mapping[str, Any]) -> str:
    if not summary["slices"]:
        return "No machine runs."
    counts = [f"{summary[kind]:,} {kind}" for kind in ("busy", "idle", "coming", "leaving") if summary[kind]]
    there = f"{_counted(summary['slices'], 'machine')} {'is' if summary['slices'] == 1 else 'are'} there"
    return f"{there}: {', '.join(counts)}." if counts else f"{there}."


def _counted(count: int, noun: str) -> str:
    """Formats ``1 job``, ``1,122 jobs``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _unknown(sources: Iterable[str]) -> str:
    names = list(sources)
    verb = "does" if len(names) == 1 else "do"
    return f"{_listed(names)} {verb} not answer: nothing is released while that is so."


def _kinds(waiting: list[Mapping[str, Any]], family_of: Mapping[str, str], *, everything_frozen: bool) -> list[str]:
    """Returns a sentence for each kind of blocker; first the limits, which an operator can change."""
    limited, market, never, coming, others = (list[Mapping[str, Any]]() for _ in range(5))
    kinds = ((LIMITS, limited), (MARKET, market), (NEVER, never), (COMING, coming))
    lists: dict[str, list[Mapping[str, Any]]] = {code: listed for codes, listed in kinds for code in codes}
    for one in waiting:
        code = _code(one)
        if code is not None:
            lists.get(code, others).append(one)
    found = []
    if limited:
        verb = "is" if len(limited) == 1 else "are"
        limits = _listed(_limits(limited, family_of, everything_frozen=everything_frozen))
        found.append(f"{_share(limited, waiting)} {verb} held up by limits: {limits}.")
    if market:
        verb, offers = "waits" if len(market) == 1 else "wait", _listed(_markets(market, family_of))
        found.append(f"{_share(market, waiting)} {verb} for machines that are not available now: {offers}.")
    if never:
        found.append(f"{_share(never, waiting)} can never run here: {_plain(never[0])}.")
    if coming:
        verb = "starts" if len(coming) == 1 else "start"
        found.append(f"{_share(coming, waiting)} {verb} soon: {_plain(coming[0])}.")
    if others:
        verb = "waits" if len(others) == 1 else "wait"
        found.append(f"{_share(others, waiting)} {verb} for another reason: {_plain(others[0])}.")
    return found


def _code(demand: Mapping[str, Any]) -> str | None:
    """Returns the code of a demand: the code of its first part, which is the one without a place."""
    return demand["parts"][0]["code"] if demand["parts"] else None


def _plain(demand: Mapping[str, Any]) -> str:
    """Returns the reason of a demand, from the first group that gives it, without the time it has waited."""
    code = _code(demand)
    codes = {code, Code.TOO_SMALL} if code == Code.NO_SHAPE_FITS else {code}
    for _, reason in sorted(demand["groups"].items()):
        if reason["code"] in codes:
            return str(reason["why"])
    return str(demand["parts"][0]["why"])


def _share(some: list[Any], of: list[Any]) -> str:
    if len(some) < len(of):
        return f"{len(some):,}"
    return "It" if len(of) == 1 else f"All {len(of):,}"


def _limits(
    demands: Iterable[Mapping[str, Any]], family_of: Mapping[str, str], *, everything_frozen: bool
) -> list[str]:
    """Returns the limits that block the demands, each once."""
    found: dict[str, None] = {}
    for name, code in sorted(_blockers(demands)):
        group = family_of.get(name, name)
        match code:
            case Code.AT_MAX:
                found[f"{group} at its max"] = None
            case Code.BUDGET:
                found["the cost ceiling"] = None
            case Code.FROZEN:
                found["the freeze" if everything_frozen else f"{group} frozen"] = None
            case Code.MAX_NODES:
                found["the limit of machines"] = None
            case Code.RATE_LIMITED:
                found["the launch rate"] = None
    return list(found)


def _blockers(demands: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yields each group with each of its codes once."""
    seen: set[tuple[str, str]] = set()
    for one in demands:
        for name, reason in one["groups"].items():
            blocker = (name, reason["code"])
            if blocker not in seen:
                seen.add(blocker)
                yield blocker


def _markets(demands: Iterable[Mapping[str, Any]], family_of: Mapping[str, str]) -> list[str]:
    found: dict[str, None] = {}
    words: dict[str, str] = {
        Code.STOCKOUT: "out of stock",
        Code.QUOTA: "over its quota",
        Code.BACKOFF: "backing off after refusals",
    }
    for name, code in sorted(_blockers(demands)):
        if code in words:
            found[f"{family_of.get(name, name)} {words[code]}"] = None
    return list(found)


def _listed(names: list[str]) -> str:
    shown = names[:NAMED] + ([f"{len(names) - NAMED} more"] if len(names) > NAMED else [])
    if len(shown) < 2:
        return "".join(shown) or "a limit"
    return f"{', '.join(shown[:-1])}{',' if len(shown) > 2 else ''} and {shown[-1]}"
