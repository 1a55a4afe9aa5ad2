"""This module reports the status of a pool, and explains the state of a node, a task or a group. It reads the
controller's state and journal, like ``windlass status`` and ``windlass why``, so the sentences are the same. It runs on
the pool's thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from windlass.control.reconcile.provider_health import availability_of
from windlass.control.record.costs import charged
from windlass.control.report.current import PlannedState, planned_state
from windlass.control.report.history import SliceHistory, launches_for, life_of, wait_of
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import COSTLY, State
from windlass.core.model.reasons import Code, nearest_names, plural, seconds
from windlass.core.model.snapshot import Demand
from windlass.pool.errors import PoolError
from windlass.pool.runtime import PoolRuntime
from windlass.pool.scheduler.nodes import PoolNode

LOOKED_BACK = 1000
"""Number of journal records that are searched for names similar to an unknown one."""


@dataclass(frozen=True)
class NodeStatus:
    """The status of one node, which may still boot."""

    name: str
    number: int | None
    """Its number: the lowest that was free when it joined, or became free later; None before it has joined."""
    group: str
    state: str
    since: float
    """Seconds."""
    slots: int
    tasks: int
    done: int
    why: str


@dataclass(frozen=True, repr=False)
class PoolStatus:
    """The status of a pool at one instant. It prints as a page, also in a notebook; ``to_dict`` returns plain data."""

    nodes: tuple[NodeStatus, ...]
    waiting: int
    running: int
    done: int
    slots: int
    """Slots of nodes that take tasks."""
    rule: tuple[str, ...]
    """The decision of the scaling rule, one line for each group."""
    last_change: str
    dollars_per_hour: float
    dollars: float
    """Dollars spent so far."""
    troubles: tuple[str, ...] = ()

    def count(self, *states: str) -> int:
        """Return the number of nodes in these states."""
        return sum(node.state in states for node in self.nodes)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __repr__(self) -> str:
        return "\n".join(_page(self))


def _page(status: PoolStatus) -> Iterator[str]:
    yield f"{summary(status)}"
    yield from (f"  rule: {line}" for line in status.rule)
    if status.last_change:
        yield f"  last change: {status.last_change}"
    yield from (f"  ! {problem}" for problem in status.troubles)
    for node in status.nodes:
        number = "  -" if node.number is None else f"{node.number:>3}"
        yield f"{number}  {node.name}  {node.state}, {plural(node.tasks, 'task')} now, {node.done} done: {node.why}"


def summary(status: PoolStatus) -> str:
    """Return one line: nodes by state, tasks by state, and the cost if nodes have a price."""
    states = [f"{status.count(state)} {state}" for state in State if status.count(state)]
    cost = f", ${status.dollars_per_hour:.2f}/h, ${status.dollars:.4f} so far" if status.dollars_per_hour else ""
    nodes = ", ".join(states) or "none"
    tasks = f"{status.waiting} waiting, {status.running} running, {status.done} done"
    return f"nodes: {nodes}; tasks: {tasks}{cost}"


def status_of(runtime: PoolRuntime) -> PoolStatus:
    """Return the current status."""
    planned = _planned_state(runtime)
    controller_state, now = planned.controller_state, planned.now
    joined: dict[str, list[PoolNode]] = {}
    for node in runtime.task_book.nodes.values():
        joined.setdefault(node.slice_id, []).append(node)
    ranks = {name: min(node.number for node in some) for name, some in joined.items()}
    records = sorted(
        controller_state.fleet.slices.values(), key=lambda one: (ranks.get(one.id, len(ranks)), _order(one.id))
    )
    nodes = [_node_status(runtime, planned, record, joined.get(record.id, [])) for record in records]
    accounts = charged(controller_state.account, controller_state.fleet, controller_state.stay, now)
    return PoolStatus(
        nodes=tuple(nodes),
        waiting=runtime.task_book.queued,
        running=sum(node.tasks() for node in runtime.task_book.nodes.values()),
        done=runtime.task_book.done,
        slots=sum(len(node.slots) for node in runtime.task_book.open_nodes),
        rule=tuple(f"{name}: {one.action}: {one.reason}" for name, one in sorted(runtime.decisions.items())),
        last_change=runtime.last_change,
        dollars_per_hour=sum(r.price for r in controller_state.fleet.slices.values() if r.state in COSTLY) / 1e9,
        dollars=sum(account.dollars() for account in accounts.values()),
        troubles=tuple(
            [f"{name}: {text}" for name, text in sorted(controller_state.observed.problems.items())]
            + list(runtime.task_book.refused.values())
            + ([f"engine: {runtime.task_book.engine_problem}"] if runtime.task_book.engine_problem else [])
            + ([runtime.service.problem] if runtime.service.problem else [])
            + list(_next_tries(runtime))
        ),
    )


def _node_status(
    runtime: PoolRuntime, planned: PlannedState, record: SliceRecord, joined: Sequence[PoolNode]
) -> NodeStatus:
    """Return the status of one slice. ``joined``: its nodes that have joined the pool."""
    code, why = planned.stay(record)
    tasks = sum(node.tasks() for node in joined)
    silent = [node.silent_since for node in joined if node.silent_since is not None]
    if record.state == State.READY and not joined and runtime.task_book.engine_problem:
        why = "the engine does not reach it"
    elif record.state == State.READY and not joined:
        why = "it does not answer; its tasks run on other nodes, and it is being replaced"
    elif silent:
        limit = seconds(runtime.shape.settings.policy.unhealthy_timeout)
        why = f"no heartbeat for {seconds(planned.now - min(silent))}; it is replaced after {limit}"
    elif code == Code.BUSY:  # the reason of the last plan may be old; the book knows what runs now
        why = f"{plural(tasks, 'task')} running" if tasks else "its work has just ended"
    elif code == Code.PROTECTED:
        why = "idle; the head is released last"
    return NodeStatus(
        record.id,
        min([node.number for node in joined], default=None),
        record.group,
        str(record.state),
        max(0.0, planned.now - record.since),
        sum(len(node.slots) for node in joined),
        tasks,
        sum(node.done for node in joined),
        why,
    )


def _next_tries(runtime: PoolRuntime) -> Iterator[str]:
    """Return the refused launches, and when they are tried again."""
    now, controller = runtime.now(), runtime.service.controller
    for name, (at, why) in sorted(controller.actuator.next_tries().items()):
        yield f"launch of {name} refused: {why}; next try in {seconds(at - now)}"
    for configured in runtime.shape.settings.groups:
        known = controller.controller_state.fleet.provider_health.get(configured.group.name)
        if known is not None:
            belief = availability_of(known, runtime.shape.settings.policy.backoff, now)
            if belief.until is not None and belief.until > now:
                yield f"{configured.group.name}: {belief.why}; next try in {seconds(belief.until - now)}"


def _order(name: str) -> tuple[str, int]:
    group, _, number = name.rpartition("-")
    return group, int(number) if number.isdecimal() else 0


def _planned_state(runtime: PoolRuntime) -> PlannedState:
    controller = runtime.service.controller
    return planned_state(controller.controller_state, runtime.shape.settings, runtime.now())


def why(runtime: PoolRuntime, name: str | int | None = None) -> str:
    """Explain the state of a node, a task or a group."""
    if name is None:
        return "\n".join(_why_pool(runtime))
    planned = _planned_state(runtime)
    wanted = _slice_named(runtime, name)
    life = life_of(runtime.journal, wanted)
    if life is not None:
        return "\n".join(_why_node(runtime, planned, wanted, life))
    if str(name) in runtime.decisions:
        return "\n".join(_why_pool(runtime, str(name)))
    demand = planned.controller_state.observed.demand.get(str(name))
    tasks = runtime.task_book.waiting.names()
    if demand is None and str(name) not in tasks and wait_of(runtime.journal, str(name)) is None:
        known = {*planned.controller_state.fleet.slices, *tasks, *runtime.decisions}
        past = runtime.journal.read(kinds=("slice", "demand"), newest_first=True, limit=LOOKED_BACK)
        near = nearest_names(str(name), known | {one.subject for one in past})
        hint = f"; did you mean {' or '.join(near)}?" if near else f"; there are {', '.join(sorted(known)) or 'none'}"
        raise PoolError(f"there is no node, task or group {name}{hint}")
    return "\n".join(_why_task(runtime, planned, str(name), demand))


def _slice_named(runtime: PoolRuntime, name: str | int) -> str:
    """Return the slice of a node, by the node's number, its name or the name of its slice."""
    for node in runtime.task_book.nodes.values():
        if str(name) in (str(node.number), node.id):
            return node.slice_id
    return str(name)


def _why_pool(runtime: PoolRuntime, only: str | None = None) -> Iterator[str]:
    for name, decision in sorted(runtime.decisions.items()):
        if only in (None, name):
            limits = runtime.shape.limits[name]
            yield f"{name}: {decision.action}, {plural(decision.nodes, 'node')} wanted: {decision.reason}"
            yield f"  min {limits.min}, max {limits.max}"
    if runtime.service.problem:
        yield runtime.service.problem
    if runtime.last_change:
        yield f"last change: {runtime.last_change}"


def _why_node(runtime: PoolRuntime, planned: PlannedState, name: str, life: SliceHistory) -> Iterator[str]:
    now = planned.now
    yield f"{name}: {life.last.state}"
    yield f"  started for {life.last.started_for.code}: {life.last.started_for.why}"
    for step in life.steps:
        yield f"  {_clock(step.at)}  {step.state}: {step.reason.why}"
    record = planned.controller_state.fleet.slices.get(name)
    if record is not None:
        code, text = planned.stay(record)
        yield f"  now: {f'{code}: ' if code else ''}{text}"
        decision = runtime.decisions.get(record.group)
        if decision is not None and record.state == State.READY:
            yield f"  the pool: {decision.action}: {decision.reason}"
    if life.certified is not None:
        yield f"  {_clock(life.certified[0])}  the workload confirmed that nothing runs there"
    if life.forgotten is not None:
        yield f"  confirmed gone {seconds(max(0, now - life.forgotten))} ago"


def _why_task(runtime: PoolRuntime, planned: PlannedState, name: str, demand: Demand | None) -> Iterator[str]:
    running = [call.running for node in runtime.task_book.nodes.values() for call in node.running()]
    mine = [task for task in running if task is not None and runtime.task_book.waiting.name_of(task.kind) == name]
    waiting = runtime.task_book.queued_of(name)  # the demand of the last pass may be old
    yield f"{name}: {waiting} waiting, {len(mine)} running"
    if demand is not None and waiting:
        for part in planned.parts(demand):
            yield f"  {plural(part.count, 'task')}{f' {part.code}' if part.code else ''}: {part.why}"
            for group, reason in sorted(part.waiting.groups.items()) if part.waiting is not None else ():
                yield f"    {group}: {reason.code}: {reason.why}"
    wait = wait_of(runtime.journal, name)
    if wait is None:
        yield "  none of them ever waited for a node"
    else:
        for record in launches_for(runtime.journal, name, wait):
            data: Any = record.data
            yield f"  {_clock(record.at)}  launched {plural(data['count'], 'slice')} of {record.subject}: {data['why']}"


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
