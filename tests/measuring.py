"""The CPU time of a command, which does not depend on the load of the machine."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Sequence
from pathlib import Path


def cpu_seconds(command: Sequence[str | Path], tries: int = 8) -> float:
    """User and system seconds of the whole process; the best of several tries, because caches are cold at first."""
    return min(_once(command) for _ in range(tries))


def _once(command: Sequence[str | Path]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
