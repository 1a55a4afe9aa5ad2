"""Measures how the time of one plan grows with demand and nodes, and the time of the largest plan.

Four questions, each in CPU seconds of ``plan(snapshot)``:

- 1,000 to 1,000,000 demands of the same 100 shapes, given as counts, all served by new machines. ``to_dict`` is
  measured separately: it names every machine and placement, so it grows with the answer.
- 100 to 10,000 half-free nodes, each with a usage of its own.
- 1,000,000 demands, 10,000 half-free nodes, 100 groups: the first plan of a fresh process, and its peak memory.
- 100,000 demands as separate entries of a JSON file: reading it and planning.

Both strategies: ``best-fit``, and ``cheapest`` with a price on every group.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import windlass
from windlass.core.model.snapshot import Choose, Snapshot

from .fresh import measured_afresh
from .inputs import Needs, Problem, Size, as_snapshot, listed, make
from .planning import plan_time
from .table import Table, number, seconds
from .targets import Check, at_most, below
from .timing import cpu_time

NAME = "growth"
TITLE = "Growth"
STRATEGIES: tuple[Choose, ...] = ("best-fit", "cheapest")
DEMANDS = {"quick": (1_000, 1_000_000), "default": (1_000, 10_000, 100_000, 1_000_000)}
NODES = {"quick": (100, 1_000), "default": (100, 1_000, 10_000)}
NODE_AXIS_DEMANDS = 1_000_000
"""Enough demand to fill every node; with less, more nodes would mean fewer purchases and hide the growth."""
LARGEST = Size(1_000_000, 10_000, shapes=100, types=100)
ENTRIES = 100_000


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    for choose in STRATEGIES:
        rows += [demand_row(count, choose) for count in DEMANDS.get(which, DEMANDS["default"])]
        say(f"demand, {choose}: {', '.join(seconds(row['seconds']) for row in rows if row['choose'] == choose)}")
    for choose in STRATEGIES:
        rows += [node_row(count, choose) for count in NODES.get(which, NODES["default"])]
        say(f"nodes, {choose}: done")
    for choose in STRATEGIES:
        rows.append(largest_row(choose))
        say(f"largest, {choose}: {seconds(rows[-1]['seconds'])}, {rows[-1]['peak_mb']:.0f} MB")
    for choose in STRATEGIES:
        rows.append(file_row(ENTRIES, choose))
        say(f"file, {choose}: {seconds(rows[-1]['read_seconds'] + rows[-1]['seconds'])}")
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def problem_as(problem: Problem, choose: Choose) -> Snapshot:
    """Return the input with prices for ``cheapest``, and without for the others."""
    return as_snapshot(problem, choose, listed if choose == "cheapest" else None)


def demand_row(demands: int, choose: Choose, shapes: int = 100, types: int = 100) -> dict[str, Any]:
    snapshot = problem_as(make(Size(demands, 0, shapes=shapes, types=types)), choose)
    return {"axis": "demands", "choose": choose, "demands": demands, "nodes": 0, **_planned(snapshot)}


def node_row(nodes: int, choose: Choose, demands: int = NODE_AXIS_DEMANDS) -> dict[str, Any]:
    snapshot = problem_as(make(Size(demands, nodes, shapes=100, types=20)), choose)
    found = _planned(snapshot, with_dict=False)
    return {"axis": "nodes", "choose": choose, "demands": demands, "nodes": nodes, **found}


def largest_row(choose: Choose, size: Size = LARGEST) -> dict[str, Any]:
    arguments = {"demands": size.demands, "nodes": size.nodes, "shapes": size.shapes, "types": size.types}
    found = measured_afresh("growth", "first_plan", choose=choose, **arguments)
    return {"axis": "largest", "choose": choose, **arguments, **found}


def first_plan(choose: Choose, demands: int, nodes: int, shapes: int, types: int) -> dict[str, Any]:
    """Run in a separate process, without ``to_dict``, as the controller does."""
    snapshot = problem_as(make(Size(demands, nodes, shapes=shapes, types=types)), choose)
    timed = cpu_time(lambda: windlass.plan(snapshot), repeats=1)
    return {
        "seconds": timed.seconds,
        "launched": sum(timed.result.launch.values()),
        "waiting": sum(item.count for item in timed.result.waiting),
    }


def file_row(entries: int, choose: Choose, shapes: int = 100) -> dict[str, Any]:
    text = scenario_text(entries, shapes, choose)
    read = cpu_time(lambda: windlass.read_scenario(text), repeats=3, enough=10)
    snapshot = read.result
    row = {"axis": "file", "choose": choose, "demands": entries, "nodes": 0, "megabytes": len(text) / 1e6}
    return {**row, "read_seconds": read.seconds, **_planned(snapshot, with_dict=False)}


def scenario_text(entries: int, shapes: int, choose: Choose) -> str:
    """Return a scenario file with one entry and one id per task."""
    problem = make(Size(entries, 0, shapes=shapes, types=100))
    price = {name: listed(needs) / 1e9 for name, needs in problem.types.items()} if choose == "cheapest" else {}
    groups = {
        name: {"resources": _written(needs), "max": 1_000_000, **({"price": price[name]} if price else {})}
        for name, needs in problem.types.items()
    }
    single = [needs for needs, count in problem.singles for _ in range(count)]
    step = 7919  # a prime, so that neighbours in the file have different shapes
    demands = [
        {"id": f"task-{index:06}", "needs": _written(single[index * step % len(single)])}
        for index in range(len(single))
    ]
    return json.dumps({"cluster": {"choose": choose}, "groups": groups, "demands": demands})


def _written(needs: Needs) -> dict[str, Any]:
    return {name: f"{amount:g}Gi" if name == "memory" else amount for name, amount in needs.items()}


def _planned(snapshot: Snapshot, with_dict: bool = True) -> dict[str, Any]:
    timed = plan_time(snapshot, enough=2)
    found = {
        "seconds": timed.seconds,
        "launched": sum(timed.result.launch.values()),
        "waiting": sum(item.count for item in timed.result.waiting),
    }
    if with_dict:
        # Placements are worked out once per plan, so each repeat needs a plan of its own.
        whole = plan_time(snapshot, lambda planned: planned.to_dict(), repeats=3, enough=2)
        found["with_dict_seconds"] = whole.seconds
    return found


# -- what was to be reached --------------------------------------------------------------------------------------------


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    found = []
    for choose in STRATEGIES:
        of = [row for row in rows if row["choose"] == choose]
        demand = [row for row in of if row["axis"] == "demands"]
        if len(demand) > 1:
            first, last = demand[0], demand[-1]
            what = f"{choose}: time of {last['demands']:,} demands / {first['demands']:,}"
            found.append(below(what, last["seconds"] / first["seconds"], 2, "x"))
        nodes = [row for row in of if row["axis"] == "nodes"]
        for first, last in pairwise(nodes):
            what = f"{choose}: time of {last['nodes']:,} nodes / {first['nodes']:,}"
            found.append(at_most(what, last["seconds"] / first["seconds"], last["nodes"] / first["nodes"], "x"))
        for row in of:
            if row["axis"] == "largest":
                what = f"{choose}: {row['demands']:,} demands, {row['nodes']:,} nodes, {row['types']} groups"
                found.append(below(f"{what}: CPU time", row["seconds"], 1, "s"))
                found.append(below(f"{what}: peak memory", row["peak_mb"], 300, "MB", digits=0))
            elif row["axis"] == "file":
                what = f"{choose}: read and plan {row['demands']:,} JSON entries"
                found.append(below(what, row["read_seconds"] + row["seconds"], 2, "s"))
        unserved = sum(row["waiting"] for row in of)
        found.append(at_most(f"{choose}: demands left waiting, all rows together", unserved, 0))
    return found


def tables(result: dict[str, Any]) -> list[Table]:
    rows = result["rows"]

    def table(axis: str, title: str, columns: tuple[str, ...], cells: Callable[[Any], tuple[str, ...]]) -> Table:
        shown = tuple((row["choose"], *cells(row)) for row in rows if row["axis"] == axis)
        return Table(title, ("strategy", *columns), shown)

    return [
        table(
            "demands",
            "100 shapes as counts, 100 groups, no nodes yet",
            ("demands", "plan", "plan + to_dict", "launched"),
            lambda row: (
                number(row["demands"]),
                seconds(row["seconds"]),
                seconds(row["with_dict_seconds"]),
                number(row["launched"]),
            ),
        ),
        table(
            "nodes",
            f"{NODE_AXIS_DEMANDS:,} demands in 100 shapes on half-free nodes, 20 groups",
            ("nodes", "plan", "launched"),
            lambda row: (number(row["nodes"]), seconds(row["seconds"]), number(row["launched"])),
        ),
        table(
            "largest",
            "The largest plan, the first of a fresh process; memory of the whole process",
            ("demands", "nodes", "groups", "plan", "peak memory"),
            lambda row: (
                number(row["demands"]),
                number(row["nodes"]),
                number(row["types"]),
                seconds(row["seconds"]),
                f"{row['peak_mb']:.0f} MB",
            ),
        ),
        table(
            "file",
            "Separate entries of a JSON file, 100 shapes",
            ("entries", "file", "read", "plan", "together"),
            lambda row: (
                number(row["demands"]),
                f"{row['megabytes']:.1f} MB",
                seconds(row["read_seconds"]),
                seconds(row["seconds"]),
                seconds(row["read_seconds"] + row["seconds"]),
            ),
        ),
    ]
