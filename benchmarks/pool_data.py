"""Measures large values in the elastic pool, against loky and Ray in the same run, each with two warm processes.

- 20 tasks that share an array of 52 MB: the pool's ``put``, Ray's ``put``, and loky with the array as an argument.
- 6 tasks that take an array of 52 MB and give one back.
- 200 tasks that give back 1 MB each.

The stored numbers were measured on a busy machine: compare them within the run only.
"""

from __future__ import annotations

import importlib.util
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .fresh import measured_afresh
from .table import Table, seconds
from .targets import Check, at_most

NAME = "pool_data"
TITLE = "Large values in the elastic pool"
NUMBERS = 6_500_000
"""Of eight bytes: 52 MB."""
ROWS = ("shared", "both ways", "results")
WORDS = {
    "shared": "20 tasks share an array of 52 MB",
    "both ways": "6 tasks with 52 MB in and out",
    "results": "200 results of 1 MB",
}
PEERS = {"joblib": "loky", "ray": "Ray"}
RUNS = {"quick": 1, "default": 3}


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    runs = RUNS.get(which, RUNS["default"])
    rows: list[dict[str, Any]] = []
    for who, module in (("Windlass", "distributed"), *((name, module) for module, name in PEERS.items())):
        if importlib.util.find_spec(module) is None:
            say(f"{who}: not installed")
            continue
        took = measured_afresh(NAME, f"with_{who.lower()}", runs=runs)
        rows.append({"who": who, **{row: took[row] for row in ROWS}})
        say(f"{who}: " + ", ".join(f"{WORDS[row]}: {took[row]:.2f} s" for row in ROWS))
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    took = {row["who"]: row for row in rows}
    mine, found = took["Windlass"], []
    if "loky" in took:
        found += [at_most(f"{WORDS[row]}, against loky", mine[row] / took["loky"][row], 1.0, "x") for row in ROWS]
    if "Ray" in took:
        found.append(at_most(f"{WORDS['shared']}, against Ray", mine["shared"] / took["Ray"]["shared"], 3.0, "x"))
    return found


def tables(result: dict[str, Any]) -> list[Table]:
    rows = tuple((row["who"], *(seconds(row[name]) for name in ROWS)) for row in result["rows"])
    return [Table(TITLE, ("who", *(WORDS[name] for name in ROWS)), rows)]


# -- in processes of their own -----------------------------------------------------------------------------------------


def look(array: Any, position: int) -> float:
    return float(array[position])


def double(array: Any) -> Any:
    return array * 2


def make(number: int) -> Any:
    return np.full(131_072, float(number))


def _array() -> Any:
    return np.arange(NUMBERS, dtype=float)


def _median(run: Callable[[], Any], runs: int) -> float:
    run()  # warm
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        run()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def with_windlass(runs: int) -> dict[str, Any]:
    import windlass as wl

    array, looks, doubles, makes = _array(), wl.compute(look), wl.compute(double), wl.compute(make)
    with wl.ComputePool(wl.Local(), 2, console=False) as pool:
        wl.compute(make)(0) @ pool

        def shared() -> None:
            handle = pool.put(array)
            wl.gather(*[looks(handle, number) for number in range(20)]) >> pool

        inputs = [array + number for number in range(6)]
        return {
            "shared": _median(shared, runs),
            "both ways": _median(lambda: wl.gather(*[doubles(one) for one in inputs]) >> pool, runs),
            "results": _median(lambda: wl.gather(*[makes(number) for number in range(200)]) >> pool, runs),
        }


def with_loky(runs: int) -> dict[str, Any]:
    from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped, unused-ignore]

    executor, array = get_reusable_executor(max_workers=2), _array()
    inputs = [array + number for number in range(6)]
    try:
        return {
            "shared": _median(lambda: list(executor.map(look, [array] * 20, range(20))), runs),
            "both ways": _median(lambda: list(executor.map(double, inputs)), runs),
            "results": _median(lambda: list(executor.map(make, range(200))), runs),
        }
    finally:
        executor.shutdown(kill_workers=True)


def with_ray(runs: int) -> dict[str, Any]:
    import ray  # type: ignore[import-not-found, import-untyped, unused-ignore]

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    looks, doubles, makes, array = ray.remote(look), ray.remote(double), ray.remote(make), _array()
    inputs = [array + number for number in range(6)]

    def shared() -> None:
        handle = ray.put(array)
        ray.get([looks.remote(handle, number) for number in range(20)])

    try:
        return {
            "shared": _median(shared, runs),
            "both ways": _median(lambda: ray.get([doubles.remote(one) for one in inputs]), runs),
            "results": _median(lambda: ray.get([makes.remote(number) for number in range(200)]), runs),
        }
    finally:
        ray.shutdown()
