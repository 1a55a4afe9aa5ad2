"""Runs a measurement in a fresh process, for peak memory and first calls.

``python -m benchmarks.fresh MODULE FUNCTION ARGUMENTS`` runs a function of this package with keyword arguments (JSON)
and prints what it gives, with the peak memory of the process added.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def measured_afresh(module: str, function: str, **arguments: Any) -> dict[str, Any]:
    """Return the result of a function in a fresh process, with ``peak_mb``, the peak memory of the whole process."""
    paths = [str(ROOT), *(path for path in sys.path if path)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.fresh", module, function, json.dumps(arguments)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def peak_megabytes() -> float:
    """Return the peak memory of this process.

    On Linux ``ru_maxrss`` also counts the parent's memory at the fork; ``VmHWM`` does not.
    """
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def main() -> None:
    module, function, arguments = sys.argv[1:]
    work = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    answer = work(**json.loads(arguments))
    print(json.dumps({**answer, "peak_mb": peak_megabytes()}))


if __name__ == "__main__":
    main()
