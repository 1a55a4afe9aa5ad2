"""Compares the cost and the wait of policies on real traces.

Real jobs (``trace_openb``: Alibaba's GPU cluster of 2023; ``trace_philly``: Microsoft's Philly) run on machines of the
catalogue at its on-demand prices, in the simulator: the production loop on a virtual clock. Only the policies differ:
the cloud, the boot times, the machines that may be bought, the jobs, and the rule by which a job finds its node are the
same.

- **Windlass**: the planner, ``idle_timeout`` 1 min; and with other timeouts, which draws its frontier. All else is the
  default. Once more with ``own_machine_premium`` (off by default): single tasks get slices of their own at equal cost
  (0), or for up to 40 % more per hour (0.4), because they can be released one by one. These rows have their own
  targets.
- **Ray**, **Cluster Autoscaler**, **Karpenter**, the **pool rule**: each replaces the planner and decides as its system
  does by default (``benchmarks/peers``; the docstrings say what is modelled, and where the model is better than the
  system). Every policy plans at the same interval: by default Ray plans every 5 s and Cluster Autoscaler every 10 s;
  here both plan as often as Windlass, so that polling makes no difference. None of them moves a running job, which
  would start from the beginning. Two also run without the marks that prevent it.
- **Fixed size**: enough machines for 95 % of the time, computed in advance; none is bought or released.
- **Offline bound**: each task on its own perfectly sized share of the machine where that costs least, for exactly its
  time. No policy can undercut it, and none can reach it, because machines are indivisible.

The machines follow from the jobs by a rule (``benchmarks/trace_world.py``). The wait of a job is from its arrival until
its last task has started; the table has the median and the 95th percentile. Costs run until the last job has ended. The
cost at a peer's wait is read off the frontier of Windlass, on the line between two of its points.

The machines of a few jobs of several weeks decide much of the result of one part, and other parts (below) differ. On
all of openb (``--full``), run once for the cheapest, Ray was at 1.938 of the bound, Windlass at 1.751, which is 9.6 %
less and not 10, and with ``own_machine_premium: 0.4`` at 1.682, which is 13.2 % less. All jobs that were running when
openb begins arrive at once here, and only there ``own_machine_premium`` has an effect.

On this part of Philly no policy can be 10 % below Ray: a GPU costs the same on every machine size, and the bound is
less than 2 % below Ray. The default loses to Ray by ties. For two jobs of one GPU that arrive at once, one machine with
two GPUs costs as much as two machines with one; ``cheapest`` buys fewer machines, and half of a large one is still paid
for when the first job ends. Ray and ``own_machine_premium: 0`` buy the small ones.

The wait says little here: nearly every 95th percentile is the time of one boot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from windlass.control.controller import Controller
from windlass.control.settings import Interval, Settings
from windlass.sim.trace.run import run_trace

from . import shared_data
from .frontier import Point, cost_at
from .peers.cluster_autoscaler import ClusterAutoscaler
from .peers.deciding import controller_of, without_rules
from .peers.fixed_size import fixed_size
from .peers.karpenter import Karpenter
from .peers.peer import Peer
from .peers.pool_rule import PoolRule
from .peers.ray import Ray
from .table import Table
from .targets import Check, at_least, at_most
from .trace_world import World, world

NAME = "traces"
TITLE = "Against the peers, on real traces"
FILES = ("trace_openb.csv.gz", "trace_philly.csv.gz")
WINDOWS: dict[str, tuple[dict[str, Any], ...]] = {
    "quick": ({"file": FILES[0], "first_day": 1, "jobs": 30}, {"file": FILES[1], "first_day": 40, "jobs": 30}),
    "default": ({"file": FILES[0], "days": 3}, {"file": FILES[1], "first_day": 40, "days": 1}),
    "full": ({"file": FILES[0]}, {"file": FILES[1]}),
}
"""Parts of the traces. Philly's first 40 days have 9 jobs each; a part of it begins where it comes to life."""
DEFAULT = "Windlass"
TIMEOUTS = {DEFAULT: "1m", "Windlass, idle 15 s": "15s", "Windlass, idle 5 min": "5m", "Windlass, idle 30 min": "30m"}
PREMIUMS = {"Windlass, premium 0": "0", "Windlass, premium 0.4": "0.4"}
EVERY = Interval().min
"""Seconds between two passes of a policy that polls: the minimum interval of Windlass."""
PEERS: dict[str, Callable[[], Peer]] = {
    "Karpenter": Karpenter,
    "Ray": lambda: Ray(every=EVERY),
    "Cluster Autoscaler": lambda: ClusterAutoscaler(every=EVERY),
    "pool rule": PoolRule,
}
EVICTING: dict[str, Callable[[], Peer]] = {
    "Karpenter, evicting": lambda: Karpenter(evicts=True),
    "Cluster Autoscaler, evicting": lambda: ClusterAutoscaler(evicts=True, every=EVERY),
}
"""Not marked as the documentation advises for such jobs: they are moved, and start from the beginning. When to do so is
seen by how full nodes are."""
FIXED = "fixed size"
OTHERS = (*PEERS, *EVICTING, FIXED)
SAVING = 10.0
"""Per cent that Windlass should cost less than the best peer at an equal wait."""


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    reason = shared_data.missing(FILES)
    if reason:
        say(f"skipped: {reason}")
        return {"name": NAME, "rows": [], "checks": [], "skipped": reason}
    rows: list[dict[str, Any]] = []
    for window in WINDOWS[which]:
        for row in compared(world(**window)):
            say(f"{row['trace']}: {row['who']}: {row['ratio']:.3f} of the bound, p95 {row['wait_p95']:.0f} s")
            rows.append({**row, "first_day": window.get("first_day", 0)})
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def policies(place: World) -> Mapping[str, tuple[Settings, Callable[..., Controller]]]:
    """Every policy: the settings that it runs with, and the controller that decides."""
    found: dict[str, tuple[Settings, Callable[..., Controller]]] = {
        name: (place.settings(f"*.scale_down.idle_timeout={timeout}"), Controller) for name, timeout in TIMEOUTS.items()
    }
    idle = f"*.scale_down.idle_timeout={TIMEOUTS[DEFAULT]}"
    found |= {
        name: (place.settings(idle, f"cluster.own_machine_premium={share}"), Controller)
        for name, share in PREMIUMS.items()
    }
    bare = without_rules(place.settings())
    found |= {name: (bare, controller_of(peer)) for name, peer in PEERS.items()}
    evicting = replace(bare, policy=replace(bare.policy, allow_eviction=True, drain_timeout=1))
    found |= {name: (evicting, controller_of(peer)) for name, peer in EVICTING.items()}
    found[FIXED] = (place.settings(policy=fixed_size(bare, place.trace.jobs)), Controller)
    return found


def compared(place: World, only: Collection[str] = ()) -> Iterator[dict[str, Any]]:
    """One row a policy; of these only, if any are named."""
    given = {"trace": place.name, "jobs": len(place.trace.jobs), "left_out": place.left_out, "bound": place.bound}
    for who, (settings, controller) in policies(place).items():
        if only and who not in only:
            continue
        began = time.process_time()
        _, found = run_trace(settings, place.trace, controller=controller, leaping=who not in EVICTING)
        yield (
            {
                **given,
                "who": who,
                "dollars": found.dollars,
                "ratio": found.dollars / place.bound,
                "wait_p50": found.wait_p50,
                "wait_p95": found.wait_p95,
                "wait_max": found.wait_max,
                "idle": (found.accounts["idle"] + found.accounts["booting"]) / found.dollars,
                "launches": found.launches,
                "finished": found.finished,
                "killed": found.killed_by_us,
                "restarted": found.evicted,
                "breaches": len(found.breaches),
                "groups": len(settings.groups),
                "seconds": time.process_time() - began,
            }
        )


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    found = []
    for trace in dict.fromkeys(row["trace"] for row in rows):
        some = [row for row in rows if row["trace"] == trace]
        ours = [_point(row) for row in some if row["who"] in TIMEOUTS]
        peers = [_point(row) for row in some if row["who"] in OTHERS]
        default = next(point for point in ours if point.name == DEFAULT)
        better = [peer for peer in peers if peer.beats(default)]
        found.append(at_most(f"{trace}: peers that are better in both cost and p95 wait", len(better), 0))
        what = f"{trace}: cost below the best peer at an equal p95 wait, the lowest wait"
        found.append(at_least(what, least_saving(ours, peers), SAVING, "%", 1))
        for name in PREMIUMS:
            row = [_point(row) for row in some if row["who"] == name]
            what = f"{trace}: the same for {name.removeprefix('Windlass, ')}, which is off by default"
            found.append(at_least(what, least_saving(row, peers), SAVING, "%", 1))
        unfinished = sum(row["jobs"] - row["finished"] + row["killed"] + row["breaches"] for row in some)
        found.append(at_most(f"{trace}: jobs not finished or killed, promises broken, all policies", unfinished, 0))
    return found


def least_saving(ours: list[Point], peers: list[Point]) -> float:
    """Per cent: at each peer's wait, against the cheapest of the peers that are at least as fast; the least of them.

    Where Windlass was never so fast, its fastest point stands for it.
    """
    savings = []
    for peer in peers:
        best = min(one.cost for one in peers if one.wait <= peer.wait)
        fastest = min(ours, key=lambda one: (one.wait, one.cost))
        mine = cost_at(ours, peer.wait)
        savings.append(100 * (1 - (fastest.cost if mine is None else mine) / best))
    return min(savings)


def _point(row: Mapping[str, Any]) -> Point:
    return Point(row["who"], row["wait_p95"], row["dollars"])


def tables(result: dict[str, Any]) -> list[Table]:
    shown = []
    for trace in dict.fromkeys(row["trace"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["trace"] == trace]
        ours = [_point(row) for row in rows if row["who"] in TIMEOUTS]
        first = rows[0]
        cells: list[tuple[str, ...]] = [
            (
                row["who"],
                f"{row['dollars']:,.0f}",
                f"{row['ratio']:.3f}",
                f"{row['wait_p50']:.0f} s",
                f"{row['wait_p95']:.0f} s",
                f"{row['wait_max']:.0f} s",
                f"{100 * row['idle']:.1f} %",
                f"{row['launches']:,}",
                f"{row['restarted']:,}",
                _against(row, ours),
            )
            for row in sorted(rows, key=lambda row: float(row["dollars"]))
        ]
        cells.insert(0, ("offline bound", f"{first['bound']:,.0f}", "1.000", *["-"] * 7))
        columns = (
            "policy",
            "$",
            "/ bound",
            "wait p50",
            "p95",
            "max",
            "boot+idle",
            "launches",
            "restarts",
            "default at its p95",
        )
        left_out = f", {first['left_out']:,} left out" if first["left_out"] else ""
        begins = f" from day {first['first_day']:g} on" if first["first_day"] else ""
        title = f"{trace}{begins}: {first['jobs']:,} jobs{left_out}, {first['groups']} machine types"
        shown.append(Table(title, columns, tuple(cells), note=_note(rows)))
    return shown


def _against(row: Mapping[str, Any], ours: list[Point]) -> str:
    """What Windlass costs at the wait of a peer, against it."""
    if row["who"] not in OTHERS:
        return ""
    cost = cost_at(ours, row["wait_p95"])
    return "not so fast" if cost is None else f"{100 * (cost / row['dollars'] - 1):+.1f} %"


def _note(rows: list[dict[str, Any]]) -> str:
    best = min((row for row in rows if row["who"] in OTHERS), key=lambda row: float(row["dollars"]))
    most = 100 * (1 - 1 / best["ratio"])
    return f"The cheapest peer is {best['who']}; the bound itself costs {most:.1f} % less than it."
