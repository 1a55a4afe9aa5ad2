"""TaskBook records every task, node and slot, and places tasks on slots.

A task goes to a free slot of a node with room for it, in the order of submission, on the node with the lowest number,
so that other nodes become empty and can be released. Short tasks are sent in batches (`batching`), and one batch may
wait behind another on a slot; a task that has not begun counts as waiting wherever it is, and is taken back when
another slot is free for it. So the book knows exactly what runs where, and a drain fence is exact: nothing is placed on
a cordoned node, tasks that have not begun there are taken back, and calls that the engine still has are counted.

Everything happens on the pool's event loop: submissions, events of the engine (the book is its `Listener`), and fences.
Nothing here blocks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from windlass.core.capacity.node_room import TakenRoom
from windlass.core.model.snapshot import Group
from windlass.pool.engines.protocol import Call, CallOutcome, Engine, NodeFacts
from windlass.pool.errors import (
    EngineLost,
    NodeLost,
    TaskCancelled,
    TaskError,
)
from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.serialization import LIMIT, PackedResult, pack_batch
from windlass.workloads.protocol import Acknowledgement, WorkloadView

from .class_limits import named_classes
from .gangs import TaskGang
from .liveness import NodeLiveness
from .nodes import Fence, PoolNode, Slot
from .placement import Placer
from .task_endings import TaskEndings
from .tasks import OnFinished, OnOutput, ScheduledTask, TaskPlacement
from .timeouts import Later, TaskTimeouts
from .waiting import WaitingTasks

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def _cancelled(task: ScheduledTask) -> TaskError:
    return TaskCancelled(f"{task.label} was cancelled")


class TaskBook:
    """Records and places the tasks of one pool."""

    def __init__(
        self,
        engine: Engine,
        groups: Callable[[str], Group | None],
        *,
        now: Callable[[], float],
        later: Later,
        on_change: Callable[[], None] = lambda: None,
        on_output: OnOutput = lambda _task, _stream, _line: None,
        python: str = PYTHON,
        limit: int = LIMIT,
        on_finished: OnFinished = lambda _tasks: None,
        unhealthy_timeout: float = 30.0,
        store: DataStore | None = None,
        all_groups: Callable[[], Iterable[Group]] = tuple,
    ) -> None:
        """``groups`` returns the group of a slice, ``all_groups`` the groups that may be bought. ``on_change`` is
        called when there is something new to observe. ``limit``: bytes of the largest result of a task. ``on_finished``
        gets tasks that have ended. ``unhealthy_timeout``: seconds without a heartbeat after which a node is abandoned.
        ``store``: the store of large values.
        """
        self.engine, self._groups, self._now, self._later = engine, groups, now, later
        self._on_change, self._on_output, self._python, self._limit = on_change, on_output, python, limit
        self._store = store
        self.nodes: dict[str, PoolNode] = {}
        self.waiting = WaitingTasks()
        self.refused: dict[str, str] = {}
        """Nodes that were refused, and why."""
        self.ever_joined = False
        """Whether a node has ever joined."""
        self._fences: dict[str, Fence] = {}
        self._forgotten: set[str] = set()
        self._calls: dict[str, TaskPlacement] = {}
        self._placer = Placer(self.waiting, self._send, self._revoke, now, self._place_later, all_groups)
        self._endings = TaskEndings(self.waiting, self.nodes, now, self._placer.pace, self._kill, on_finished)
        self._timeouts = TaskTimeouts(later, self.cancel, self.is_open)
        self._liveness = NodeLiveness(self.nodes, engine, unhealthy_timeout, now, later)
        self._called = 0
        self._closed = self._looking = False
        self.engine_problem = ""
        """Why the engine cannot reach its nodes at the moment; empty otherwise."""
        self.engine_is_lost = False

    # -- submissions --------------------------------------------------------------------------------------------------

    def submit(self, tasks: Sequence[ScheduledTask]) -> None:
        """Add tasks that each run once, in any order."""
        if self._refused_all(tasks):
            return
        self.waiting.extend(tasks)
        self._timeouts.watch_queue(tasks)
        self._move_on()

    def submit_gang(self, gang: TaskGang) -> None:
        """Add a gang: tasks that start together."""
        if self._refused_all(gang.members):
            return
        self.waiting.add_gang(gang)
        self._timeouts.watch_queue(gang.members)
        self._move_on()

    def submit_pinned(self, tasks: Sequence[ScheduledTask]) -> None:
        """Add tasks that each name an existing node."""
        if self._refused_all(tasks):
            return
        for task in tasks:
            assert task.node is not None
            self.nodes[task.node].pinned.append(task)
        self._move_on()

    def _refused_all(self, tasks: Sequence[ScheduledTask]) -> bool:
        if self.engine_is_lost:
            for task in tasks:
                self._endings.fail(task, EngineLost(self.engine_problem))
        return self.engine_is_lost

    def cancel(self, tasks: Iterable[ScheduledTask], error: Callable[[ScheduledTask], TaskError] = _cancelled) -> int:
        """Cancel tasks, waiting or running; return how many. Running tasks are killed with their slot's process; other
        tasks of the same batch run again without being charged a retry.
        """
        doomed = {task for task in tasks if task.state != "over" and task.doomed is None}
        for task in doomed:
            task.doomed = error(task)
        gangs: set[TaskGang] = {task.gang for task in doomed if task.gang is not None}
        waiting = [task for task in doomed if task.state == "waiting" and task.gang is None]
        self.waiting.remove(waiting)
        for task in waiting:
            if task.node is not None:
                self.nodes[task.node].pinned.remove(task)
            assert task.doomed is not None
            self._endings.fail(task, task.doomed)
        for gang in gangs:
            self._endings.fail_gang(gang)
        for call in list(self._calls.values()):
            if call.tasks[0].gang is None and not doomed.isdisjoint(call.left):
                self._end_doomed(call)
        self._move_on()
        return len(doomed)

    def _end_doomed(self, call: TaskPlacement) -> None:
        """Cancel some tasks of a call: the running one is killed, the others are taken back."""
        running = call.running
        if running is not None and running.doomed is not None:
            self._kill(call)
        else:
            self._revoke(call)

    def close(self) -> None:
        """Stop placing tasks."""
        self._closed = True

    # -- fences -------------------------------------------------------------------------------------------------------

    def cordon(self, slice_id: str, epoch: int) -> None:
        fence = self._fences.setdefault(slice_id, Fence())
        fence.raise_to(epoch)
        if fence.up:
            for node in self._nodes_of(slice_id):
                for call in node.calls():
                    if call.began_at is None or call.queued:
                        self._revoke(call)
        self._move_on()

    def uncordon(self, slice_id: str, epoch: int) -> None:
        self._fences.setdefault(slice_id, Fence()).lift(epoch)
        self._move_on()

    def evict(self, slice_id: str) -> None:
        """Kill the tasks that run behind a fence; they wait again and are not charged a retry."""
        if self._is_cordoned(slice_id):
            for node in self._nodes_of(slice_id):
                for call in node.calls():
                    self._kill(call)

    def forget(self, slice_ids: Sequence[str]) -> None:
        """Treat all nodes of these slices as dead, also those that are still connected."""
        for slice_id in slice_ids:
            self._forgotten.add(slice_id)
            self._liveness.forget(slice_id)
            self._fences.pop(slice_id, None)
            for node in self._nodes_of(slice_id):
                self.engine.dismiss(node.id)
        self._move_on()

    def _is_cordoned(self, slice_id: str) -> bool:
        fence = self._fences.get(slice_id)
        return fence is not None and fence.up

    def _nodes_of(self, slice_id: str) -> list[PoolNode]:
        return [node for node in self.nodes.values() if node.slice_id == slice_id]

    def view(self) -> WorkloadView:
        """Return the demand, the nodes and the acknowledgements at this instant."""
        calls = [call for node in self.nodes.values() for call in node.calls()]
        behind = [(call.kind, len(queued), queued[0].since) for call in calls if (queued := call.queued)]
        kinds = {call.kind for call in calls}
        classes = named_classes((*kinds, *self.waiting.kinds()))
        nodes = sorted(self.nodes.values(), key=lambda node: node.number)
        shown = [node.shown(classes) for node in nodes if node.slice_id not in self._forgotten]
        shown += self._liveness.abandoned.values()
        words = [
            Acknowledgement(
                name, fence.cordon, sum(len(call.left) for node in self._nodes_of(name) for call in node.calls())
            )
            for name, fence in self._fences.items()
            if fence.up
        ]
        return WorkloadView(self.waiting.demands(behind, kinds), (), tuple(shown), tuple(words))

    def queued_on_slots(self) -> Iterator[ScheduledTask]:
        """Return the tasks that were sent to a slot and have not begun."""
        return (task for node in self.nodes.values() for task in node.queued())

    @property
    def queued(self) -> int:
        """The number of tasks that have not begun."""
        return len(self.waiting) + sum(len(call.queued) for node in self.nodes.values() for call in node.calls())

    @property
    def done(self) -> int:
        """The number of runs that have ended."""
        return self._endings.done

    def is_open(self, call: str) -> bool:
        """Return whether a call has not ended."""
        return call in self._calls

    def queued_of(self, name: str) -> int:
        """Return how many tasks of one demand have not begun."""
        tasks = (*self.waiting.tasks(), *self.queued_on_slots())
        return sum(name == (task.gang.name if task.gang else self.waiting.name_of(task.kind)) for task in tasks)

    @property
    def open_nodes(self) -> list[PoolNode]:
        """Return the nodes that take tasks: those without accelerators first, then by number."""
        found = [node for node in self.nodes.values() if self._takes_work(node)]
        return sorted(found, key=lambda node: (node.accelerated, node.number))

    def _takes_work(self, node: PoolNode) -> bool:
        out = node.leaving or node.silent_since is not None or node.slice_id in self._forgotten
        return not (out or self._is_cordoned(node.slice_id))

    # -- callbacks of the engine --------------------------------------------------------------------------------------

    def on_node_joined(self, facts: NodeFacts) -> None:
        slice_id = facts.node.rpartition("/")[0]
        group = self._groups(slice_id)
        refusal = self._refusal(facts, group)
        if slice_id in self._forgotten or group is None or refusal:
            if refusal:
                self.refused[facts.node] = refusal
            self.engine.dismiss(facts.node)
        else:
            self.ever_joined = True
            self.nodes[facts.node] = PoolNode(self._free_number(), slice_id, group, facts, self._now())
        self._move_on()

    def _head_address(self) -> str:
        return min(self.nodes.values(), key=lambda node: node.number).facts.address

    def _free_number(self) -> int:
        """Return the lowest free number: a replacement gets the number of the node that it replaces."""
        taken = {node.number for node in self.nodes.values()}
        return next(number for number in range(len(taken) + 1) if number not in taken)

    @property
    def has_gaps(self) -> bool:
        """Whether a number below the number of nodes is free."""
        return any(node.number >= len(self.nodes) for node in self.nodes.values())

    def close_gaps(self) -> None:
        """Give free low numbers to idle nodes with higher ones. A busy node keeps its number until it is idle, so that
        all tasks that run on a node at the same time have the same one.
        """
        movable = sorted((node for node in self.open_nodes if not node.running()), key=lambda node: -node.number)
        for node in movable:
            node.number = min(node.number, self._free_number())

    def _refusal(self, facts: NodeFacts, group: Group | None) -> str:
        minor = ".".join(facts.python.split(".")[:2])
        if minor != self._python:
            return (
                f"node {facts.node} runs Python {minor} and this program Python {self._python}: functions cannot be "
                f"sent between the two versions. Start the nodes with Python {self._python}"
            )
        return f"node {facts.node} belongs to no group of the pool" if group is None else ""

    def on_node_left(self, node: str, why: str) -> None:
        gone = self.nodes.pop(node, None)
        for task in gone.pinned if gone is not None else ():
            self._endings.fail(task, NodeLost(f"{task.label} was to run on {node} alone, and it left: {why}"))
        self._move_on()

    def on_node_silent(self, node: str, seconds: float) -> None:
        if node in self.nodes:
            self._liveness.silent(self.nodes[node], seconds)
            for call in self.nodes[node].calls():
                if call.queued:
                    self._revoke(call)  # the node may only be slow
            self._move_on()

    def on_node_heard(self, node: str) -> None:
        if node in self.nodes:
            self._liveness.heard(self.nodes[node])
            self._move_on()

    def data_store(self) -> DataStore | None:
        return self._store

    def on_engine_down(self, why: str) -> None:
        self.engine_problem = why
        self._on_change()

    def on_engine_up(self) -> None:
        self.engine_problem = ""
        self._move_on()

    def on_engine_lost(self, why: str) -> None:
        self.engine_problem, self.engine_is_lost = why, True
        placed = [task for call in self._calls.values() for task in call.left]
        pinned = [task for node in self.nodes.values() for task in node.pinned]
        self.cancel([*self.waiting.tasks(), *placed, *pinned], lambda _: EngineLost(why))

    def on_call_began(self, call: str) -> None:
        placed = self._calls[call]
        placed.began_at = placed.moved_at = self._now()
        self._begin(placed.tasks[0])
        self._timeouts.watch_run(placed)

    def _begin(self, task: ScheduledTask) -> None:
        if not task.begun:
            task.begun = True
            task.ticket.on_began()

    def on_results(self, call: str, results: Sequence[PackedResult], seconds: float) -> None:
        placed = self._calls[call]
        if placed.tasks[0].gang is not None:
            placed.early += tuple(results)
            return
        waiting = len(self.waiting)
        self._endings.deliver(placed, results, seconds)
        if placed.finished < len(placed.tasks):
            self._begin(placed.tasks[placed.finished])
        if len(self.waiting) > waiting:
            self._move_on()
        else:
            self._on_change()

    def on_call_shortened(self, call: str, items: int) -> None:
        placed = self._calls[call]
        back, placed.tasks = placed.tasks[items:], placed.tasks[:items]
        placed.ending = False
        for task in reversed(back):
            if task.doomed is not None:
                self._endings.fail(task, task.doomed)
            else:
                self._endings.wait_again(task)
        if any(task.doomed is not None for task in placed.left):
            self._end_doomed(placed)
        self._move_on()

    def on_output(self, call: str, item: int, stream: Literal["stdout", "stderr"], line: str) -> None:
        self._on_output(self._calls[call].tasks[item], stream, line)

    def on_value(self, call: str, item: int, blob: bytes) -> None:
        self._calls[call].tasks[item].ticket.on_value(blob)

    def on_call_ended(self, call: str, outcome: CallOutcome) -> None:
        placed = self._calls.pop(call)
        self._leave_slot(placed)
        if outcome.ending in ("crashed", "killed") and placed.node in self.nodes:
            node = self.nodes[placed.node]
            node.take_last(node.slots[placed.slot])
        if outcome.ending == "lost" and placed.node in self.nodes:
            self.nodes[placed.node].leaving = True  # ``on_node_left`` follows: nothing is placed there meanwhile
        self._endings.end_call(placed, outcome)
        self._move_on()

    def _leave_slot(self, placed: TaskPlacement) -> None:
        node = self.nodes.get(placed.node)
        if node is None:
            return
        slot = node.slots[placed.slot]
        slot.calls.remove(placed)
        if placed.taken is None:
            return  # it waited behind another call
        taken, placed.taken = placed.taken, None
        following = slot.calls[0] if slot.calls else None
        if following is not None:
            following.taken = taken
        else:
            node.room.give(taken)
        if not node.running():
            node.idle_since = self._now()

    def _revoke(self, call: TaskPlacement) -> None:
        if not call.ending:
            call.ending = True
            self.engine.revoke(call.id)

    def _kill(self, call: TaskPlacement) -> None:
        call.ending = True
        self.engine.kill(call.id)

    # -- placing ------------------------------------------------------------------------------------------------------

    def _place_later(self, seconds: float) -> None:
        if not self._looking:
            self._looking = True
            self._later(seconds, self._looked)

    def _looked(self) -> None:
        self._looking = False
        if not self._closed:
            self._placer.place(self.open_nodes)

    def _move_on(self) -> None:
        if not self._closed:
            self._placer.place(self.open_nodes)
        self._on_change()

    def _send(
        self,
        tasks: list[ScheduledTask],
        node: PoolNode,
        slot: Slot,
        taken: TakenRoom | None,
        environment: Mapping[str, str] | None = None,
    ) -> TaskPlacement:
        self._called += 1
        kind = tasks[0].kind
        placed = TaskPlacement(f"c{self._called}", node.id, slot.number, tasks, kind, taken=taken)
        for task in tasks:
            task.state = "placed"
        slot.calls.append(placed)
        self._calls[placed.id] = placed
        node.idle_since = None
        variables = {
            "WINDLASS_NODE": node.id,
            "WINDLASS_NODE_RANK": str(node.number),
            "WINDLASS_RANK": str(node.number),  # unless it has one in a gang or among the nodes
            "WINDLASS_NODES": str(len(self.nodes)),
            "WINDLASS_HEAD": self._head_address(),
            "WINDLASS_SLOT": str(slot.number),
            "WINDLASS_TASK": tasks[0].label,
            **dict(kind.environment),
            **tasks[0].environment,
            **(taken.environment() if taken is not None else {}),
            **(environment or {}),
        }
        arguments = [task.arguments for task in tasks]
        place = None if self._store is None else self._store.place
        blob = pack_batch(kind.function, arguments, limit=self._limit, place=place, call=placed.id)
        self.engine.run(Call(placed.id, node.id, slot.number, blob, variables, len(tasks)))
        return placed
