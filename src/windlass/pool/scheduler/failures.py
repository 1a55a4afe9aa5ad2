"""This module decides whether a task whose call ended without a result runs again or fails.

A task is charged only for what happened to it: the one that ran when its process crashed or its node was lost uses up
one of its retries. Tasks of the same call that had not begun run again and are charged nothing.
"""

from __future__ import annotations

from windlass.pool.engines.protocol import CallOutcome
from windlass.pool.errors import NodeLost, TaskBroken, TaskCrashed, TaskError

from .tasks import ScheduledTask


def failure_of(task: ScheduledTask, node: str, outcome: CallOutcome, *, began: bool, alone: bool) -> TaskError | None:
    """Return the error that ends a task, or None if it runs again. ``began``: it may have begun. ``alone``: no other
    task of the call is without a result."""
    if task.doomed is not None:
        return task.doomed
    match outcome.ending:
        case "broken":
            if began or alone:
                return TaskBroken(f"{task.label} on {node}: {outcome.detail}")
            task.alone = task.alone or not outcome.began
        case "crashed" if began:
            times = _charged(task)
            if times:
                return TaskCrashed(f"{task.label} ended its process {times}, the last time on {node}: {outcome.detail}")
        case "lost" if began:
            task.lost_on |= {node}
            times = _charged(task)
            if times:
                return NodeLost(
                    f"{task.label} was started {times} and lost its node each time, the last time {node}: "
                    f"{outcome.detail}"
                )
    return None


def _charged(task: ScheduledTask) -> str:
    """Count a run that the task did not survive; how often that was, once its retries are used up."""
    task.used += 1
    if task.used <= task.kind.budget:
        return ""
    return "once" if task.used == 1 else f"{task.used} times"
