"""Measures CPU seconds of this process, so that a busy machine does not count against either side."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

REPEATS = 7
"""Short runs are repeated and the median is taken."""

ENOUGH_SECONDS = 1.0
"""No further repeat after so much CPU time: a run of a second is its own average."""


@dataclass(frozen=True)
class Timed(Generic[Result]):
    """A result and the CPU seconds it took."""

    seconds: float
    result: Result


def cpu_time(
    work: Callable[[], Result],
    repeats: int = REPEATS,
    enough: float = ENOUGH_SECONDS,
    clock: Callable[[], float] = time.process_time,
    before: Callable[[], None] = lambda: None,
) -> Timed[Result]:
    """The median CPU time of ``work``, and the result of its last run. ``before`` is called before each, untimed."""
    times: list[float] = []
    while True:
        before()
        gc.collect()
        started = clock()
        result = work()
        times.append(clock() - started)
        if len(times) >= repeats or sum(times) >= enough:
            return Timed(statistics.median(times), result)


def cpu_time_in_child(work: Callable[[], Any], limit: float) -> Timed[Any] | None:
    """The same in a forked child, which sees the same inputs and is ended after ``limit`` CPU seconds: then None."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # The child's CPU clock starts at 0. The limit holds for all repeats together; only short runs are repeated.
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
            # Under such a limit Linux moves the clock of a process by ticks of 4 ms; that of its one thread is exact.
            timed = cpu_time(work, enough=min(ENOUGH_SECONDS, limit / 4), clock=time.thread_time)
            sender.send((timed.seconds, timed.result))
            code = 0
        finally:
            os._exit(code)
    sender.close()
    try:
        answer = receiver.recv()
    except EOFError:
        answer = None
    finally:
        receiver.close()
    _, status = os.waitpid(child, 0)
    if answer is not None:
        return Timed(*answer)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
        return None
    raise RuntimeError("the peer failed: see its message above")
