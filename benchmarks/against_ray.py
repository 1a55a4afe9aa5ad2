"""Compares CPU time and launched nodes with Ray's own scheduler, for the same demand, nodes and machine types.

Ray gets what its autoscaler natively passes to ``ResourceDemandScheduler.schedule``: requests by count, placement
groups as gang requests, running nodes as instances. Windlass gets the same as a ``Snapshot``, in two configurations:

- ``best-fit``, its way when there are no prices. Ray's score prefers few large nodes; best-fit takes snug ones, so it
  may launch more nodes that are smaller together. Therefore cpus and GPUs bought are counted as well.
- ``cheapest`` with a price of 1 for every type: as few nodes as possible. Ray knows no price, and every node counts the
  same for it, so this is the fair one for counts.

Both sides may launch as many nodes as they like at once; nothing is released. A run of Ray is ended after 60 CPU
seconds: then its time is a lower bound, and so is the ratio. Inputs that are larger than one where Ray was ended are
not tried with Ray.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from importlib import import_module
from typing import Any

from windlass.core.model.snapshot import Choose

from .inputs import GIB, Needs, Problem, Size, as_snapshot, make, one_each
from .planning import plan_time
from .table import Table, number, seconds
from .targets import Check, at_least, at_most
from .timing import cpu_time_in_child

NAME = "against_ray"
TITLE = "Against Ray's scheduler"
LIMIT = 60.0
DEMANDS = (100, 1_000, 10_000, 100_000)
NODES = (10, 100, 1_000)
HEADLINE = ((1_000, 1_000), (10_000, 100))
"""Inputs (demands, half-free nodes) for which the target is 500 times Ray's speed."""

AXES: tuple[tuple[str, Any], ...] = (
    ("shapes", 100),
    ("types", 20),
    ("gangs", "strict-spread"),
    ("gangs", "pack"),
    ("gangs", "strict-pack"),
)
WAYS: tuple[tuple[str, Choose, Callable[[Needs], int] | None], ...] = (
    ("best-fit", "best-fit", None),
    ("fewest", "cheapest", one_each),
)
"""Name of a configuration of Windlass, strategy, price."""


def sizes(which: str) -> list[Size]:
    """Return the inputs of ``quick`` (under a minute), ``default`` or ``full`` (everything)."""
    if which == "quick":
        return [Size(100, 10), Size(100, 10, "full"), Size(1_000, 10), Size(1_000, 100), Size(100, 10, gangs="pack")]
    grid = [Size(d, n, fill) for fill in ("full", "half") for n in NODES for d in DEMANDS]
    bases = [Size(100, 100), Size(1_000, 100), Size(10_000, 100)]
    if which == "default":
        grid = [size for size in grid if size.demands < 100_000]
        bases = bases[:2]
    return grid + [replace(base, **{axis: value}) for base in bases for axis, value in AXES]


# -- one side and the other --------------------------------------------------------------------------------------------


def with_windlass(problem: Problem, choose: Choose, price: Callable[[Needs], int] | None) -> dict[str, Any]:
    snapshot = as_snapshot(problem, choose, price)
    timed = plan_time(snapshot)
    unserved = sum(item.count for item in timed.result.waiting)
    return {"seconds": timed.seconds, "unserved": unserved, **bought(problem, timed.result.launch)}


def bought(problem: Problem, launch: Mapping[str, int]) -> dict[str, Any]:
    """The number of launched nodes, and their total resources."""
    cpus = sum(problem.types[name]["cpu"] * count for name, count in launch.items())
    gpus = sum(problem.types[name].get("gpu", 0.0) * count for name, count in launch.items())
    return {"launched": sum(launch.values()), "cpus": cpus, "gpus": gpus, "launch": dict(sorted(launch.items()))}


def with_ray(problem: Problem, limit: float = LIMIT) -> dict[str, Any] | None:
    """None if it did not finish within the limit."""
    scheduler = import_module("ray.autoscaler.v2.scheduler").ResourceDemandScheduler
    request = as_ray_request(problem)

    def schedule() -> dict[str, Any]:
        reply = scheduler().schedule(request)
        launch = {item.instance_type: item.count for item in reply.to_launch}
        gangs = sum(len(gang.requests) for gang in reply.infeasible_gang_resource_requests)
        return {"unserved": len(reply.infeasible_resource_requests) + gangs, **bought(problem, launch)}

    timed = cpu_time_in_child(schedule, limit)
    return None if timed is None else {"seconds": timed.seconds, **timed.result}


def as_ray_request(problem: Problem) -> Any:
    """Return the arguments of ``ResourceDemandScheduler.schedule``."""
    config = import_module("ray.autoscaler.v2.instance_manager.config")
    scheduler = import_module("ray.autoscaler.v2.scheduler")
    schema = import_module("ray.autoscaler.v2.schema")
    requests_of = import_module("ray.autoscaler.v2.utils").ResourceRequestUtil
    state = import_module("ray.core.generated.autoscaler_pb2")
    manager = import_module("ray.core.generated.instance_manager_pb2")

    logging.getLogger("ray").setLevel(logging.ERROR)
    kind = requests_of.PlacementConstraintType
    constraints = {"strict-spread": kind.ANTI_AFFINITY, "strict-pack": kind.AFFINITY}
    instances = []
    for index, (name, used) in enumerate(problem.running):
        total = in_ray_units(problem.types[name])
        spent = in_ray_units(used)
        node = state.NodeState(
            node_id=f"{index:056x}".encode(),
            instance_id=f"i-{index}",
            ray_node_type_name=name,
            available_resources={key: amount - spent.get(key, 0.0) for key, amount in total.items()},
            total_resources=total,
            status=state.NodeStatus.RUNNING,
        )
        instance = manager.Instance(
            instance_id=f"im-{index}",
            cloud_instance_id=f"i-{index}",
            node_id=f"{index:056x}",
            instance_type=name,
            status=manager.Instance.RAY_RUNNING,
            node_kind=manager.NodeKind.WORKER,
        )
        instances.append(schema.AutoscalerInstance(cloud_instance_id=f"i-{index}", ray_node=node, im_instance=instance))
    gangs = []
    for index, (name, members) in enumerate(problem.gangs):
        constraint = [(constraints[name], f"_PG_{index}", "")] if name in constraints else None
        requests = [requests_of.make(in_ray_units(needs), constraint) for needs, count in members for _ in range(count)]
        gangs.append(state.GangResourceRequest(requests=requests))
    return scheduler.SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs={
            name: config.NodeTypeConfig(name, 0, problem.most, resources=in_ray_units(needs))
            for name, needs in problem.types.items()
        },
        resource_requests=[
            state.ResourceRequestByCount(request=requests_of.make(in_ray_units(needs)), count=count)
            for needs, count in problem.singles
        ],
        gang_resource_requests=gangs,
        current_instances=instances,
    )


def in_ray_units(needs: Needs) -> dict[str, float]:
    """Return resources under Ray's names, with memory in bytes."""
    names = {"cpu": "CPU", "gpu": "GPU", "memory": "memory"}
    return {names[name]: amount * GIB if name == "memory" else amount for name, amount in needs.items()}


# -- both --------------------------------------------------------------------------------------------------------------


def ray_missing() -> str | None:
    """Explain why Ray cannot be measured; None if it can."""
    if importlib.util.find_spec("ray") is None:
        return "Ray is not installed: pip install '.[bench]'"
    return None


def measure(
    which: str = "default", say: Callable[[str], None] = lambda _: None, limit: float = LIMIT
) -> dict[str, Any]:
    reason = ray_missing()
    if reason:
        say(f"skipped: {reason}")
        return {"name": NAME, "rows": [], "checks": [], "skipped": reason}
    return measure_sizes(sizes(which), say, limit)


def measure_sizes(inputs: Iterable[Size], say: Callable[[str], None], limit: float = LIMIT) -> dict[str, Any]:
    """Measure each input, the smaller ones first, and check the targets."""
    rows: list[dict[str, Any]] = []
    too_long: list[Size] = []
    for size in sorted(inputs, key=lambda one: (one.demands * one.nodes, one.demands)):
        problem = make(size)
        ours = {name: with_windlass(problem, choose, price) for name, choose, price in WAYS}
        smaller = next((one for one in too_long if _at_least(size, one)), None)
        theirs = with_ray(problem, limit) if smaller is None else None
        if theirs is None and smaller is None:
            too_long.append(size)
        took = theirs["seconds"] if theirs else limit
        rows.append(
            {
                "input": asdict(size),
                "windlass": {name: {**one, "ratio": took / one["seconds"]} for name, one in ours.items()},
                "ray": theirs,
                "ray_skipped_because_of": None if smaller is None else asdict(smaller),
                "limit": limit,
            }
        )
        say(" | ".join(cells(rows[-1])))
    return {"name": NAME, "ray": importlib.metadata.version("ray"), "rows": rows, "checks": checks(rows)}


def _at_least(size: Size, smaller: Size) -> bool:
    """Return whether ``smaller`` differs only by fewer demands or nodes."""
    same = replace(size, demands=smaller.demands, nodes=smaller.nodes) == smaller
    return same and size.demands >= smaller.demands and size.nodes >= smaller.nodes


# -- what was to be reached --------------------------------------------------------------------------------------------


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    found = []
    for way, *_ in WAYS:
        for demands, nodes in HEADLINE:
            for row in rows:
                if row["input"] == asdict(Size(demands, nodes)):
                    what = f"{way}: {demands:,} demands, {nodes:,} half-free nodes: times as fast as Ray"
                    ratio, lower = row["windlass"][way]["ratio"], row["ray"] is None
                    found.append(at_least(what, ratio, 500, "x", digits=0, lower=lower))
        slowest = min(row["windlass"][way]["ratio"] for row in rows)
        found.append(at_least(f"{way}: times as fast as Ray on the worst of {len(rows)} rows", slowest, 1, "x"))
        known = [row for row in rows if row["ray"]]
        same = [row for row in known if row["ray"]["unserved"] == row["windlass"][way]["unserved"]]
        more = [row for row in same if row["windlass"][way]["launched"] > row["ray"]["launched"]]
        what = f"{way}: rows with more nodes than Ray launches, of {len(same)} where both serve the same"
        found.append(at_most(what, len(more), 0))
        worse = [row for row in known if row["windlass"][way]["unserved"] > row["ray"]["unserved"]]
        what = f"{way}: rows with more demand unserved than with Ray, of {len(known)}"
        found.append(at_most(what, len(worse), 0))
    return found


COLUMNS = (
    *("demands", "nodes", "input", "Ray", "best-fit", "", "fewest", ""),
    *("nodes: Ray", "best-fit", "fewest", "cpus: Ray", "best-fit", "fewest", "gpus: Ray", "best-fit", "fewest"),
)


def cells(row: dict[str, Any]) -> tuple[str, ...]:
    given, ray, windlass_ = row["input"], row["ray"], row["windlass"]
    words = [given["fill"]]
    if given["shapes"] != 10:
        words.append(f"{given['shapes']} shapes")
    if given["types"] != 5:
        words.append(f"{given['types']} types")
    if given["gangs"] != "none":
        words.append(f"gangs {given['gangs']}")
    if ray:
        time = seconds(ray["seconds"])
    else:
        time = f"> {row['limit']:g} s" + ("*" if row["ray_skipped_because_of"] else "")
    timed = []
    for way, *_ in WAYS:
        ratio = windlass_[way]["ratio"]
        shown = f"{ratio:,.0f}x" if ratio >= 10 else f"{ratio:.1f}x"
        timed += [seconds(windlass_[way]["seconds"]), shown if ray else f"> {shown}"]
    counts = [
        number(side[what] if side else None)
        for what in ("launched", "cpus", "gpus")
        for side in (ray, *(windlass_[way] for way, *_ in WAYS))
    ]
    return (number(given["demands"]), number(given["nodes"]), ", ".join(words), time, *timed, *counts)


def tables(result: dict[str, Any]) -> list[Table]:
    rows = sorted(result["rows"], key=lambda row: _order(row["input"]))
    note = (
        "Half: between a quarter and three quarters of each node is free; full: nothing is. 10 shapes and 5 types "
        "where nothing else is said; half of the demand is in gangs of 8 where gangs are. `>`: Ray was ended at the "
        "limit, so the ratio is a lower bound; `*`: not even tried, because a smaller input had exceeded the limit."
    )
    title = f"CPU time, times as fast, and what is launched (Ray {result.get('ray', '')})"
    return [Table(title, COLUMNS, tuple(cells(row) for row in rows), note, left=0)]


def _order(given: dict[str, Any]) -> tuple[Any, ...]:
    grid = (given["shapes"], given["types"], given["gangs"]) == (10, 5, "none")
    return (not grid, given["shapes"], given["types"], given["gangs"], given["fill"], given["nodes"], given["demands"])
