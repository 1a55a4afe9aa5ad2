"""Measures what spot machines save, and how much work their preemptions cost.

Jobs of two days of Philly run on the machines of ``benchmarks/trace_world.py``, each at its on-demand price and once
more as a spot machine at its spot price, in the simulator. How many spot machines of each type are available, and when
they are preempted, follows recordings of three real zones (``spot_availability_rle``: up to 16 V100 machines on AWS in
2023, which stand for every type here). The planner buys the cheapest available machines. A refused launch backs off,
and on-demand machines are bought in the meantime. A task that loses its machine starts from the beginning, without
checkpoints and without notice.

Whether that pays depends on the length of the jobs, so it is shown for jobs of at most an hour, four hours and a day.
Lost work is the time that tasks had run when their machine was preempted, as a share of all task-hours.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from windlass.config.set_option import overridden
from windlass.control.settings import Settings
from windlass.core.model.quantities import NANO
from windlass.sim.cloud.stock import StockRecording, read_recordings
from windlass.sim.trace.reader import read_trace
from windlass.sim.trace.run import run_trace

from . import shared_data
from .table import Table
from .targets import Check, at_most
from .trace_world import DAY, World, group_name, world_of

NAME = "spot"
TITLE = "Spot machines with recorded availability"
JOBS, STOCK, CAMPAIGN = "trace_philly.csv.gz", "spot_availability_rle.csv.gz", "aws-08-27-2023"
FIRST_DAY, DAYS = 40, 2
LONGEST = {"an hour": 3600.0, "4 hours": 4 * 3600.0, "a day": DAY}
INPUTS: dict[str, int | None] = {"quick": 40}
"""At most so many jobs of each length; else all."""
FIRM, SPOT = "on demand only", "spot and on demand"
IDLE = "*.scale_down.idle_timeout=1m"


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    reason = shared_data.missing((JOBS, STOCK))
    if reason:
        say(f"skipped: {reason}")
        return {"name": NAME, "rows": [], "checks": [], "skipped": reason}
    recordings = read_recordings(shared_data.directory() / STOCK, {"campaign": CAMPAIGN})
    rows = []
    for longest, seconds in LONGEST.items():
        place = world_for(seconds, INPUTS.get(which))
        for who, settings in ((FIRM, place.settings(IDLE)), (SPOT, with_spot(place))):
            row = {"longest": longest, "who": who, **run(place, settings, recordings)}
            say(f"at most {longest}: {who}: ${row['dollars']:,.2f}, {100 * row['lost']:.1f} % of the work lost")
            rows.append(row)
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def world_for(longest: float, jobs: int | None) -> World:
    """The jobs that took no longer, and machines for them."""
    whole = read_trace(shared_data.directory() / JOBS).jobs
    some = [job for job in whole if FIRST_DAY * DAY <= job.arrives < (FIRST_DAY + DAYS) * DAY]
    return world_of("philly", [job for job in some if job.duration <= longest][:jobs], shared_data.catalogue())


def with_spot(place: World) -> Settings:
    """The machines of a world, and each of them that has a spot price as a spot machine."""
    config = json.loads(place.config)
    for kind in shared_data.catalogue():
        group = config["groups"].get(group_name(kind))
        if group is not None and kind.spot_price is not None:
            price = f"{kind.spot_price / NANO:.6f}"
            config["groups"][f"{group_name(kind)}-spot"] = {**group, "price": price, "preemptible": True}
    return overridden(json.dumps(config), path=place.name, changes=(IDLE,)).settings


def run(place: World, settings: Settings, recordings: tuple[StockRecording, ...]) -> dict[str, Any]:
    hours = sum(job.duration * job.demand.count for job in place.trace.jobs) / 3600
    began = time.process_time()
    _, found = run_trace(settings, place.trace, recordings=recordings)
    return {
        "jobs": found.jobs,
        "hours": hours,
        "dollars": found.dollars,
        "wait_p50": found.wait_p50,
        "wait_p95": found.wait_p95,
        "preempted": found.lost_to_preemption,
        "lost": found.lost_hours / hours,
        "launches": found.launches,
        "finished": found.finished,
        "killed": found.killed_by_us,
        "breaches": len(found.breaches),
        "seconds": time.process_time() - began,
    }


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    wrong = sum(row["jobs"] - row["finished"] + row["killed"] + row["breaches"] for row in rows)
    return [at_most("spot: jobs not finished or killed by us, promises broken, all rows", wrong, 0)]


def tables(result: dict[str, Any]) -> list[Table]:
    rows = result["rows"]
    firm = {row["longest"]: row["dollars"] for row in rows if row["who"] == FIRM}
    cells = tuple(
        (
            f"at most {row['longest']}",
            f"{row['jobs']:,}",
            f"{row['hours']:,.0f}",
            row["who"],
            f"{row['dollars']:,.2f}",
            f"{100 * (row['dollars'] / firm[row['longest']] - 1):+.1f} %" if row["who"] == SPOT else "",
            f"{row['preempted']:,}",
            f"{100 * row['lost']:.1f} %",
            f"{row['wait_p50']:.0f} s",
            f"{row['wait_p95']:.0f} s",
            f"{row['launches']:,}",
        )
        for row in rows
    )
    columns = (
        *("jobs of", "jobs", "task-hours", "bought", "$", "to on demand"),
        *("preempted", "work lost", "wait p50", "p95", "launches"),
    )
    return [Table(f"philly from day {FIRST_DAY} on, {DAYS} days, stock of {CAMPAIGN}", columns, cells)]
