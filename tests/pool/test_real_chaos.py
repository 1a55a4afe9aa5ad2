"""Faults in a real pool: nodes and the scheduler are killed and stopped, tasks crash; every result is right."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

import windlass as wl

from .processes import children, command

pytestmark = pytest.mark.slow

TASKS = int(os.environ.get("WINDLASS_CHAOS_TASKS", "2000"))
SEED = int(os.environ.get("WINDLASS_CHAOS_SEED", "11"))
HUNG = 900.0
"""Seconds after which the pool is said to hang: many times what a busy machine needs."""
MOST = 4
"""How often each kind of fault happens."""


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


def of_pool(directory: Path, kind: str) -> list[int]:
    """Processes of this program's pool: its scheduler, or those of its nodes (supervisors, links and slots)."""
    mine = set(children(os.getpid()))
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and str(directory) in command(int(entry.name)):
            mine.update(children(int(entry.name)))
    return sorted(pid for pid in mine if kind in command(pid))


def node_of(pid: int) -> str:
    """The node that a process belongs to."""
    with suppress(OSError, ValueError):
        for one in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            name, _, value = one.partition(b"=")
            if name == b"WINDLASS_DASK_NODE":
                return str(json.loads(value)["node"])
    return ""


def is_slot(pid: int) -> bool:
    """Whether a process of a node is one of its slots: a child of the supervisor that leads a group of its own."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return "dask.node" in command(int(fields[1])) and os.getpgid(pid) == pid
    return False


class Chaos(threading.Thread):
    """Breaks something every second or so, and remembers what."""

    def __init__(self, directory: Path, traces: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self._directory, self._traces, self._chance = directory, traces, random.Random(seed)
        self.over = threading.Event()
        self.did: Counter[str] = Counter()
        self.broken: set[str] = set()
        """Names of nodes, and ids of single slots."""

    def run(self) -> None:
        left = [what for what in ("kill", "stop", "scheduler") for _ in range(MOST)]
        left.append("hang")  # of the scheduler; once, because after more than five ends in a minute the engine is lost
        self._chance.shuffle(left)
        while not (any(self._traces.iterdir()) or self.over.wait(0.05)):
            pass  # a pool whose first nodes all die gives up: it cannot know that the next one would live
        while left and not self.over.wait(self._chance.uniform(0.5, 1.5)):
            kind = "dask.scheduler" if left[-1] in ("scheduler", "hang") else "dask.node"
            if found := of_pool(self._directory, kind):
                self._break(left.pop(), self._chance.choice(found))

    def _break(self, what: str, victim: int) -> None:
        if what in ("kill", "stop"):
            self.broken.add(str(victim) if is_slot(victim) else node_of(victim))
        for pid in (victim, *children(victim)) if what == "stop" else (victim,):
            with suppress(OSError):
                os.kill(pid, signal.SIGSTOP if what in ("stop", "hang") else signal.SIGKILL)
        self.did[what] += 1


def test_whatever_breaks_every_result_is_right_and_in_order(tmp_path):
    traces, home = tmp_path / "traces", tmp_path / "pool"
    traces.mkdir()
    chance = random.Random(7)
    tasks = [
        work(str(traces), number, chance.choice((0.0, 0.0, 0.001, 0.01, 0.05, 0.3)), chance.random() < 0.01)
        for number in range(TASKS)
    ]
    chaos = Chaos(home, traces, SEED)
    with wl.ComputePool(
        wl.Local(), (2, 4), slots=2, console=False, directory=home, unhealthy_timeout=8, reconcile_tick_interval=2
    ) as pool:
        future = wl.gather(*tasks) > pool
        chaos.start()
        try:
            results = future.result(timeout=HUNG)
        finally:
            chaos.over.set()
        chaos.join()
    assert results == [number * 3 for number in range(TASKS)]
    assert all(chaos.did[what] for what in ("kill", "stop", "scheduler", "hang")), chaos.did
    assert {int(one.name) for one in traces.iterdir()} == set(range(TASKS))
    again = {}
    for number, task in enumerate(tasks):
        starts = [line.split() for line in Path(traces, str(number)).read_text().splitlines()]
        if task.args[3]:
            del starts[0]  # it ended its process itself
        # A result that had not reached the program is lost with its node, also that of a task that had ended there.
        whole = [(pid, node) for pid, node in starts if chaos.broken.isdisjoint((pid, node))]
        if len(whole) > 1:
            again[number] = starts
    assert again == {}, f"run again although nothing broke under them; broken: {sorted(chaos.broken)}"
