"""TaskTimeouts ends tasks that exceed their ``timeout`` or ``queue_timeout``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from windlass.pool.errors import QueueTimeout, TaskError, TaskTimeout

from .tasks import ScheduledTask, TaskPlacement

Later = Callable[[float, Callable[[], None]], object]
"""Schedules a call after some seconds, such as ``loop.call_later``."""
Cancel = Callable[[Iterable[ScheduledTask], Callable[[ScheduledTask], TaskError]], object]


class TaskTimeouts:
    """The timers of one task book."""

    def __init__(self, later: Later, cancel: Cancel, is_open: Callable[[str], bool]) -> None:
        """``is_open`` returns whether a call has not ended."""
        self._later, self._cancel, self._is_open = later, cancel, is_open

    def watch_queue(self, tasks: Sequence[ScheduledTask]) -> None:
        """Start the queue timeouts of tasks."""
        timed: dict[float, list[ScheduledTask]] = {}
        for task in tasks:
            if task.kind.queue_timeout is not None:
                timed.setdefault(task.kind.queue_timeout, []).append(task)
        for limit, some in timed.items():
            self._later(limit, partial(self._expire, some, limit))

    def watch_run(self, call: TaskPlacement) -> None:
        """Start the timeout of a call that has begun."""
        if call.kind.timeout is not None:
            self._later(call.kind.timeout, partial(self._overrun, call, call.kind.timeout))

    def _expire(self, tasks: Sequence[ScheduledTask], limit: float) -> None:
        late = [task for task in tasks if not task.begun]
        self._cancel(
            late, lambda task: QueueTimeout(f"{task.label} had not begun after its queue_timeout of {limit:g} s")
        )

    def _overrun(self, call: TaskPlacement, limit: float) -> None:
        if self._is_open(call.id):
            self._cancel(
                call.left, lambda task: TaskTimeout(f"{task.label} ran for longer than its timeout of {limit:g} s")
            )
