"""This module renders the explanation of a waiting job: since when it waits, what would help, and its starting
machines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from windlass.cli.ui.pages import clock, code, grid, money, section, span
from windlass.core.model.quantities import singular
from windlass.core.model.reasons import plural

MOST_NAMED = 5
"""The jobs that a change would place are named up to this many, and counted beyond."""
MOST_REASONS = 8
"""The number of changes of the reason that are shown, the last ones."""


def page(document: Mapping[str, Any]) -> Iterator[RenderableType]:
    now, one = document["at"], document["demand"]
    if not one["waits"]:
        over = one["until"] if one["until"] is not None else now
        yield Text.assemble(
            ("" if document.get("job") else f"Job {document['name']} ", "bold"),
            f"stopped waiting at {clock(over, now)}: its tasks run, have ended, or were withdrawn. "
            f"It waited {span(over - one['since'])}.",
        )
    else:
        yield Text.assemble(
            (f"Job {document['name']}", "bold"),
            f": {plural(one['tasks'], 'task')} of {_needs(one)}, waiting since {clock(one['since'], now)} "
            f"({span(now - one['since'])})",
        )
        table = grid("-", "-", "fold")
        for part in one["parts"]:
            table.add_row(plural(part["tasks"], "task"), code(part["code"]), part["why"])
        yield section("What happens to it", table)
    if one["groups"]:
        groups = grid("-", "-", "fold")
        for name, reason in sorted(one["groups"].items()):
            groups.add_row(name, code(reason["code"]), reason["why"])
        yield section("Why it cannot start, group by group", groups)
    if one["unblocks"]:
        yield section("What would help", _ways(one["unblocks"]))
    elif one["groups"]:
        yield section("What would help", Text("no single change of a limit, a condition or a need places it now"))
    if one["launched"]:
        bought = grid("-", "-", "fold")
        for launch in one["launched"][-MOST_REASONS:]:
            what = f"{plural(len(launch['slices']), 'machine')} of {launch['group']}"
            bought.add_row(clock(launch["at"], now), what, launch["why"])
        yield section("Machines started for it", bought)
    if len(one["reasons"]) > 1 or (not one["waits"] and one["reasons"]):
        yield section("Why it waited, in the order of time", _history(one["reasons"], now))


def _needs(one: Mapping[str, Any]) -> str:
    kinds = [
        ", ".join(singular(f"{amount} {name}") for name, amount in bundle["needs"].items()) for bundle in one["needs"]
    ]
    gang = f", as a gang ({one['gang']})" if one["gang"] is not None else ""
    each = " each" if one["tasks"] > 1 else ""
    return " or ".join(dict.fromkeys(kinds)) + each + gang


def _ways(ways: list[Mapping[str, Any]]) -> RenderableType:
    lines = []
    for one in ways:
        price = f"+{money(one['hourly_cost'])}/h" if one["hourly_cost"] > 0 else ""
        lines.append("  ".join(part for part in (one["change"], price, _for_others(one)) if part))
    return Text("\n".join(lines))


def _for_others(one: Mapping[str, Any]) -> str:
    """List the other jobs that a change would place as well; they share its cost. Many are counted."""
    tasks = one["for"]
    if len(tasks) < 2:
        return ""
    if len(tasks) > MOST_NAMED:
        return f"for {plural(sum(tasks.values()), 'task')} of {plural(len(tasks), 'job')}"
    return "for " + ", ".join(f"{plural(count, 'task')} of {name}" for name, count in sorted(tasks.items()))


def _history(reasons: list[Mapping[str, Any]], now: float) -> RenderableType:
    table = grid("-", "-", "fold")
    for one in reasons[-MOST_REASONS:]:
        table.add_row(clock(one["at"], now), code(one["code"]), one["why"] or "waits no more")
    return table


def steps(document: Mapping[str, Any], _at: float | None) -> list[str]:
    found, one = [], document["demand"]
    coming = [name for part in one["parts"] for name in part["slices"]]
    if coming:
        found.append(f"windlass why {coming[0]}")
    elif one["launched"]:
        found.append(f"windlass why {one['launched'][-1]['slices'][0]}")
    if one["groups"]:
        found.append(f"windlass why {min(one['groups'])}")
    return [*found[:2], f"windlass events --subject {document['name']}"]
