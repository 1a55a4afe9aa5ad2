"""Measures the time until a program learns that a task has ended its process, against loky in the same run.

Each has two warm processes, and is given one task that ends its process: by ``os._exit``, by a segmentation fault, by
the kernel because memory ran out (SIGKILL), or while the module of its function is imported. loky gives up at once, and
its processes are restarted before the next one. The pool is measured twice: with ``retries=0``, as loky, and with its
default, which runs such a task once more: it pays two imports where loky pays one.

loky's own time has two levels: the same crash is reported after 5 to 20 ms in some processes and after about 100 ms in
others. So all are measured in turn, in several fresh processes each, and the median of those counts.

The stored numbers were measured on a quiet machine, where every process of loky was at its slower level. At the
quicker one it took 11 to 16 ms (out of memory) and 4 to 5 ms (import): there the pool's default, with its second run,
takes about twice as long.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .fresh import measured_afresh
from .table import Table, seconds
from .targets import Check, at_most

NAME = "pool_crashes"
TITLE = "Tasks that crash"
WORDS = {
    "exit": "os._exit",
    "fault": "segmentation fault",
    "memory": "out of memory",
    "import": "crash at import",
}
DEFAULT = "Windlass, run 2 times"
"""With the default retries: the row of the pool as it is."""
MOST = 2.0
"""Times what loky takes."""
RUNS = {"quick": 3, "default": 9}
PROCESSES = {"quick": 1, "default": 3}
"""Fresh processes of each."""


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    runs = RUNS.get(which, RUNS["default"])
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(PROCESSES.get(which, PROCESSES["default"])):
        for who, function, module, more in (
            ("Windlass", "with_windlass", "distributed", {"retries": 0}),
            (DEFAULT, "with_windlass", "distributed", {"retries": None}),
            ("loky", "with_loky", "joblib", {}),
        ):
            if importlib.util.find_spec(module) is None:
                say(f"{who}: not installed")
                continue
            took = measured_afresh(NAME, function, runs=runs, **more)
            found.setdefault(who, []).append(took)
            say(f"{who}: " + ", ".join(f"{WORDS[row]}: {1000 * took[row]:.1f} ms" for row in WORDS))
    rows = [
        {
            "who": who,
            **{row: statistics.median(one[row] for one in some) for row in WORDS},
            "bought": sum(one["bought"] for one in some),
        }
        for who, some in found.items()
    ]
    return {"name": NAME, "rows": rows, "checks": checks(rows)}


def checks(rows: list[dict[str, Any]]) -> list[Check]:
    took = {row["who"]: row for row in rows}
    if "loky" not in took:
        return []
    found = [
        at_most(f"{WORDS[row]}{words}, against loky", took[who][row] / took["loky"][row], MOST, "x")
        for who, words in (("Windlass", ""), (DEFAULT, ", with the default retries"))
        if who in took
        for row in WORDS
    ]
    bought = sum(took[who]["bought"] for who in took if who.startswith("Windlass"))
    return [*found, at_most("nodes that were bought for it", bought, 0, "nodes", 0)]


def tables(result: dict[str, Any]) -> list[Table]:
    rows = tuple((row["who"], *(seconds(row[name]) for name in WORDS)) for row in result["rows"])
    return [Table(TITLE, ("who", *WORDS.values()), rows)]


# -- in processes of their own -----------------------------------------------------------------------------------------


def leave() -> None:
    os._exit(1)


def fault() -> None:
    ctypes.string_at(0)


def be_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _importing() -> Callable[[], None]:
    """A function whose module ends every process that imports it, but this one."""
    directory = tempfile.mkdtemp()
    text = f"import os\nif os.getpid() != {os.getpid()}:\n    os._exit(1)\ndef run():\n    pass\n"
    Path(directory, "windlass_crash.py").write_text(text, encoding="utf-8")
    sys.path.insert(0, directory)
    found: Callable[[], None] = importlib.import_module("windlass_crash").run
    return found


def _crashes() -> dict[str, Callable[[], None]]:
    return {"exit": leave, "fault": fault, "memory": be_killed, "import": _importing()}


def _median(
    crashes: dict[str, Callable[[], None]],
    run: Callable[[Callable[[], None]], None],
    warm: Callable[[], Any],
    runs: int,
) -> dict[str, Any]:
    found = {}
    for name, crash in crashes.items():
        times = []
        for _ in range(runs):
            warm()
            begun = time.perf_counter()
            run(crash)
            times.append(time.perf_counter() - begun)
        found[name] = statistics.median(times)
    return found


def with_windlass(runs: int, retries: int | None) -> dict[str, Any]:
    import windlass as wl
    from windlass.pool.errors import TaskCrashed

    same = wl.compute(abs)
    crashes = _crashes()  # before the pool: nodes find modules where this program found them
    with wl.ComputePool(wl.Local(), (1, 4), slots=2, console=False) as pool:
        same(1) @ pool
        before = len(pool.status().nodes)

        def run(crash: Callable[[], None]) -> None:
            try:
                wl.compute(retries=retries)(crash)() >> pool
            except TaskCrashed:
                return
            raise AssertionError("it did not crash")

        found = _median(crashes, run, lambda: same(1) >> pool, runs)
        return {**found, "bought": len(pool.status().nodes) - before}


def with_loky(runs: int) -> dict[str, Any]:
    from joblib.externals.loky import get_reusable_executor  # type: ignore[import-untyped, unused-ignore]
    from joblib.externals.loky.process_executor import (  # type: ignore[import-untyped, unused-ignore]
        BrokenProcessPool,
    )

    def warm() -> None:
        executor = get_reusable_executor(max_workers=2)
        list(executor.map(abs, range(4)))

    def run(crash: Callable[[], None]) -> None:
        try:
            get_reusable_executor(max_workers=2).submit(crash).result()
        except BrokenProcessPool:
            return
        raise AssertionError("it did not crash")

    try:
        return {**_median(_crashes(), run, warm, runs), "bought": 0}
    finally:
        get_reusable_executor().shutdown(kill_workers=True)
