"""Why a demand waits, since when, what would help, and what is on its way for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.commands.status import part_dict
from windlass.cli.ui.pages import clock, code, grid, section, span
from windlass.control.report.current import Part
from windlass.control.report.history import Wait, launches_for
from windlass.core.model.plan import Unblock
from windlass.core.model.quantities import exact_quantity, format_money, format_needs
from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Demand
from windlass.journal import Record

from .question import Asked, Told

MOST_REASONS = 8
"""Changes of the reason that are told; the last ones matter."""


def answer(asked: Asked) -> Told:
    assert asked.wait is not None
    wait, sighted = asked.wait, asked.picture.chronicle.sighted
    demand = sighted.demand.get(asked.name) or sighted.request.get(asked.name)
    parts = () if demand is None else asked.picture.parts(demand)
    launches = launches_for(asked.journal, asked.name, wait)
    ways = asked.picture.plan.unblocks.get(asked.name, ()) if any(part.waiting for part in parts) else ()
    data = _data(wait, demand, parts, ways, launches)
    return Told(data, list(_page(asked, demand, parts, ways, launches)), _steps(asked, parts, launches))


def _page(
    asked: Asked,
    demand: Demand | None,
    parts: tuple[Part, ...],
    ways: tuple[Unblock, ...],
    launches: tuple[Record, ...],
) -> Iterator[RenderableType]:
    wait, now = asked.wait, asked.picture.now
    assert wait is not None
    if demand is None:
        over = wait.until if wait.until is not None else now
        yield Text.assemble(
            (f"Demand {asked.name}", "bold"),
            f" waits no more since {clock(over, now)}: its tasks run, have ended, or were taken back. "
            f"It waited {span(over - wait.since)}.",
        )
    else:
        yield Text.assemble(
            (f"Demand {asked.name}", "bold"),
            f": {plural(demand.count, 'task')} of {_needs(demand)}, waiting since {clock(wait.since, now)} "
            f"({span(now - wait.since)})",
        )
        table = grid("-", "-", "fold")
        for part in parts:
            table.add_row(plural(part.count, "task"), code(part.code), part.why)
        yield section("What becomes of it", table)
    for part in parts:
        if part.waiting is not None and part.waiting.groups:
            groups = grid("-", "-", "fold")
            for name, reason in sorted(part.waiting.groups.items()):
                groups.add_row(name, code(reason.code), reason.why)
            yield section("What hinders it, group by group", groups)
    if ways:
        yield section("What would help", _ways(ways))
    elif any(part.waiting for part in parts):
        yield section("What would help", Text("no single change of a limit, a condition or a need places it now"))
    if launches:
        bought = grid("-", "-", "fold")
        for one in launches[-MOST_REASONS:]:
            data: Any = one.data
            bought.add_row(clock(one.at, now), f"{plural(data['count'], 'slice')} of {one.subject}", data["why"])
        yield section("Launched for it", bought)
    if len(wait.reasons) > 1 or (demand is None and wait.reasons):
        yield section("Why it waited, in the order of time", _history(wait, now))


def _needs(demand: Demand) -> str:
    kinds = [format_needs(bundle.needs) for bundle in demand.bundles]
    gang = f", as a gang ({demand.gang})" if demand.gang is not None else ""
    each = " each" if demand.count > 1 else ""
    return " or ".join(dict.fromkeys(kinds)) + each + gang


def _ways(ways: tuple[Unblock, ...]) -> RenderableType:
    table = grid("fold", "-")
    for one in ways:
        table.add_row(one.change, f"+{format_money(one.hourly_cost)}/h" if one.hourly_cost > 0 else "")
    return table


def _history(wait: Wait, now: float) -> RenderableType:
    table = grid("-", "-", "fold")
    for at, reason in wait.reasons[-MOST_REASONS:]:
        if reason is None:
            table.add_row(clock(at, now), "", "found a place")
        else:
            table.add_row(clock(at, now), code(reason.reason.code), reason.reason.why)
    return table


def _steps(asked: Asked, parts: tuple[Part, ...], launches: tuple[Record, ...]) -> list[str]:
    found = []
    coming = [name for part in parts for name in part.slices]
    if coming:
        found.append(f"windlass why {coming[0]}")
    elif launches:
        data: Any = launches[-1].data
        found.append(f"windlass why {data['slices'][0]}")
    waits = [part.waiting.groups for part in parts if part.waiting is not None and part.waiting.groups]
    found += [f"windlass why {min(groups)}" for groups in waits]
    return [*found[:2], f"windlass events --subject {asked.name}"]


def _data(
    wait: Wait,
    demand: Demand | None,
    parts: tuple[Part, ...],
    ways: tuple[Unblock, ...],
    launches: tuple[Record, ...],
) -> dict[str, Any]:
    known = demand or wait.demand
    return {
        "id": known.id,
        "waits": demand is not None,
        "since": wait.since,
        "until": None if demand is not None else wait.until,
        "tasks": 0 if demand is None else demand.count,
        "needs": [
            {"count": one.count, "needs": {name: exact_quantity(amount, name) for name, amount in one.needs}}
            for one in known.bundles
        ],
        "parts": [part_dict(part) for part in parts],
        "groups": {
            name: {"code": str(reason.code), "why": reason.why}
            for part in parts
            if part.waiting is not None
            for name, reason in sorted(part.waiting.groups.items())
        },
        "unblocks": [one.to_dict() for one in ways],
        "launched": [{"at": one.at, "group": one.subject, "slices": one.data["slices"]} for one in launches],
        "reasons": [
            {"at": at, "code": None if one is None else one.reason.code, "why": None if one is None else one.reason.why}
            for at, one in wait.reasons
        ],
    }
