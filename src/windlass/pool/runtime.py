"""PoolRuntime runs a pool: engine, workload, controller and journal on one event loop.

All its methods are called on that loop. `host` runs it on a separate thread; tests run it on virtual time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, count
from operator import attrgetter

from windlass._gc_pause import uncollected
from windlass.control.controller import Pass
from windlass.control.reconcile.operator_orders import Order, give
from windlass.control.report.events import lines
from windlass.control.service import Service
from windlass.control.settings import Leadership
from windlass.control.state.fleet import Moved, ProviderHealth
from windlass.core.model.lifecycle import IN_FLIGHT, State
from windlass.core.model.reasons import Code, plural
from windlass.journal import Journal, JournalError
from windlass.pool.client.submission import Piece, Prepared
from windlass.pool.engines.protocol import Engine
from windlass.pool.options import PROVIDER, PoolShape
from windlass.pool.scaling.policy import PoolScaling
from windlass.pool.scaling.rule import ScalingDecision
from windlass.pool.scaling.workload import PoolWorkload
from windlass.pool.scheduler.gangs import TaskGang, rank_environments
from windlass.pool.scheduler.task_book import TaskBook
from windlass.pool.scheduler.tasks import OnOutput, ScheduledTask, Ticket
from windlass.pool.transport.data_store import DataStore
from windlass.providers.protocol import Provider, ProviderError

from .errors import NoNodes, PoolClosed

RETENTION = 86400.0
"""Seconds for which the journal keeps entries: a busy pool writes several times a second."""
REFUSALS = frozenset({Code.STOCKOUT, Code.QUOTA, Code.UNKNOWN_INPUT})
"""Kinds of failure in which the provider refused a launch: it is tried again, and status says when."""
GIVE_UP = 3
"""Launches in a row that failed, with no node at work, after which waiting tasks fail with that reason."""
GIVE_UP_SETUP = 2
"""Launches whose setup failed in the same phase, in a pool that has had no node, after which
waiting tasks fail: the next machine would fail like these.
"""
GIVE_UP_AFTER = 120.0
"""Seconds for which launches must fail in a pool that has had a node: its image and provider work, so the cause may be
temporary.
"""
ON_RECORD = 15.0
"""Seconds for the controller to see every node gone when the pool is closed."""
LEASE = 30.0
"""Length of the lease in seconds: no other controller uses a pool's journal, and a program in a debugger keeps its
lease.
"""


SWEEPING = 30.0
"""Seconds between two removals of values that are no longer used, and of results that arrived too late."""
ENDINGS = 5
"""How often a provider is asked to end the remaining nodes when the pool is closed."""
ENDING_PAUSE = 0.5
"""Seconds before it is asked again, after the first two times."""
log = logging.getLogger(__name__)


async def _logging_errors(step: Awaitable[object]) -> None:
    """Run one step of the shutdown; log its error. A full disk or a broken journal must not prevent the steps that end
    nodes.
    """
    try:
        await step
    except JournalError as error:
        log.warning("the pool was closed, and its journal does not record the end of all nodes: %s", error)
    except Exception as error:  # noqa: BLE001
        log.warning("while the pool was closed: %s: %s", type(error).__name__, error)


class PoolRuntime:
    """Runs one pool."""

    def __init__(
        self,
        shape: PoolShape,
        engine: Engine,
        provider: Provider,
        journal: Journal,
        *,
        now: Callable[[], float],
        steady: Callable[[], float],
        environment: Mapping[str, str] | None = None,
        on_output: OnOutput = lambda _task, _stream, _line: None,
        on_pass: Callable[[Pass], None] = lambda _: None,
        on_message: Callable[[str], None] = lambda _: None,
        holder: str = "pool",
        last_output: Callable[[str], str] = lambda _slice: "",
        store: DataStore | None = None,
    ) -> None:
        """``last_output`` returns the last line that a lost slice printed, or nothing. ``store``: for large values."""
        self.shape, self.engine, self.provider, self.journal = shape, engine, provider, journal
        self.now, self.store = now, store
        self.scaling = PoolScaling(shape, lambda: self.task_book.engine_problem)
        self._on_pass, self._last_output = on_pass, last_output
        self._last_line = ""
        self._failed_setups: dict[tuple[str, str], set[str]] = {}
        """Nodes whose setup failed, by group and phase."""
        self._numbers, self._gangs = count(1), count(1)
        self.workload = PoolWorkload(
            engine,
            [one.group for one in shape.settings.groups],
            environment=environment,
            now=now,
            on_output=on_output,
            limit=shape.result_limit,
            on_finished=self._on_finished,
            unhealthy_timeout=shape.settings.policy.unhealthy_timeout,
            store=store,
        )
        self.service = Service(
            shape.settings,
            {PROVIDER: provider},
            self.workload,
            journal,
            leadership=Leadership(holder, LEASE),
            retention=RETENTION,
            now=now,
            steady=steady,
            on_pass=self._watch,
            on_message=on_message,
            on_lead=lambda _: None,  # it always does
            override_settings=self.scaling,
        )
        self._running: asyncio.Task[None] | None = None
        self._outstanding: set[ScheduledTask] = set()
        self._swept_at = now()
        self.last_change = ""
        """The last node that was started, drained or lost, and why."""

    @property
    def task_book(self) -> TaskBook:
        return self.workload.task_book

    async def start(self) -> None:
        """Start the engine and the controller; return before the nodes have joined."""
        await self.workload.start()
        self._running = asyncio.create_task(self.service.run())

    async def close(self, *, on_record: bool = False) -> None:
        """End everything: tasks that have not ended fail, nodes end, the engine ends. With ``on_record`` the controller
        drains and ends the nodes, so that its journal records it; otherwise the provider ends them at once, which is
        quicker.
        """
        self.task_book.close()
        self.task_book.cancel(list(self._outstanding), lambda _: PoolClosed("the pool was closed"))
        if on_record:
            await _logging_errors(self._drain_all())
        self.service.stop()
        if self._running is not None:
            await _logging_errors(self._running)
        await _logging_errors(self.engine.close())
        await _logging_errors(self._end_nodes())
        await _logging_errors(self.provider.close())

    async def _drain_all(self) -> None:
        """Have the controller end every node, and wait until it has observed their end."""
        closed = tuple(replace(one, group=replace(one.group, min=0)) for one in self.shape.settings.groups)
        shape = replace(self.shape, settings=replace(self.shape.settings, groups=closed), limits={}, desired={})
        for name in self.service.controller.controller_state.fleet.slices:
            give(self.journal, Order("drain", name, "the program, which closes the pool,"), self.now())
        await self.reshape(shape)
        with suppress(TimeoutError):
            async with asyncio.timeout(ON_RECORD):
                while self.service.leading and self.service.controller.controller_state.fleet.slices:
                    await asyncio.sleep(0.05)

    async def _end_nodes(self) -> None:
        """End the remaining nodes. No task runs on them: the engine has ended."""
        epoch = self.service.controller.leading.epoch
        for attempt in range(ENDINGS):
            if attempt > 1:
                await asyncio.sleep(ENDING_PAUSE)
            with suppress(ProviderError, OSError):
                left = await self.provider.list()
                if not left:
                    return
                ending = (self.provider.terminate(one.slice_id, epoch) for one in left)
                await asyncio.gather(*ending, return_exceptions=True)
        log.warning("not all nodes of the pool are known to have ended")

    # -- tasks --------------------------------------------------------------------------------------------------------

    def submit(self, prepared: Prepared, tickets: Sequence[Ticket]) -> list[ScheduledTask]:
        """Add tasks that run once, in any order."""
        self._hold(prepared)
        now, each = self.now(), iter(tickets)
        with uncollected(len(tickets)):
            tasks = [
                ScheduledTask(number, piece.kind, arguments, ticket, now, piece.shared)
                for piece in prepared.pieces
                # The arguments come first: zip then takes no ticket and no number of the next piece.
                for arguments, ticket, number in zip(piece.arguments, each, self._numbers, strict=False)
            ]
            self._outstanding.update(tasks)
            self.task_book.submit(tasks)
        return tasks

    def submit_gang(self, prepared: Prepared, tickets: Sequence[Ticket], *, spread: bool) -> list[ScheduledTask]:
        """Add a gang: one piece, run by as many members as there are tickets."""
        (piece,) = prepared.pieces
        self._hold(prepared, len(tickets))
        gang = TaskGang(f"{piece.kind.name}-gang-{next(self._gangs)}", spread, self.now())
        for rank, ticket in enumerate(tickets):
            member = self._task(piece, ticket)
            member.gang, member.rank = gang, rank
            gang.members.append(member)
        self.task_book.submit_gang(gang)
        return gang.members

    def submit_everywhere(self, prepared: Prepared, tickets: Callable[[int], Sequence[Ticket]]) -> list[ScheduledTask]:
        """Run one piece once on every node that takes work. ``tickets`` is called with the number of nodes."""
        (piece,) = prepared.pieces
        nodes = sorted(self.task_book.open_nodes, key=lambda node: node.number)
        tasks = []
        self._hold(prepared, len(nodes))
        environments = rank_environments(nodes, next(self._gangs)) if nodes else []
        for rank, (node, ticket) in enumerate(zip(nodes, tickets(len(nodes)), strict=True)):
            task = self._task(piece, ticket)
            task.node, task.rank, task.environment = node.id, rank, environments[rank]
            tasks.append(task)
        self.task_book.submit_pinned(tasks)
        return tasks

    def _task(self, piece: Piece, ticket: Ticket) -> ScheduledTask:
        (arguments,) = piece.arguments
        task = ScheduledTask(next(self._numbers), piece.kind, arguments, ticket, self.now(), piece.shared)
        self._outstanding.add(task)
        return task

    def cancel(self, tasks: Sequence[ScheduledTask]) -> int:
        return self.task_book.cancel(tasks)

    def all_tasks(self) -> list[ScheduledTask]:
        """Return every task that has not ended, in the order of submission."""
        return sorted(self._outstanding, key=lambda task: task.number)

    @property
    def outstanding(self) -> int:
        """The number of tasks that have not ended."""
        return len(self._outstanding)

    def _on_finished(self, tasks: Collection[ScheduledTask]) -> None:
        """Release the large values of tasks that have ended."""
        self._outstanding.difference_update(tasks)
        if self.store is not None:
            for name in chain.from_iterable(map(attrgetter("shared"), tasks)):
                self.store.drop(name)

    def _hold(self, prepared: Prepared, times: int = 1) -> None:
        """Hold the large values of tasks until they have ended. ``times``: how often each task of the piece runs."""
        if self.store is not None:
            for piece in prepared.pieces:
                for name in piece.shared:
                    self.store.hold(name, len(piece.arguments) * times)
            prepared.release()

    # -- size ---------------------------------------------------------------------------------------------------------

    async def reshape(self, shape: PoolShape) -> None:
        """Set other limits."""
        self.shape = shape
        self.scaling.reshape(shape)
        self.workload.regroup([one.group for one in shape.settings.groups])
        await self.service.reconfigure(shape.settings, {PROVIDER: self.provider}, self.workload)

    @property
    def coming(self) -> int:
        """The number of nodes that were launched and have not joined."""
        records = self.service.controller.controller_state.fleet.slices.values()
        return sum(record.state in IN_FLIGHT for record in records)

    @property
    def decisions(self) -> Mapping[str, ScalingDecision]:
        return self.scaling.decisions

    # -- failures -----------------------------------------------------------------------------------------------------

    def _watch(self, done: Pass) -> None:
        if self.store is not None and self.now() - self._swept_at > SWEEPING:
            self._swept_at = self.now()
            self.store.expire()
            self.store.remove_results(lambda call: self.task_book.is_open(call.partition("_")[0]))
        if self.task_book.has_gaps and self._every_node_has_joined():
            self.task_book.close_gaps()
        self._on_pass(done)
        for text in changes_of(done):
            self.last_change = text
        for move in done.fold.moves:
            if move.target in (State.LOST, State.INIT_FAILED):
                self._last_line = self._last_output(move.slice_id) or self._last_line
                self._note_setup(move)
        if not self.task_book.nodes and len(self.task_book.waiting) and (why := self._hopeless()):
            self.task_book.cancel(list(self.task_book.waiting.tasks()), lambda _: NoNodes(why))

    def _every_node_has_joined(self) -> bool:
        """Return whether exactly the recorded slices have joined: no node was lost or launched whose number is kept."""
        joined = {node.slice_id for node in self.task_book.nodes.values()}
        return joined == set(self.service.controller.controller_state.fleet.slices)

    def _note_setup(self, move: Moved) -> None:
        """Count a node whose setup failed."""
        instance = self.service.controller.controller_state.observed.instance.get(move.slice_id)
        if instance is None:
            return
        for phase in {host.failed_phase for host in instance.hosts if host.failed_phase}:
            self._failed_setups.setdefault((instance.group, phase), set()).add(move.slice_id)

    def _hopeless(self) -> str:
        """Return why no node can start; empty if one may."""
        fleet = self.service.controller.controller_state.fleet
        until = self.now() - (GIVE_UP_AFTER if self.task_book.ever_joined else 0.0)
        bad: list[ProviderHealth] = []
        alike = 0
        for configured in self.shape.settings.groups:
            known = fleet.provider_health.get(configured.group.name, ProviderHealth())
            after = [one for one in known.failures if known.succeeded_at is None or one.at > known.succeeded_at]
            failed = [one.at for one in after if one.code not in REFUSALS]
            setups = [len(one) for (group, _), one in self._failed_setups.items() if group == configured.group.name]
            alike = 0 if self.task_book.ever_joined else max(setups, default=0)
            if alike < GIVE_UP_SETUP and (len(failed) < GIVE_UP or min(failed) > until):
                return ""
            bad.append(known)
        refusals = list(self.task_book.refused.values())
        last = refusals[-1] if refusals else bad[-1].last_error
        if alike >= GIVE_UP_SETUP and not refusals:
            failed_alike = f"the setup of {plural(alike, 'node')} failed in the same phase, and no more are started"
            return f"{failed_alike}: {last}. Correct the image of the pool"
        words = f". Its last output: {self._last_line}" if self._last_line and not refusals else ""
        return f"{plural(len(failed), 'node')} in a row failed to start, and none is at work: {last}{words}"


PRINTED = frozenset({"launch", "slice", "trouble"})
"""Kinds of journal entries that are printed. The first steps of a node are not: its launch is. A refused launch is
printed once, when its slice fails."""
QUIET_STATES = frozenset({State.REQUESTING, State.BOOTING, State.INITIALIZING, State.TERMINATING})


def changes_of(done: Pass) -> list[str]:
    """Return what a pass changed, in lines for people."""
    return [
        line.text
        for line in lines(done.entries)
        if line.kind in PRINTED
        and (line.alarm or line.state not in QUIET_STATES)
        and not (line.kind == "trouble" and line.subjects[0].startswith("slice "))
    ]
