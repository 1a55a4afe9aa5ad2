"""Runs the benchmarks: ``python -m benchmarks [--quick | --full] [--only NAME]``, or ``make bench``.

It prints each measurement with its target, stores the numbers in ``benchmarks/results``, draws pictures into
``docs/images``, and writes ``docs/benchmarks.md`` and ``docs/benchmark-tables.md`` from the stored numbers.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

from . import (
    against_ray,
    cost_bound,
    dashboard,
    document,
    growth,
    karpenter_mix,
    karpenter_pods,
    kubernetes,
    loop,
    parts,
    plot,
    pool,
    pool_crashes,
    pool_data,
    ray_cluster,
    remote,
    simulating,
    spot,
    traces,
)
from .table import as_text, of_checks

MODULES = {
    module.NAME: module
    for module in (
        growth,
        karpenter_mix,
        karpenter_pods,
        cost_bound,
        against_ray,
        loop,
        simulating,
        traces,
        parts,
        spot,
        pool,
        pool_crashes,
        pool_data,
        remote,
        dashboard,
        kubernetes,
    )
}
ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
IMAGES = ROOT / "docs" / "images"
PAGE = ROOT / "docs" / "benchmarks.md"
TABLES = ROOT / "docs" / "benchmark-tables.md"


def main() -> int:
    """Measure and write; return 0 even if a target is missed, because a benchmark does not judge a commit."""
    arguments = read_arguments()
    which = "quick" if arguments.quick else "full" if arguments.full else "default"
    RESULTS.mkdir(exist_ok=True)
    for name in [] if arguments.draw else arguments.only or list(MODULES):
        module = MODULES[name]
        print(f"\n### {module.TITLE} ({which})\n", flush=True)
        result = module.measure(which, lambda line: print(f"  {line}", flush=True))
        result |= {"which": which, "machine": machine()}
        show(name, result)
        keep(name, result)
    kept = {name: json.loads(path.read_text()) for name in MODULES if (path := RESULTS / f"{name}.json").exists()}
    if kept:
        write(kept)
    return 0


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Windlass.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument(
        "--quick", action="store_true", help="a few inputs of each; never replaces stored results of a longer run"
    )
    size.add_argument("--full", action="store_true", help="the largest inputs as well")
    size.add_argument(
        "--draw", action="store_true", help="measure nothing; draw and write the pages from the stored numbers"
    )
    parser.add_argument("--only", action="append", choices=list(MODULES), metavar="NAME", help=", ".join(MODULES))
    return parser.parse_args()


def keep(name: str, result: dict[str, Any]) -> None:
    """Store a result. A quick run, or one without the other program, does not replace a longer run."""
    path = RESULTS / f"{name}.json"
    thorough = path.exists() and json.loads(path.read_text())["which"] != "quick"
    if thorough and (result["which"] == "quick" or result.get("skipped")):
        print(f"{path.relative_to(ROOT)} is not replaced: it is from a longer run\n")
    else:
        path.write_text(json.dumps(result, indent=1) + "\n")


def show(name: str, result: dict[str, Any]) -> None:
    if result.get("skipped"):
        print(f"Not measured: {result['skipped']}.")
        return
    print()
    for table in MODULES[name].tables(result):
        print(as_text(table))
    print(as_text(of_checks(result["checks"])), flush=True)


def write(kept: dict[str, dict[str, Any]]) -> None:
    """Draw the pictures and write both pages from the stored numbers."""
    try:
        drawn = plot.draw(kept, IMAGES)
        print(f"{len(drawn)} pictures in {IMAGES.relative_to(ROOT)}")
    except ImportError:
        print("No pictures: matplotlib is not installed (pip install '.[bench]').")
    PAGE.parent.mkdir(exist_ok=True)
    conclusions: list[str] = []
    tables = document.tables_page(kept, MODULES)
    real = RESULTS / f"{ray_cluster.NAME}.json"  # measured by `make bench-ray`
    if real.exists():
        result = json.loads(real.read_text())
        conclusions.append(ray_cluster.conclusion(result))
        tables = ray_cluster.with_section(tables, ray_cluster.section(result))
    PAGE.write_text(document.page(kept, MODULES, conclusions))
    TABLES.write_text(tables)
    print(f"{PAGE.relative_to(ROOT)} and {TABLES.relative_to(ROOT)} written")


def machine() -> dict[str, Any]:
    """Describe the computer, so that numbers of different computers are not compared."""
    import numpy as np

    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def processor() -> str:
    """Return the name of the processor, if the system reports it."""
    facts = Path("/proc/cpuinfo")
    if facts.exists():
        for line in facts.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
