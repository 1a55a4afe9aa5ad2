"""``python benchmarks/run.py``: the same as ``python -m benchmarks``, from any directory."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # not benchmarks/, whose modules have everyday names
    runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
