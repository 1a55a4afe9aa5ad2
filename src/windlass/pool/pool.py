"""``ComputePool`` is the elastic pool of a Python program.

    with wl.ComputePool(provider=wl.Local(), nodes=(2, 16)) as pool:
        losses = wl.gather(*[trial(lr) for lr in grid]) >> pool

Entering the ``with`` starts a thread with the pool's runtime (`host`). Leaving it waits for all tasks, ends every node
and removes all files. Leaving it by an exception, such as Ctrl-C, does not wait.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from windlass._gc_pause import uncollected
from windlass._interrupts import print_no_traceback
from windlass.builders import NamedGroup, Quantity
from windlass.pool.client.api import AnyTask, Compute, GangTask, Sendable, Task, compute_of
from windlass.pool.client.futures import (
    AllFuture,
    Answer,
    Collection,
    Member,
    Ranks,
    Started,
    StreamTicket,
    TaskFuture,
    gang_value,
    in_order,
    streamed,
    tasks_of,
)
from windlass.pool.client.handles import Handle
from windlass.pool.client.operands import no_task
from windlass.pool.client.submission import Prepared, Preparer
from windlass.pool.engines.protocol import Engine
from windlass.pool.options import UNHEALTHY, Nodes, PoolShape, shaped
from windlass.pool.report.console import Console, console_of
from windlass.pool.report.status import PoolStatus, status_of, why
from windlass.pool.scaling.workload import slots_of
from windlass.pool.scheduler.tasks import ScheduledTask as BookTask
from windlass.pool.scheduler.tasks import Ticket
from windlass.pool.transport.serialization import StaysHere
from windlass.pool.waits import next_of, wait_for_future
from windlass.providers.protocol import Provider

from .environment import Image
from .errors import BadPool
from .host import PoolHost
from .local import Local
from .machines import RemoteMachines
from .runtime import PoolRuntime

if TYPE_CHECKING:
    from windlass.pool.adapters.asyncio import AsyncPool
    from windlass.pool.adapters.executor import PoolExecutor
    from windlass.pool.adapters.joblib import PoolBackend


log = logging.getLogger(__name__)


class ComputePool:
    """Runs tasks on nodes whose number follows the work. Use it in a ``with``."""

    def __init__(
        self,
        provider: Local | RemoteMachines | Provider | None = None,
        nodes: int | tuple[int, int] | Nodes | None = None,
        *,
        accelerator: str | Mapping[str, Quantity] | None = None,
        needs: Mapping[str, Quantity] | None = None,
        slots: int | None = None,
        image: Image | None = None,
        autoscale_cooldown: float = 30.0,
        autoscale_idle_timeout: float = 60.0,
        reconcile_tick_interval: float = 15.0,
        unhealthy_timeout: float = UNHEALTHY,
        groups: Sequence[NamedGroup] | None = None,
        budget: float | str | None = None,
        engine: str | Engine = "dask",
        console: str | bool | Console | None = "auto",
        directory: str | os.PathLike[str] | None = None,
        name: str = "pool",
        result_limit: int | str = "1Gi",
    ) -> None:
        """``provider``: where nodes run; by default ``Local()``. ``nodes``: ``4``, ``(2, 16)`` or ``Nodes(min, desired,
        max)``; by default 1. A pool with ``min=0`` has no node until its first task.

        ``accelerator``: what each node has, such as ``"gpu:4"``. ``needs``: resources that a task takes in addition to
        one slot, if it has no ``needs`` of its own. ``slots``: how many tasks a node runs at once, each in its own
        process.

        ``image``: packages, files and environment of nodes.

        ``autoscale_cooldown``: seconds for which the use must stay low before nodes are released.
        ``autoscale_idle_timeout``: seconds without any work after which the pool shrinks to its ``min``.
        ``reconcile_tick_interval``: the longest time in seconds between two passes of the controller, and the time
        between two tries of a refused launch. ``unhealthy_timeout``: seconds without a heartbeat after which a node is
        replaced and its tasks run on other nodes.

        ``groups``: several kinds of machine, made with ``group``. ``budget``: the most that all nodes together may
        cost, such as ``"$20/h"``. ``engine``: ``"dask"`` or ``"ray"``, or one of your own.

        ``console``: ``"live"``, ``"lines"``, or False for no output; by default a live view on a terminal and lines
        elsewhere. ``directory``: where the journal is kept; by default a temporary directory. ``name``: the pool's name
        in logs. ``result_limit``: the largest result of one task.
        """
        self._provider = Local() if provider is None else provider
        if not isinstance(self._provider, Local | RemoteMachines | Provider):
            raise BadPool(f"provider must be such as Local() or SSH(hosts=[...]), is {type(provider).__name__}")
        self._arguments: dict[str, Any] = {
            "accelerator": accelerator,
            "needs": needs,
            "slots": slots,
            "autoscale_cooldown": autoscale_cooldown,
            "autoscale_idle_timeout": autoscale_idle_timeout,
            "reconcile_tick_interval": reconcile_tick_interval,
            "unhealthy_timeout": unhealthy_timeout,
            "groups": groups,
            "budget": budget,
            "result_limit": result_limit,
        }
        if image is not None and not isinstance(image, Image):
            raise BadPool(f"image must be an Image(pip=..., env=..., includes=...), is {type(image).__name__}")
        self._image = image or Image()
        self._shape: PoolShape = shaped(self._provider, nodes, **self._arguments)
        self._console = console_of(console)
        self.name = name
        self._preparer = Preparer(self._shape)
        place = None if directory is None else Path(directory)
        self._host = PoolHost(self._provider, self._shape, self._image, engine, self._console, name, place)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def __enter__(self) -> ComputePool:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, KeyboardInterrupt) and not self._host.has_had_nodes:
            print_no_traceback(error)  # for the user it still starts
        try:
            self.close(wait=error is None)
        except KeyboardInterrupt:
            if not isinstance(error, KeyboardInterrupt):
                raise  # otherwise the first Ctrl-C is the one that is raised

    def start(self) -> None:
        """Start the pool; return before the nodes have joined. ``with`` calls it."""
        try:
            if self._shape.notice and not self._host.used:
                self._console.on_message(self._shape.notice)
            self._host.start()
        except KeyboardInterrupt as interrupt:
            print_no_traceback(interrupt)
            raise
        self._preparer.store = self._host.store
        self._console.on_open(self.status)

    def close(self, *, wait: bool = True) -> None:
        """End the pool and every node. With ``wait``, first wait for all tasks. ``with`` calls it."""
        self._host.close(wait=wait)

    def __repr__(self) -> str:
        state = "open" if self._host.is_open else "closed" if self._host.used else "not started"
        return f"<pool {self.name}: {state}>"

    def __reduce__(self) -> NoReturn:
        raise StaysHere(
            "a pool cannot be an argument of a task, and a task cannot submit tasks. Return what is to run next, and "
            "submit it in the program that has the pool"
        )

    # -- operators on values that are not tasks -----------------------------------------------------------------------

    __array_ufunc__ = None
    """Numpy arrays leave their operators to the pool, whose error message says what to write."""

    def __rrshift__(self, given: object) -> NoReturn:
        raise BadPool(no_task(given, ">>"))

    def __lt__(self, given: object) -> NoReturn:
        raise BadPool(no_task(given, ">"))

    def __rmatmul__(self, given: object) -> NoReturn:
        raise BadPool(no_task(given, "@"))

    # -- running tasks ------------------------------------------------------------------------------------------------

    def run(self, task: Sendable[Any]) -> Any:
        """Run a task and wait for its value: ``task >> pool``. A generator's values arrive one by one."""
        if not isinstance(task, Task | GangTask):
            return task >> self
        if isinstance(task, Task) and task.compute.streams:
            return self._generated(task)
        future = self.submit(task)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def submit(self, task: AnyTask | Callable[..., Any], *args: Any, **kwargs: Any) -> TaskFuture:
        """Start a task and return its future: ``task > pool``, or a plain function: ``pool.submit(f, 1, 2)``."""
        runtime, thread = self._host.running()
        if not isinstance(task, Task | GangTask):
            task = compute_of(task)(*args, **kwargs)
        prepared = self._preparer.prepare([task])
        future = TaskFuture(self._cancel_tasks)

        def begin() -> None:
            future.tasks = self._send(runtime, task, prepared, future, future.answer)

        thread.soon(begin)
        return future

    @staticmethod
    def _send(
        runtime: PoolRuntime,
        task: AnyTask,
        prepared: Prepared,
        single: Ticket,
        whole: Callable[[list[Answer]], None],
    ) -> list[BookTask]:
        if not isinstance(task, GangTask):
            return runtime.submit(prepared, [single])
        ranks = Ranks(task.size, whole)
        tickets = [ranks.ticket(rank, single.on_began) for rank in range(task.size)]
        return runtime.submit_gang(prepared, tickets, spread=task.spread)

    def gather(self, tasks: Sequence[AnyTask], *, return_exceptions: bool = False) -> list[Any]:
        """Return the values of many tasks, in their order: ``gather(*tasks) >> pool``."""
        started, whole = self.start_all(tasks), False
        try:
            while (bad := started.collection.first_error()) is not None:
                if not return_exceptions:
                    started.value(bad, False)
            whole = True
        finally:
            started.ended(whole)
        return started.values(return_exceptions)

    def stream(
        self, tasks: Sequence[AnyTask], *, ordered: bool = True, return_exceptions: bool = False
    ) -> Iterator[Any]:
        """Iterate over the values of many tasks as they arrive. The tasks start at once, not when the first value is
        read.
        """
        arrived: SimpleQueue[int] = SimpleQueue()
        started = self.start_all(tasks, arrived.put)
        arriving = self.arrivals(started, arrived, return_exceptions=return_exceptions)
        return in_order(arriving) if ordered else (value for _, value in arriving)

    def start_all(
        self,
        tasks: Sequence[AnyTask],
        *on_result: Callable[[int], None],
        begun: Callable[[Started], None] = lambda _: None,
    ) -> Started:
        """Start many tasks. ``on_result`` gets the position of each result that has arrived, on the pool's thread.
        ``begun`` gets the collection before any of its tasks starts.
        """
        runtime, thread = self._host.running()
        # By the exact type: a check against an abstract class takes as long as everything else here for a short task.
        plain = [position for position, task in enumerate(tasks) if type(task) is Task]
        prepared = self._preparer.prepare([tasks[position] for position in plain])
        gangs = [
            (position, task, self._preparer.prepare([task]))
            for position, task in enumerate(tasks)
            if type(task) is GangTask
        ]
        progress = self._console.progress(len(tasks))
        ended = (lambda: None) if progress is None else progress.ended
        started = Started(Collection(len(tasks), *on_result, progress=progress), ended, self._cancel_tasks)
        collection = started.collection
        begun(started)

        def begin() -> None:
            with uncollected(len(plain)):
                started.tasks.extend(runtime.submit(prepared, [Member(collection, position) for position in plain]))
            for position, task, one in gangs:
                whole = partial(collection.put, position)
                started.tasks.extend(self._send(runtime, task, one, Member(collection, position), whole))

        thread.soon(begin)
        return started

    @staticmethod
    def arrivals(
        started: Started, arrived: SimpleQueue[int], *, return_exceptions: bool = False
    ) -> Iterator[tuple[int, Any]]:
        """Iterate over positions and values of tasks that were started with ``arrived.put``, as they arrive. A caller
        that stops early cancels the others.
        """
        whole = False
        try:
            for _ in started.collection.answers:
                position = next_of(arrived)
                yield position, started.value(position, return_exceptions)
            whole = True
        finally:
            started.ended(whole)

    def _generated(self, task: Task[Any]) -> Iterator[Any]:
        runtime, thread = self._host.running()
        prepared = self._preparer.prepare([task])
        ticket = StreamTicket()
        started: list[BookTask] = []
        thread.soon(lambda: started.extend(runtime.submit(prepared, [ticket])))
        return streamed(ticket, lambda: self._cancel_tasks(started))

    def everywhere(self, task: Task[Any]) -> list[Any]:
        """Run a task once on every node and return the values by rank: ``task @ pool``. It waits for nodes that boot; a
        pool without nodes starts its first.
        """
        runtime, thread = self._host.running()
        prepared = self._preparer.prepare([task])
        future: Future[list[Answer]] = Future()
        tasks: list[BookTask] = []

        def tickets(count: int) -> Sequence[Ticket]:
            ranks = Ranks(count, future.set_result)
            return [ranks.ticket(rank) for rank in range(count)]

        def begin() -> None:
            tasks.extend(runtime.submit_everywhere(prepared, tickets))

        self._wait_for_nodes(task)
        thread.soon(begin)
        try:
            wait_for_future(future)
            return gang_value(future.result())
        except BaseException:
            self._cancel_tasks(tasks)
            raise

    def _wait_for_nodes(self, task: Task[Any]) -> None:
        self.run(_NOTHING.options(needs=task.compute.options_.needs)())  # until the first is there
        while self._host.ask(lambda runtime: runtime.coming):
            time.sleep(0.02)

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], ordered: bool = True) -> Iterator[Any]:
        """Iterate over the values of a function over iterables, in order. All calls start at once."""
        made = compute_of(function)
        return self.stream([made(*args) for args in zip(*iterables, strict=False)], ordered=ordered)

    def submit_all(
        self, tasks: Sequence[AnyTask], make: Callable[[list[Any]], Any], *, return_exceptions: bool = False
    ) -> Future[Any]:
        """Start many tasks and return one future of all their values."""
        future = AllFuture(make, return_exceptions=return_exceptions)
        self.start_all(tasks, future.on_result, begun=lambda started: future.begin(started, len(tasks)))
        return future

    def put(self, value: Any) -> Handle:
        """Send a value once, for many tasks: ``handle = pool.put(array)``, then ``trial(handle, 0.1) >> pool``."""
        self._host.running()
        assert self._host.store is not None
        return Handle(self._host.store, value)

    def cancel(self, *futures: Future[Any]) -> int:
        """Cancel the tasks of these futures, running or not; without futures, all tasks. Return how many."""
        if not futures:
            return int(self._host.ask(lambda runtime: runtime.cancel(runtime.all_tasks())))
        tasks = [task for future in futures for task in tasks_of(future)]
        return int(self._host.ask(lambda runtime: runtime.cancel(tasks)))

    def _cancel_tasks(self, tasks: list[BookTask], *, only_waiting: bool = False) -> None:
        if self._host.is_open:
            runtime, thread = self._host.running()
            # The list is read on the pool's thread, which has filled it by then.
            thread.soon(lambda: runtime.cancel([one for one in tasks if not only_waiting or one.state == "waiting"]))

    # -- size and state -----------------------------------------------------------------------------------------------

    def resize(self, nodes: int | tuple[int, int] | Nodes) -> None:
        """Set other limits: ``4``, ``(2, 16)`` or ``Nodes(min, desired, max)``. Nodes above ``max`` are released when
        their tasks have ended.
        """
        runtime, thread = self._host.running()
        shape = shaped(self._provider, nodes, **self._arguments)
        self._shape = shape
        self._preparer.reshape(shape)
        thread.do(runtime.reshape(shape))

    def status(self) -> PoolStatus:
        """Return the nodes, the tasks, the cost, and why the last change was made. Prints as a page."""
        status: PoolStatus = self._host.ask(status_of)
        return status

    def why(self, name: str | int | None = None) -> str:
        """Explain the state of a node (by name or number), of a function's tasks or of a group, in words; without a
        name, explain the size of the pool.
        """
        text: str = self._host.ask(lambda runtime: why(runtime, name))
        return text

    @property
    def most_slots(self) -> int:
        """The number of tasks that run at once when the pool has its ``max`` of nodes."""
        groups = [one.group for one in self._shape.settings.groups]
        return max(1, sum(slots_of(group) * group.hosts * group.max for group in groups))

    @property
    def directory(self) -> Path:
        """The directory of the pool's journal."""
        return self._host.directory

    # -- other ways to use it -----------------------------------------------------------------------------------------

    def as_executor(self) -> PoolExecutor:
        """Return the pool as a ``concurrent.futures.Executor``."""
        from windlass.pool.adapters.executor import PoolExecutor

        return PoolExecutor(self)

    def as_asyncio(self) -> AsyncPool:
        """Return the pool with methods to ``await``."""
        from windlass.pool.adapters.asyncio import AsyncPool

        return AsyncPool(self)

    def as_joblib(self) -> PoolBackend:
        """Return the pool as a backend of joblib: ``with joblib.parallel_config(pool.as_joblib()): ...``."""
        from windlass.pool.adapters.joblib import backend_of

        return backend_of(self)


def _nothing() -> None:
    """A task that a pool without nodes runs to start its first node."""


_NOTHING: Compute[[], None] = Compute(_nothing, compute_of(_nothing).options_)
