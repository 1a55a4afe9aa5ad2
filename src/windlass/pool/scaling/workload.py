"""PoolWorkload shows the task book of a pool to the controller as a workload.

The task book is on the same event loop as the controller, so every view and every acknowledgement is exact at its
instant.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from windlass.core.model.snapshot import Group
from windlass.pool.engines.protocol import Engine
from windlass.pool.scheduler.task_book import PYTHON, TaskBook
from windlass.pool.scheduler.tasks import SLOTS, OnFinished, OnOutput
from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.serialization import LIMIT
from windlass.workloads.protocol import Join, WorkloadError, WorkloadView


class PoolWorkload:
    """Runs the tasks of one pool. It is created on the pool's event loop; call ``start`` first."""

    def __init__(
        self,
        engine: Engine,
        groups: Iterable[Group] = (),
        *,
        environment: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.time,
        on_output: OnOutput = lambda _task, _stream, _line: None,
        python: str = PYTHON,
        limit: int = LIMIT,
        on_finished: OnFinished = lambda _tasks: None,
        unhealthy_timeout: float = 30.0,
        store: DataStore | None = None,
    ) -> None:
        """``environment``: variables of every node's processes. ``python``: the version that nodes must have.
        ``limit``: bytes of the largest result of a task. ``on_finished`` gets tasks that have ended, before their
        tickets. ``store``: where large values are.
        """
        self._engine, self._environment = engine, dict(environment or {})
        self._news = asyncio.Event()
        self._group_of: dict[str, str] = {}
        self.regroup(groups)
        self.task_book = TaskBook(
            engine,
            lambda slice_id: self._groups.get(self._group_of.get(slice_id, "")),
            now=now,
            later=asyncio.get_running_loop().call_later,
            on_change=self._news.set,
            on_output=on_output,
            python=python,
            limit=limit,
            on_finished=on_finished,
            unhealthy_timeout=unhealthy_timeout,
            store=store,
            all_groups=lambda: self._groups.values(),
        )

    async def start(self) -> None:
        await self._engine.start(self.task_book)

    def regroup(self, groups: Iterable[Group]) -> None:
        """Set the groups of nodes that will join; nodes that have joined keep theirs."""
        self._groups = {group.name: group for group in groups}

    # -- the contract -------------------------------------------------------------------------------------------------

    async def observe(self) -> WorkloadView:
        self._news.clear()
        return self.task_book.view()

    async def changed(self) -> None:
        await self._news.wait()

    def join(self, slice_id: str, group: str, host: int) -> Join:
        known = self._groups.get(group)
        if known is None:
            raise WorkloadError(f"host {host} of slice {slice_id} cannot join: the pool has no group {group}")
        self._group_of[slice_id] = group
        join = self._engine.join(f"{slice_id}/{host}", slots_of(known))
        return replace(join, environment={**self._environment, **join.environment})

    async def cordon(self, slice_id: str, epoch: int) -> None:
        self.task_book.cordon(slice_id, epoch)

    async def uncordon(self, slice_id: str, epoch: int) -> None:
        self.task_book.uncordon(slice_id, epoch)

    async def drain(self, slice_id: str, epoch: int, *, evict: bool = False) -> None:  # noqa: ARG002
        if evict:
            self.task_book.evict(slice_id)

    async def forget(self, slice_ids: Sequence[str]) -> None:
        self.task_book.forget(slice_ids)
        for slice_id in slice_ids:
            self._group_of.pop(slice_id, None)

    async def close(self) -> None:
        """Stop placing tasks; the owner closes the engine."""
        self.task_book.close()


def slots_of(group: Group) -> int:
    """Return how many calls a node of a group runs at once."""
    return dict(group.resources).get(SLOTS, 0) // 1000
