"""Other parts of the traces: what holds beyond the windows above.

A window of a trace is a sample of one, and ``apart: 0.4`` was chosen by looking at the window of openb above. Seven
values were tried there, with a first form of the rule: 0 changed nothing, 0.01 and 0.05 cost as much as Ray, 0.1 and
0.2 a little less than the default, 0.4 and 0.8 the least. So the cheapest peer and Windlass are compared once more on
parts that nothing was chosen by: every four days of openb from day 10 on, and three other days of Philly. Nothing else
differs from the comparison above.

They differ by tens of per cent, in either direction: one job of weeks that finds room on a dear machine decides such a
part, and chance decides where it lands. So no single part says which policy is better, the window above included. Where
jobs come one by one, ``apart`` has nothing to part, and on Philly it is a little cheaper on some days only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import shared_data
from .frontier import Point
from .table import Table
from .targets import Check, at_most
from .trace_world import world
from .traces import APART, DEFAULT, FILES, compared

NAME = "parts"
TITLE = "Other parts of the traces"
PEER = "Ray"
WHO = (PEER, DEFAULT, *APART)
WINDOWS: dict[str, tuple[dict[str, Any], ...]] = {
    "quick": ({"file": FILES[1], "first_day": 60, "jobs": 10},),
    "default": (
        *({"file": FILES[0], "first_day": day, "days": 4} for day in (10, 14, 18, 22, 26)),
        *({"file": FILES[1], "first_day": day, "days": 1} for day in (60, 80, 100)),
    ),
}


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    reason = shared_data.missing(FILES)
    if reason:
        say(f"skipped: {reason}")
        return {"name": NAME, "rows": [], "checks": [], "skipped": reason}
    rows = []
    for window in WINDOWS.get(which, WINDOWS["default"]):
        for row in compared(world(**window), WHO):
            part = f"{row['trace']}, day {window['first_day']}"
            say(f"{part}: {row['who']}: {row['ratio']:.3f} of the bound, p95 {row['wait_p95']:.0f} s")
            rows.append({"part": part, **row})
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and for each trace with several parts one more for each policy: all of its parts in one."""
    sums = []
    for trace in dict.fromkeys(row["trace"] for row in rows):
        for who in WHO:
            some = [row for row in rows if row["trace"] == trace and row["who"] == who]
            dollars, bound = (sum(row[key] for row in some) for key in ("dollars", "bound"))
            whole = {"jobs": sum(row["jobs"] for row in some), "wait_p95": max(row["wait_p95"] for row in some)}
            if len(some) > 1:
                sums.append(
                    {"part": f"{trace}, these", "who": who, "dollars": dollars, "ratio": dollars / bound, **whole}
                )
    return [*rows, *sums]


def by_part(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["part"], {})[row["who"]] = row
    return found


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    points = [
        {who: Point(who, row["wait_p95"], row["dollars"]) for who, row in part.items()}
        for part in by_part(rows).values()
    ]
    better = sum(part[PEER].beats(part[DEFAULT]) for part in points)
    wrong = sum(row["jobs"] - row["finished"] + row["killed"] + row["breaches"] for row in rows)
    return [
        at_most(f"parts in which {PEER} is better in both cost and p95 wait", better, 0),
        at_most("parts: jobs not finished or killed, promises broken", wrong, 0),
    ]


def tables(result: dict[str, Any]) -> list[Table]:
    cells = []
    for part, rows in by_part(together(result["rows"])).items():
        ray = rows[PEER]
        shown = [f"{rows[who]['ratio']:.3f}" for who in WHO]
        against = [f"{100 * (rows[who]['dollars'] / ray['dollars'] - 1):+.1f} %" for who in WHO[1:]]
        waits = [f"{rows[who]['wait_p95']:.0f} s" for who in (PEER, DEFAULT, WHO[-1])]
        cells.append((part, f"{ray['jobs']:,}", *shown, *against, " / ".join(waits)))
    short = [name.removeprefix("Windlass, ") for name in APART]
    columns = (
        *("part", "jobs", f"{PEER} / bound", "Windlass / bound", *(f"{name} / bound" for name in short)),
        *(f"Windlass to {PEER}", *(f"{name} to {PEER}" for name in short), f"p95: {PEER} / Windlass / {short[-1]}"),
    )
    return [Table("Cost against the offline bound, and against the cheapest peer", columns, tuple(cells))]
