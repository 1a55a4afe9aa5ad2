"""This module renders a plan as a page: a summary first, then the details.

Changes and cost come first; then why these groups, what waits and what would unblock it; what
stays is one line. Everything that can be many is folded: equal reasons with their count, ids as ranges, long lists with
"and 40 more". On a terminal it is in colour and as wide as the terminal; elsewhere it is plain text of a fixed width.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from rich.console import Group as Lines
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from windlass.core.model.plan import Change, Launch, Plan, Waiting
from windlass.core.model.quantities import format_money
from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Snapshot

from .pages import grid, printed, section

MOST_WAITS = 12
"""The number of folded waiting jobs that are shown in full; the JSON has all."""

MOST_IDS = 4
MOST_UNBLOCKS = 3
MOST_GROUPS = 8

_VERBS = (
    ("cancel", "-", "red"),
    ("drain", "-", "red"),
    ("uncordon", "+", "green"),
    ("unmark", "+", "green"),
    ("mark", "~", "yellow"),
)


def page(plan: Plan, snapshot: Snapshot, source: str) -> str:
    """Render the plan for standard output."""
    return printed(rendered(plan, snapshot, source))


def rendered(plan: Plan, snapshot: Snapshot, source: str) -> Iterable[Lines | Text]:
    """Return the parts of the page, top to bottom."""
    yield _headline(plan, snapshot)
    if plan.changes:
        yield section("Changes", _changes(plan, snapshot))
    if candidates := _candidates(plan, snapshot):
        yield section("Why these groups", candidates)
    if plan.waiting:
        yield section(_waiting_title(plan), _waits(plan))
    if plan.keep:
        yield section(_keep_title(plan), _keeps(plan, snapshot))
    yield _hint(plan, source)


# -- what changes and what it costs --------------------------------------------------------------------------------


def _headline(plan: Plan, snapshot: Snapshot) -> Text:
    counts = [("launch", sum(plan.launch.values()))]
    counts += [(verb, len(getattr(plan, verb))) for verb, _, _ in _VERBS]
    counted = ", ".join(f"{verb} {plural(count, 'machine')}" for verb, count in counts if count)
    line = Text.assemble(("Plan: ", "bold"), f"{counted}." if counted else "nothing to do.")
    if any(group.price is not None for group in snapshot.groups):
        now, planned = plan.hourly_cost.now, plan.hourly_cost.planned
        line.append("\nCost: ", style="bold")
        line.append(f"{format_money(now)}/h now, {format_money(planned)}/h after")
        if planned != now:
            sign, style = ("+", "red") if planned > now else ("-", "green")
            line.append(f" ({sign}{format_money(abs(planned - now))}/h)", style=style)
        if snapshot.cluster.max_hourly_cost is not None:
            line.append(f", ceiling {format_money(snapshot.cluster.max_hourly_cost)}/h")
    return line


def _changes(plan: Plan, snapshot: Snapshot) -> Table:
    table = grid("-", "-", "fold", "-", "fold")
    for (group, _), launches in groupby(
        sorted(plan.launches, key=lambda one: (one.group, str(one.reason.code), one.first)),
        key=lambda one: (one.group, one.reason.code),
    ):
        items = list(launches)
        count, cost = sum(one.count for one in items), sum(one.hourly_cost for one in items)
        price = f" ({format_money(cost)}/h)" if cost else ""
        _row(table, "+", "launch", "green", f"{count} x {group}{price}", items[0].reason.code, _first_why(items))
    of_group = {one.id: one.group for one in snapshot.slices}
    for verb, sign, style in _VERBS:
        changes: Sequence[Change] = getattr(plan, verb)
        key = {one.slice: (of_group.get(one.slice, ""), str(one.reason.code)) for one in changes}
        for (group, code), folded in groupby(
            sorted(changes, key=lambda one: key[one.slice]), key=lambda one: key[one.slice]
        ):
            same = list(folded)
            ids = short_ids(one.slice for one in same)
            what = f"{ids} ({group})" if len(same) == 1 else f"{len(same)} x {group}: {ids}"
            _row(table, sign, verb, style, what, code, _first_why(same))
    return table


def _row(table: Table, sign: str, verb: str, style: str, what: str, code: str, why: str) -> None:
    table.add_row(Text(sign, style=f"bold {style}"), Text(verb, style=style), what, Text(str(code), style="cyan"), why)


def _first_why(items: Sequence[Change] | Sequence[Launch]) -> str:
    """Return the sentence of the first item; the others differ in their numbers only."""
    first = items[0].reason.why
    others = len({item.reason.why for item in items}) - 1
    return f"e.g. {first}" if others else first


def short_ids(ids: Iterable[str]) -> str:
    """Format many ids briefly: ``s-01..s-12, x and 40 more``. Consecutive ids become a range."""
    ordered = sorted(ids, key=_natural)
    runs: list[list[str]] = []
    for one in ordered:
        if runs and _next_of(runs[-1][-1]) == one:
            runs[-1].append(one)
        else:
            runs.append([one])
    parts: list[tuple[str, int]] = []
    for run in runs:
        if len(run) > 2:
            parts.append((f"{run[0]}..{run[-1]}", len(run)))
        else:  # two ids are shorter without a range
            parts += [(one, 1) for one in run]
    text = ", ".join(name for name, _ in parts[:MOST_IDS])
    rest = sum(size for _, size in parts[MOST_IDS:])
    return f"{text} and {rest} more" if rest else text


_NUMBERED = re.compile(r"(.*?)(\d{1,15})")


def _natural(name: str) -> tuple[str, int, str]:
    found = _NUMBERED.fullmatch(name)
    return (found[1], int(found[2]), name) if found else (name, -1, name)


def _next_of(name: str) -> str | None:
    found = _NUMBERED.fullmatch(name)
    return f"{found[1]}{str(int(found[2]) + 1).zfill(len(found[2]))}" if found else None


# -- why these groups ----------------------------------------------------------------------------------------------


def _candidates(plan: Plan, snapshot: Snapshot) -> Table | None:
    """List every group once: chosen, or why not (the reason of the largest launch that did not choose it)."""
    if not any(launch.passed_over for launch in plan.launches):
        return None
    lost: dict[str, Launch] = {}
    for launch in sorted(plan.launches, key=lambda one: -one.count):
        for name in launch.passed_over:
            lost.setdefault(name, launch)
    price = {group.name: group.price for group in snapshot.groups}
    table = grid("-", "-", "-", "-", "fold")
    for name, count in plan.launch.items():
        table.add_row(
            Text("*", style="bold green"), Text(name, style="bold"), _price(price.get(name)), "taken", f"{count} x"
        )
    for name in sorted(set(lost) - set(plan.launch))[:MOST_GROUPS]:
        reason = lost[name].passed_over[name]
        table.add_row("", name, _price(price.get(name)), Text(str(reason.code), style="cyan"), reason.why)
    if (more := len(set(lost) - set(plan.launch)) - MOST_GROUPS) > 0:
        table.add_row("", f"and {more} more", "", "", "")
    return table


def _price(price: int | None) -> str:
    return "" if price is None else f"{format_money(price)}/h"


# -- what waits ----------------------------------------------------------------------------------------------------


def _waiting_title(plan: Plan) -> str:
    tasks = sum(one.count for one in plan.waiting)
    return f"Waiting: {plural(tasks, 'task')} of {plural(len(plan.waiting), 'job')}"


def _waits(plan: Plan) -> Lines:
    folded: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Waiting]] = {}
    for one in plan.waiting:
        groups = tuple(sorted((name, reason.why) for name, reason in one.groups.items()))
        folded.setdefault((str(one.reason.code), one.reason.why, groups), []).append(one)
    largest = sorted(folded.values(), key=lambda same: (-sum(one.count for one in same), same[0].demand))
    parts: list[Text | Padding] = []
    for same in largest[:MOST_WAITS]:
        first = same[0]
        line = Text.assemble(
            (short_ids(one.demand for one in same), "bold"),
            f" ({sum(one.count for one in same)} x)  ",
            (str(first.reason.code), "yellow"),
            f"  {_beyond_groups(first)}",
        )
        parts += [line, Padding(_obstacles(first, plan), (0, 0, 0, 2), expand=False)]
    if rest := [one for same in largest[MOST_WAITS:] for one in same]:
        parts.append(Text(f"and {plural(len(rest), 'job')} more: {_counted(str(one.reason.code) for one in rest)}"))
    return Lines(*parts)


def _beyond_groups(waiting: Waiting) -> str:
    """Return the sentence of a waiting job without the part that the group's line repeats below it."""
    if not any(reason.why in waiting.reason.why for reason in waiting.groups.values()):
        return waiting.why
    return waiting.waiting_time


def _obstacles(waiting: Waiting, plan: Plan) -> Lines:
    table = grid("-", "-", "fold")
    same_why: dict[tuple[str, str], list[str]] = {}
    nearest_first = sorted(waiting.groups.items(), key=lambda item: (item[1].code != waiting.reason.code, item[0]))
    for name, reason in nearest_first:
        same_why.setdefault((str(reason.code), reason.why), []).append(name)
    for (code, why), names in list(same_why.items())[:MOST_GROUPS]:
        table.add_row(short_ids(names), Text(code, style="cyan"), why)
    if (more := len(same_why) - MOST_GROUPS) > 0:
        table.add_row(f"and {more} more", "", "")
    ways = Table.grid(padding=(0, 1))
    for unblock in plan.unblocks.get(waiting.demand, ())[:MOST_UNBLOCKS]:
        cost = f" (+{format_money(unblock.hourly_cost)}/h)" if unblock.hourly_cost > 0 else ""
        ways.add_row(Text("would help:", style="green"), Text(f"{unblock.change}{cost}"))
    return Lines(*([table] if same_why else []), *([ways] if ways.row_count else []))


# -- what stays ----------------------------------------------------------------------------------------------------


def _keep_title(plan: Plan) -> str:
    return f"Staying: {plural(len(plan.keep), 'machine')}, {_counted(str(one.reason.code) for one in plan.keep)}"


def _keeps(plan: Plan, snapshot: Snapshot) -> Table:
    of_group = {one.id: one.group for one in snapshot.slices}
    folded: dict[tuple[str, str], list[Change]] = {}
    for one in plan.keep:
        folded.setdefault((of_group.get(one.slice, ""), str(one.reason.code)), []).append(one)
    table = grid("-", "-", "-", "fold")
    shown = sorted(folded.items(), key=lambda item: (-len(item[1]), item[0]))
    for (group, code), same in shown[: 2 * MOST_GROUPS]:
        table.add_row(group, str(len(same)), Text(code, style="cyan"), _first_why(same))
    if (more := len(shown) - 2 * MOST_GROUPS) > 0:
        table.add_row(f"and {more} more", "", "", "")
    return table


def _counted(codes: Iterable[str]) -> str:
    """Count codes as ``BUSY 9, MIN 3``, the most frequent first."""
    counts: Mapping[str, int] = Counter(codes)
    return ", ".join(f"{code} {count}" for code, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _hint(plan: Plan, source: str) -> Text:
    command = f"windlass plan {source} --json"
    if plan.waiting:
        return Text(f"\nEvery group, placement and remedy, for programs: {command}", style="dim")
    return Text(f"\nEvery machine and placement by name: {command}", style="dim")
