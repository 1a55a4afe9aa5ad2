"""Compares the policies on other parts of the traces.

One window of a trace is a single sample, and ``own_machine_premium: 0.4`` was chosen on the window of openb above.
Seven values were tried there with a first version of the rule: 0 changed nothing, 0.01 and 0.05 cost as much as Ray,
0.1 and 0.2 cost a little less than the default, 0.4 and 0.8 cost least. So the cheapest peer and Windlass are compared
again on parts that no choice was based on: every four days of openb from day 10 on, and three other days of Philly.
Every policy plans at the same interval, as above. The 95th percentile of the wait is then the time of one boot in every
part, for every policy. Ray costs less in 4 of the 8 parts, Windlass in the other 4.

The parts differ by tens of per cent in either direction: a single job of several weeks on an expensive machine decides
such a part, and its machine depends on chance. So no single part, the window above included, says which policy is
better. If jobs arrive one by one, ``own_machine_premium`` has no effect; on Philly it is a little cheaper on some days
only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import shared_data
from .frontier import Point
from .table import Table
from .targets import Check, at_most
from .trace_world import world
from .traces import DEFAULT, FILES, PREMIUMS, compared

NAME = "parts"
TITLE = "Other parts of the traces"
PEER = "Ray"
WHO = (PEER, DEFAULT, *PREMIUMS)
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
        waits = [
            " / ".join(f"{rows[who][key]:.0f} s" if key in rows[who] else "-" for who in (PEER, DEFAULT, WHO[-1]))
            for key in ("wait_p50", "wait_p95")
        ]
        cells.append((part, f"{ray['jobs']:,}", *shown, *against, *waits))
    short = [name.removeprefix("Windlass, ") for name in PREMIUMS]
    columns = (
        *("part", "jobs", f"{PEER} / bound", "Windlass / bound", *(f"{name} / bound" for name in short)),
        *(f"Windlass to {PEER}", *(f"{name} to {PEER}" for name in short)),
        *(f"{key}: {PEER} / Windlass / {short[-1]}" for key in ("p50", "p95")),
    )
    return [Table("Cost against the offline bound, and against the cheapest peer", columns, tuple(cells))]
