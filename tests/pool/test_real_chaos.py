"""Chaos on a real pool: nodes are killed and stopped, the scheduler is killed, tasks crash; every result is right."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import windlass as wl

pytestmark = pytest.mark.slow

TASKS = int(os.environ.get("WINDLASS_CHAOS_TASKS", "2000"))
SECONDS = 240.0


@wl.compute(retries=20)
def work(directory: str, number: int, seconds: float, crashes: bool) -> int:
    """Leave a trace of every start; crash on the first one if asked to."""
    path = Path(directory, f"{number}")
    with path.open("a") as file:
        file.write(f"{os.getpid()} {os.environ['WINDLASS_NODE']}\n")
    if crashes and len(path.read_text().splitlines()) == 1:
        os._exit(1)
    time.sleep(seconds)
    return number * 3


def children(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found[1:]


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def of_pool(directory: Path, kind: str) -> list[int]:
    """Processes of this program's pool: the supervisors of its nodes, or its scheduler."""
    mine = set(children(os.getpid()))
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and str(directory) in command(int(entry.name)):
            mine.update(children(int(entry.name)))
    return sorted(pid for pid in mine if kind in command(pid))


class Chaos(threading.Thread):
    """Breaks something every second or so, and remembers on which nodes."""

    def __init__(self, directory: Path, seed: int, done: Callable[[], bool]) -> None:
        super().__init__(daemon=True)
        self._directory, self._chance, self._over = directory, random.Random(seed), done
        self.did: Counter[str] = Counter()

    def run(self) -> None:
        while not self._over():
            time.sleep(self._chance.uniform(0.5, 1.5))
            what = self._chance.choice(("kill", "stop", "scheduler", "kill"))
            kind = "dask.scheduler" if what == "scheduler" else "dask.node"
            found = [pid for pid in of_pool(self._directory, kind) if command(os.getpid()) != command(pid)]
            if not found or self.did[what] >= 4:
                continue
            victim = found[0] if what == "scheduler" else self._chance.choice(found)
            self.did[what] += 1
            number = signal.SIGSTOP if what == "stop" else signal.SIGKILL
            for pid in (victim, *children(victim)) if what == "stop" else (victim,):
                with suppress(OSError):
                    os.kill(pid, number)


def test_whatever_breaks_every_result_is_right_and_in_order(tmp_path):
    traces, home = tmp_path / "traces", tmp_path / "pool"
    traces.mkdir()
    chance = random.Random(7)
    tasks = [
        work(str(traces), number, chance.choice((0.0, 0.0, 0.001, 0.01, 0.05, 0.3)), chance.random() < 0.01)
        for number in range(TASKS)
    ]
    over = threading.Event()
    begun = time.monotonic()
    with wl.ComputePool(
        wl.Local(), (2, 4), slots=2, console=False, directory=home, unhealthy_timeout=8, reconcile_tick_interval=2
    ) as pool:
        chaos = Chaos(home, 11, over.is_set)
        chaos.start()
        try:
            results = wl.gather(*tasks) >> pool
        finally:
            over.set()
        chaos.join()
        assert results == [number * 3 for number in range(TASKS)]
    assert time.monotonic() - begun < SECONDS
    assert all(chaos.did[what] for what in ("kill", "stop", "scheduler"))
    starts = {int(one.name): len(one.read_text().splitlines()) for one in traces.iterdir()}
    assert set(starts) == set(range(TASKS))
    crashing = {number for number, task in enumerate(tasks) if task.args[3]}
    again = {number: count for number, count in starts.items() if count > 1 + (number in crashing)}
    # Only what ran on a node that was killed or stopped runs again: a node has two slots.
    assert len(again) <= 2 * (chaos.did["kill"] + chaos.did["stop"]), again
