"""The accounts document lists what was spent in a period by group, job or account. Its rows add up to the bill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final, Literal

from windlass.control.record.costs import HOUR, KINDS, Account, charged
from windlass.control.record.journal_tables import IS
from windlass.control.record.state_reader import TooOld
from windlass.journal import Journal

from .current import read_state
from .events import passes

SCHEMA: Final = "windlass.accounts/v1"
By = Literal["group", "account", "job"]
Sums = dict[str, int]
"""Nanodollars per hour times microseconds, by account: integers, so that no rounding error occurs."""
UNKNOWN_JOB: Final = "(not known)"
NO_JOB: Final = "(no job)"


def accounts(journal: Journal, by: By, since: float | None, until: float) -> dict[str, Any]:
    """Returns the accounts document; raises ``TooOld`` if the journal does not reach back to ``since``."""
    start = None if since is None else _accounts_at(journal, since)
    end = _accounts_at(journal, until)
    spent = {group: _difference(end[group], None if start is None else start.get(group)) for group in sorted(end)}
    begins = since if since is not None else next((one.at for one in journal.read(kinds=("settings",), limit=1)), until)
    total = _sum(spent.values())
    match by:
        case "group":
            rows = spent
        case "account":
            rows = {kind: {kind: total[kind]} for kind in KINDS if total[kind]}
        case "job":
            rows = _by_job(journal, total, begins, until)
    shown = [_row(name, sums) for name, sums in rows.items() if any(sums.values())]
    exact = _sum(rows.values())
    return {
        "schema": SCHEMA,
        "by": by,
        "since": begins,
        "until": until,
        "rows": shown,
        "total": _row("total", total),
        "difference": _dollars(sum(total.values()) - sum(exact.values())),
    }


def _accounts_at(journal: Journal, instant: float) -> Mapping[str, Account]:
    """Returns the account of every group, charged up to an instant."""
    try:
        controller_state = read_state(journal, instant)
    except TooOld as error:
        if next(journal.read(kinds=("settings",), until=instant, limit=1), None) is None:
            return {}  # nothing was spent before the journal began
        raise TooOld(error.since) from error
    return charged(controller_state.account, controller_state.fleet, controller_state.stay, instant)


def _difference(end: Account, start: Account | None) -> Sums:
    return {kind: getattr(end, kind) - (0 if start is None else getattr(start, kind)) for kind in KINDS}


def _sum(rows: Any) -> Sums:
    found = dict.fromkeys(KINDS, 0)
    for row in rows:
        for kind, amount in row.items():
            found[kind] += amount
    return found


def _row(name: str, sums: Mapping[str, int]) -> dict[str, Any]:
    whole = {kind: sums.get(kind, 0) for kind in KINDS}
    return {
        "name": name,
        **{kind: _dollars(amount) for kind, amount in whole.items()},
        "total": _dollars(sum(whole.values())),
    }


def _dollars(amount: int) -> float:
    return round(amount / (HOUR * 10**9), 9)


# -- by job --------------------------------------------------------------------------------------------------------


def _by_job(journal: Journal, total: Sums, since: float, until: float) -> dict[str, Sums]:
    """Divides the cost of work among the jobs whose tasks ran; all other cost goes to the row without a job.

    Not every workload reports the job of a task: such work gets the row ``(not known)``. Shares are integers, and the
    remainder is added to the largest row, so that the rows add up to the bill.
    """
    weights = _task_seconds(journal, since, until)
    whole, work = sum(weights.values()), total["work"]
    rows: dict[str, Sums] = {
        name: {"work": work * weight // whole} for name, weight in sorted(weights.items()) if whole and weight
    }
    left = work - sum(row["work"] for row in rows.values())
    if left:
        into = rows.setdefault(UNKNOWN_JOB if not rows else max(rows, key=lambda name: rows[name]["work"]), {"work": 0})
        into["work"] += left
    rows[NO_JOB] = {kind: amount for kind, amount in total.items() if kind != "work"}
    return rows


def _task_seconds(journal: Journal, since: float, until: float) -> dict[str, int]:
    """Returns price times microseconds of work by job, from the recorded nodes."""
    controller_state = read_state(journal, since) if journal.latest_state(since) or _began(journal, since) else None
    price: dict[str, int] = {}
    nodes: dict[str, Mapping[str, Any]] = {}
    if controller_state is not None:
        price = {name: one.price for name, one in controller_state.fleet.slices.items()}
        nodes = {
            name: {"slice_id": one.slice_id, "tasks": one.tasks, "jobs": list(one.jobs)}
            for name, one in controller_state.observed.node.items()
        }
    found: dict[str, int] = defaultdict(int)
    seq, last = (0, since) if controller_state is None else (controller_state.seq, since)
    for together in passes(journal.read(seq, kinds=("slice", "node"), until=until)):
        _charge(found, nodes, price, last, together[0].at)
        last = max(last, together[0].at)
        for record in together:
            value: Any = record.data.get(IS)
            if record.kind == "slice" and value is not None:
                price[record.subject] = value.get("price", 0)
            elif record.kind == "node" and value is None:
                nodes.pop(record.subject, None)
            elif record.kind == "node":
                nodes[record.subject] = value
    _charge(found, nodes, price, last, until)
    return found


def _began(journal: Journal, instant: float) -> bool:
    return next(journal.read(until=instant, limit=1), None) is not None


def _charge(
    found: dict[str, int], nodes: Mapping[str, Mapping[str, Any]], price: Mapping[str, int], last: float, now: float
) -> None:
    span = round((now - last) * 10**6)
    if span <= 0:
        return
    for node in nodes.values():
        tasks, paid = node.get("tasks", 0), price.get(node["slice_id"], 0)
        if not tasks or not paid:
            continue
        jobs: dict[str, int] = dict(node.get("jobs", ()))
        known = sum(jobs.values())
        for name, count in jobs.items():
            found[name] += span * paid * count // max(tasks, known)
        if tasks > known:
            found[UNKNOWN_JOB] += span * paid * (tasks - known) // tasks
