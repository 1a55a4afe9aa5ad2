"""TaskEndings decides how a run ends: with a result for the task's ticket, another run, or an error. Only the task that
ran when its process crashed or its node was lost is charged a retry. Tasks of the same call that had not begun run
again without being charged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from windlass._gc_pause import uncollected
from windlass.pool.engines.protocol import CallOutcome
from windlass.pool.errors import NodeLost, TaskBroken, TaskCrashed, TaskError
from windlass.pool.transport.serialization import ItemResult, PackedResult, RawResult, result_of, unpack_results

from .batching import Pace
from .gangs import TaskGang, ended
from .nodes import PoolNode
from .tasks import Kind, OnFinished, ScheduledTask, TaskPlacement
from .waiting import WaitingTasks


class TaskEndings:
    """Ends the tasks of one pool, or queues them again."""

    def __init__(
        self,
        waiting: WaitingTasks,
        nodes: Mapping[str, PoolNode],
        now: Callable[[], float],
        pace: Callable[[Kind], Pace],
        kill: Callable[[TaskPlacement], None],
        on_finished: OnFinished,
    ) -> None:
        """``pace`` returns the measured durations of a kind. ``kill`` ends a running call. ``on_finished`` gets tasks
        that have ended.
        """
        self._waiting, self._nodes, self._now = waiting, nodes, now
        self._pace, self._kill, self._on_finished = pace, kill, on_finished
        self.done = 0
        """The number of runs that have ended."""

    def deliver(self, placed: TaskPlacement, results: Sequence[PackedResult], seconds: float) -> None:
        """Deliver the results of the next items of a call."""
        if not results:
            return
        with uncollected(len(results)):
            tasks = placed.left[: len(results)]
            placed.finished += len(tasks)
            placed.moved_at = self._now()
            self._pace(placed.kind).learn(seconds, len(tasks), placed.finished)
            self._count_done(placed, len(tasks))
            finished: list[ScheduledTask] = []
            answers: list[RawResult] = []
            retries = placed.kind.retries or 0
            for task, result in zip(tasks, unpack_results(results), strict=False):
                if task.doomed is not None:
                    self.fail(task, task.doomed)
                elif retries and isinstance(result, ItemResult) and not result.good and task.used < retries:
                    task.used += 1
                    self.wait_again(task)
                else:
                    task.state = "over"
                    finished.append(task)
                    answers.append(result)
            self._on_finished(finished)
            for task, result in zip(finished, answers, strict=True):
                task.ticket.on_ended(result)

    def end_call(self, placed: TaskPlacement, outcome: CallOutcome) -> None:
        """Handle the end of a call: deliver its results, and queue its other tasks again or fail them."""
        gang: TaskGang | None = placed.tasks[0].gang if placed.tasks else None
        if gang is not None:
            self._end_member(gang, placed, outcome)
            return
        self.deliver(placed, outcome.results, outcome.seconds)
        left = placed.left
        for number, task in reversed(list(enumerate(left))):
            began = outcome.began and number == 0
            error = failure_of(task, placed.node, outcome, began=began, alone=len(left) == 1)
            if error is None:
                self.wait_again(task)
            else:
                self.fail(task, error)

    def wait_again(self, task: ScheduledTask) -> None:
        """Queue a task again, before all others of its kind."""
        task.state = "waiting"
        if task.node is None:
            self._waiting.add(task, first=True)
        elif task.node in self._nodes:
            self._nodes[task.node].pinned.append(task)
        else:
            self.fail(task, NodeLost(f"{task.label} was to run on {task.node} alone, and it left"))

    def fail(self, task: ScheduledTask, error: TaskError) -> None:
        """End a task with an error that the task did not raise itself."""
        task.state = "over"
        self._on_finished((task,))
        task.ticket.on_failed(error)

    def fail_gang(self, gang: TaskGang) -> None:
        """End all members of a gang, because one of them must end."""
        error = next(member.doomed for member in gang.members if member.doomed is not None)
        waited = self._waiting.remove_gang(gang)
        for member in gang.members:
            member.doomed = error
            if waited:
                self.fail(member, error)
        for call in list(gang.calls.values()):
            self._kill(call)

    def _count_done(self, placed: TaskPlacement, count: int) -> None:
        self.done += count
        if placed.node in self._nodes:
            self._nodes[placed.node].done += count

    def _end_member(self, gang: TaskGang, placed: TaskPlacement, outcome: CallOutcome) -> None:
        member = placed.tasks[0]
        del gang.calls[placed.id]
        if outcome.ending == "done":
            (result,) = unpack_results((*placed.early, *outcome.results))
            result = gang.results[member.rank] = result_of(result)
            self._count_done(placed, 1)
            failure = "" if result.good else f"rank {member.rank} on {placed.node} failed"
        else:
            member.lost_on |= {placed.node} if outcome.ending == "lost" else frozenset()
            failure = f"rank {member.rank} on {placed.node}: {outcome.detail or outcome.ending}"
        if failure and not gang.failure:
            gang.failure = failure
            for other in gang.calls.values():
                self._kill(other)
        if not gang.calls and (again := ended(gang, self._on_finished)):
            for task in again:
                task.state = "waiting"
            self._waiting.add_gang(gang, first=True)


def failure_of(task: ScheduledTask, node: str, outcome: CallOutcome, *, began: bool, alone: bool) -> TaskError | None:
    """Return the error that ends a task, or None if it runs again. ``began``: the task may have begun. ``alone``: all
    other tasks of the call have results.
    """
    if task.doomed is not None:
        return task.doomed
    match outcome.ending:
        case "broken":
            if began or alone:
                return TaskBroken(f"{task.label} on {node}: {outcome.detail}")
            task.alone = task.alone or not outcome.began
        case "crashed" if began:
            task.used, task.crashes = task.used + 1, task.crashes + 1
            charged = task.crashes if task.kind.retries is None else task.used
            if charged > task.kind.crash_budget:
                times = "" if task.crashes == 1 else f"{task.crashes} times, the last time "
                return TaskCrashed(f"{task.label} ended its process {times}on {node}: {outcome.detail}")
        case "lost" if began:
            task.lost_on |= {node}
            task.used += 1
            if task.used > task.kind.budget:
                times = "once" if task.used == 1 else f"{task.used} times"
                return NodeLost(
                    f"{task.label} was started {times} and lost its node each time, the last time {node}: "
                    f"{outcome.detail}"
                )
    return None
