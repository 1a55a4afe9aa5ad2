"""How long it takes until a program learns that a task has ended its process, against loky in the same run.

Each has two warm processes, and is given one task that ends its process: by ``os._exit``, by a segmentation fault, by
the kernel because memory ran out (SIGKILL), or while the module of its function is imported. loky gives up at once, and
its processes are started again before the next one. The pool is measured twice: with ``retries=0``, when it does what
loky does, and with its default retries, when it runs such a task three times more before it gives up.

loky's own time varies: the same crash is reported after about 20 ms in some runs and after about 110 ms in others. So a
single ratio says little; four runs of the pool take about as long as the slower of the two.

The numbers kept here were taken while other programs kept the machine busy: compare them within the run only.
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
DEFAULT = "Windlass, run 4 times"
"""With the default retries: the row of the pool as it is."""
MOST = 2.0
"""Times what loky takes."""
RUNS = {"quick": 3, "default": 9}


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    runs = RUNS.get(which, RUNS["default"])
    rows: list[dict[str, Any]] = []
    for who, function, module, more in (
        ("Windlass", "with_windlass", "distributed", {"retries": 0}),
        (DEFAULT, "with_windlass", "distributed", {"retries": 3}),
        ("loky", "with_loky", "joblib", {}),
    ):
        if importlib.util.find_spec(module) is None:
            say(f"{who}: not installed")
            continue
        took = measured_afresh(NAME, function, runs=runs, **more)
        rows.append({"who": who, **took})
        say(f"{who}: " + ", ".join(f"{WORDS[row]}: {1000 * took[row]:.0f} ms" for row in WORDS))
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


def with_windlass(runs: int, retries: int) -> dict[str, Any]:
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
