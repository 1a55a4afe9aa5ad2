"""Measures a Kubernetes cluster with 1,000 nodes of 30 pods each and 300 waiting pods (139 MB of JSON).

- Start to plan: import everything, list and decode all objects page by page, index them, plan. CPU seconds; only the
  network is left out.
- A later pass: 30 pods have changed since the last one. CPU seconds of observing and planning.
- ``windlass plan FILE``: the whole program, from its start to the printed plan, on the same objects in a file as
  ``kubectl get -A -o json`` writes it. CPU seconds.
- From an unschedulable pod to the provider's launch call: a running controller with a SQLite journal on
  disk and the API server within the process. Seconds of wall time.

Cluster Autoscaler documents a bound of 30 s for a loop of this size, and scans every 10 s.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .table import Table
from .targets import Check, below

NAME = "kubernetes"
TITLE = "A Kubernetes cluster"
SCRIPT = Path(__file__).with_name("kubernetes_cluster.py")


def measure(which: str, say: Callable[[str], None]) -> dict[str, Any]:
    say(f"1,000 nodes, 30,000 pods ({which}: always the same)")
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "it failed"
        return {"name": NAME, "checks": [], "skipped": f"{reason}; pip install 'windlass-autoscaler[kubernetes]'"}
    found = json.loads(done.stdout)
    return {"name": NAME, "found": found, "checks": checks(found)}


def checks(found: dict[str, Any]) -> list[Check]:
    return [
        below("from start to plan, 30,300 pods", found["end_to_end_s"], 2.0, "s"),
        below("windlass plan on 30,300 saved pods", found["saved_plan_s"], 2.0, "s"),
        below("a later pass, 99 of 100", found["pass_p99_ms"] / 1000, 1.0, "s"),
        below("from the unschedulable pod to the provider's call, 95 of 100", found["call_p95_s"], 1.0, "s"),
        below("memory at its peak", found["peak_memory_mb"], 260, "MB", digits=0),
    ]


def tables(result: dict[str, Any]) -> list[Table]:
    found = result["found"]
    rows = (
        ("imports", f"{found['start_s']:.2f} s"),
        ("first look", f"{found['first_look_s']:.2f} s"),
        ("plan", f"{found['plan_s']:.2f} s"),
        ("later pass, median", f"{found['pass_p50_ms']:.0f} ms"),
        ("later pass, 99 of 100", f"{found['pass_p99_ms']:.0f} ms"),
        (f"windlass plan on a file of {found['saved_mb']} MB", f"{found['saved_plan_s']:.2f} s"),
        ("unschedulable to call, median", f"{found['call_p50_s']:.2f} s"),
        ("unschedulable to call, 95 of 100", f"{found['call_p95_s']:.2f} s"),
        ("memory", f"{found['peak_memory_mb']} MB"),
    )
    return [Table("1,000 nodes, 30,300 pods", ("what", "measured"), rows)]
