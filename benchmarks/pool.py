"""Measures the overhead of a task in the elastic pool, against other libraries with the same two processes.

- Ten thousand tasks that do nothing, in seconds of wall time, everything warm, the median of several runs: the pool's
  ``gather`` on two local nodes; joblib's loky with its automatic batches; Dask and Ray with one ``submit`` for each
  task, as their own introductions show it. All in the same run, each with two processes.
- Tasks of 100 ms on two nodes: how much longer it takes than the work itself.
- From a burst to the first task of a new node: one node is busy, another task arrives, and the time until it runs on
  the node that was bought for it is measured.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

from .fresh import measured_afresh
from .table import Table, seconds
from .targets import Check, at_most, below

NAME = "pool"
TITLE = "The elastic pool"
TASKS = {"quick": 2_000, "default": 10_000}
RUNS = {"quick": 2, "default": 5}
PEERS = {"joblib": "joblib (loky)", "distributed": "Dask submit", "ray": "Ray submit"}
"""Modules, and how they are called in the table."""


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    tasks, runs = TASKS.get(which, TASKS["default"]), RUNS.get(which, RUNS["default"])
    rows = []
    for who, function in (("Windlass", "with_windlass"), *((PEERS[name], f"with_{name}") for name in PEERS)):
        module = next((name for name, shown in PEERS.items() if shown == who), "distributed")
        if importlib.util.find_spec(module) is None:
            say(f"{who}: not installed")
            continue
        took = measured_afresh("pool", function, tasks=tasks, runs=runs)["seconds"]
        rows.append({"who": who, "seconds": took, "tasks": tasks})
        say(f"{who}: {tasks:,} tasks in {took:.2f} s")
    work = measured_afresh("pool", "overhead", tasks=50 if which == "quick" else 200)
    say(f"overhead of 100 ms: {work['percent']:.1f} %")
    burst = measured_afresh("pool", "burst", samples=1 if which == "quick" else 5)
    say(f"burst to the first task of a new node: {burst['seconds']:.2f} s")
    return {"name": NAME, "rows": rows, "overhead": work, "burst": burst, "checks": checks(rows, work, burst)}


def checks(rows: list[dict[str, Any]], work: dict[str, Any], burst: dict[str, Any]) -> list[Check]:
    took = {row["who"]: row["seconds"] for row in rows}
    mine, found = took["Windlass"], []
    if PEERS["joblib"] in took:
        found.append(at_most("no-op tasks, against joblib's loky", mine / took[PEERS["joblib"]], 2, "x"))
    found += [
        below(f"no-op tasks, against {PEERS[name]}", mine / took[PEERS[name]], 1, "x", 3)
        for name in ("distributed", "ray")
        if PEERS[name] in took
    ]
    found.append(below("overhead of a task of 100 ms", work["percent"], 5, "%", 1))
    found.append(below("from a burst to the first task of a new node", burst["seconds"], 5, "s", 1))
    return found


def tables(result: dict[str, Any]) -> list[Table]:
    rows = tuple(
        (row["who"], seconds(row["seconds"]), f"{1e6 * row['seconds'] / row['tasks']:.0f} us") for row in result["rows"]
    )
    work, burst = result["overhead"], result["burst"]
    others = (
        ("overhead of a task of 100 ms", f"{work['percent']:.1f} %"),
        ("burst to the first task of a new node", seconds(burst["seconds"])),
    )
    count = result["rows"][0]["tasks"]
    return [
        Table(f"{count:,} tasks that do nothing, on two processes", ("who", "time", "a task"), rows),
        Table("What it takes", ("what", "measured"), others),
    ]


# -- in processes of their own -----------------------------------------------------------------------------------------


def nothing(value: int) -> int:
    return value


def doze(length: float) -> None:
    time.sleep(length)


def _median(run: Callable[[int], Any], tasks: int, runs: int) -> float:
    run(tasks // 10)  # warm
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        run(tasks)
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def with_windlass(tasks: int, runs: int) -> dict[str, Any]:
    import windlass as wl

    made = wl.compute(nothing)
    with wl.ComputePool(wl.Local(), 2, console=False) as pool:
        made(0) @ pool

        def run(count: int) -> Any:
            return wl.gather(*[made(number) for number in range(count)]) >> pool

        return {"seconds": _median(run, tasks, runs)}


def with_joblib(tasks: int, runs: int) -> dict[str, Any]:
    import joblib  # type: ignore[import-untyped, unused-ignore]

    with joblib.Parallel(n_jobs=2) as parallel:

        def run(count: int) -> Any:
            return parallel(joblib.delayed(nothing)(number) for number in range(count))

        return {"seconds": _median(run, tasks, runs)}


def with_distributed(tasks: int, runs: int) -> dict[str, Any]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):

        def run(count: int) -> Any:
            return client.gather([client.submit(nothing, number, pure=False) for number in range(count)])

        return {"seconds": _median(run, tasks, min(runs, 2))}  # so slow that two are enough


def with_ray(tasks: int, runs: int) -> dict[str, Any]:
    import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    remote = ray.remote(nothing)
    try:
        submit = lambda count: ray.get([remote.remote(n) for n in range(count)])  # noqa: E731
        return {"seconds": _median(submit, tasks, min(runs, 2))}  # so slow that two tell enough
    finally:
        ray.shutdown()


def overhead(tasks: int) -> dict[str, Any]:
    """Per cent that tasks of 100 ms take longer than their work, on two nodes."""
    import windlass as wl

    made = wl.compute(doze)
    with wl.ComputePool(wl.Local(), 2, console=False) as pool:
        made(0) @ pool
        wl.gather(*[made(0.1) for _ in range(4)]) >> pool
        begun = time.perf_counter()
        wl.gather(*[made(0.1) for _ in range(tasks)]) >> pool
        took = time.perf_counter() - begun
    return {"percent": 100 * (took / (tasks * 0.1 / 2) - 1), "seconds": took}


def burst(samples: int) -> dict[str, Any]:
    """Seconds from a task that finds no slot to its beginning on a node that was bought for it."""
    import windlass as wl

    made = wl.compute(doze)
    took = []
    for _ in range(samples):
        with wl.ComputePool(wl.Local(), (1, 2), console=False) as pool:
            made(0) @ pool
            busy = made(60.0) > pool
            while not busy.running():
                time.sleep(0.005)
            begun = time.perf_counter()
            new = made(0.0) > pool
            new.result()
            took.append(time.perf_counter() - begun)
            busy.cancel()
    return {"seconds": statistics.median(took)}
