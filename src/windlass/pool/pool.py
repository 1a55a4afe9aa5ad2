"""``ComputePool``: the elastic pool of a Python program.

    with wl.ComputePool(provider=wl.Local(), nodes=(2, 16)) as pool:
        losses = wl.gather(*[trial(lr) for lr in grid]) >> pool

Entering it starts a thread with the pool's hub; leaving it waits for what was started, ends every node, and leaves
nothing behind. Left by an exception, Ctrl-C among them, it does not wait.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from windlass._gc_pause import uncollected
from windlass.builders import NamedGroup, Quantity
from windlass.journal import open_journal
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
from windlass.pool.engines.registry import engine_of
from windlass.pool.options import UNHEALTHY, Nodes, PoolShape, shaped
from windlass.pool.report.console import Console, console_of
from windlass.pool.report.status import PoolStatus, status_of, why
from windlass.pool.scaling.workload import slots_of
from windlass.pool.scheduler.tasks import ScheduledTask as BookTask
from windlass.pool.scheduler.tasks import Ticket
from windlass.pool.transport.data_store import DataStore
from windlass.providers.protocol import Provider

from .environment import Image, prepared_here
from .errors import BadPool, PoolClosed, PoolError
from .local import Local
from .loop_thread import LoopThread
from .machines import RemoteMachines
from .runtime import PoolRuntime
from .temp_dirs import JOURNAL, own_directory, write_config

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
        """``provider``: who sells nodes; ``Local()`` if none is given.

        ``nodes``: ``4``, ``(2, 16)`` or ``Nodes(min, desired, max)``; 1 if nothing is given. A pool with ``min=0`` has
        no node until its first task.

        ``accelerator``: what each node has, such as ``"gpu:4"``. ``needs``: what a task takes that says nothing itself,
        beside one slot. ``slots``: tasks that a node runs at once, each in a process of its own.

        ``image``: packages, files and environment of nodes.

        ``autoscale_cooldown``: seconds that little use must last before nodes go. ``autoscale_idle_timeout``: seconds
        without any work after which the pool goes to its ``min``. ``reconcile_tick_interval``: seconds at the most
        between two passes when nothing happens, and between two tries of a launch that was refused.
        ``unhealthy_timeout``: seconds without a sign of life after which a node's tasks run elsewhere and it is
        replaced.

        ``groups``: several kinds of machine, made with ``group``. ``budget``: the most that all nodes together may
        cost, such as ``"$20/h"``. ``engine``: ``"dask"`` or ``"ray"``, or one of your own.

        ``console``: ``"live"``, ``"lines"``, False for silence; a live view on a terminal and lines elsewhere if
        nothing is given. ``directory``: where the journal is kept; a temporary one if nothing is given. ``name``: of
        the pool, for logs. ``result_limit``: the largest result of one task.
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
        self._engine, self._engine_name = engine_of(engine), engine
        self._console = console_of(console)
        self.name = name
        self._given_directory = None if directory is None else Path(directory)
        self._preparer = Preparer(self._shape)
        self._store: DataStore | None = None
        self._thread: LoopThread | None = None
        self._hub: PoolRuntime | None = None
        self._directory = Path()
        self._closed = False

    # -- beginning and end --------------------------------------------------------------------------------------------

    def __enter__(self) -> ComputePool:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(wait=error is None)

    def start(self) -> None:
        """Bring it up; nodes come by and by. ``with`` does it."""
        if self._hub is not None or self._closed:
            raise PoolError("a pool is used once: make a new one for the next with")
        self._directory = self._given_directory or own_directory()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._thread = LoopThread(f"windlass {self.name}")
        if self._shape.notice:
            self._console.told(self._shape.notice)
        try:
            self._store = self._preparer.store = self._data_store()
            environment = self._prepared_nodes()
            self._hub = self._thread.do(self._started(environment))
        except BaseException:
            self._closed = True
            self._thread.stop()
            self._remove_directory()
            raise
        self._console.opened(self.status)

    def _data_store(self) -> DataStore | None:
        """Where large values are. Nodes of Ray on other machines cannot read it: values travel with their tasks."""
        if self._engine_name == "ray" and isinstance(self._provider, RemoteMachines):
            return None
        return DataStore(self._directory / "data")

    def _prepared_nodes(self) -> dict[str, str]:
        if isinstance(self._provider, Local):
            return prepared_here(self._image, self._directory)
        if isinstance(self._provider, RemoteMachines):
            return {}  # the image goes with the order of each machine
        if self._image.pip or self._image.apt or self._image.includes:
            raise BadPool(
                f"image: {type(self._provider).__name__} cannot put packages or files on its machines; use machines "
                "that have them, and image=Image(env=...) for the environment"
            )
        return dict(self._image.env)

    async def _started(self, environment: Mapping[str, str]) -> PoolRuntime:
        engine = self._engine(self._shape.settings.policy.unhealthy_timeout)
        hub = PoolRuntime(
            self._shape,
            engine,
            self._seller(),
            open_journal(str(self._directory / JOURNAL), durable=False),
            now=time.time,
            steady=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
            environment=environment,
            said=self._console.said,
            passed=self._console.passed,
            told=self._console.told,
            holder=f"{self.name}-{os.getpid()}",
            last_words=self._last_words,
            store=self._store,
        )
        try:
            await hub.start()
        except BaseException:
            hub.journal.close()
            await engine.close()
            raise
        return hub

    def _seller(self) -> Provider:
        if isinstance(self._provider, RemoteMachines):
            return self._provider.provider(self._image.for_machines())
        if not isinstance(self._provider, Local):
            return self._provider
        from windlass.providers.local.provider import LocalProvider

        local = self._provider
        nodes = self._directory / "nodes" if local.directory is None else Path(local.directory)
        write_config(self._shape, self._directory.absolute(), nodes.absolute())
        return LocalProvider(
            nodes,
            boot_delay=local.boot_delay,
            grace=local.grace,
            tie_to=os.getpid(),
            environment=None,
        )

    def _last_words(self, slice_id: str) -> str:
        """What a node on this computer said last, from its log."""
        if not isinstance(self._provider, Local):
            return ""
        home = Path(self._provider.directory or self._directory / "nodes") / slice_id
        said = []
        for log in sorted(home.glob("host-*/stderr.log")):
            with suppress(OSError):
                said += log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return "; ".join(said)

    def close(self, *, wait: bool = True) -> None:
        """End it: with ``wait`` after everything that was started is over. ``with`` does it."""
        hub, thread = self._hub, self._thread
        if hub is None or thread is None or self._closed:
            self._closed = True
            return
        try:
            if wait:
                self._wait_for_all()
        finally:
            self._closed = True
            self._end_all(
                self._console.closed,  # first: a live view asks the pool for its status until then
                lambda: thread.do(hub.close(on_record=self._given_directory is not None)),
                hub.journal.close,
                thread.stop,
                self._remove_directory,
            )

    @staticmethod
    def _end_all(*steps: Callable[[], object]) -> None:
        """Take every step of the end, whatever the others do. Ctrl-C is raised when all are done; other troubles are
        logged, so that they never hide an exception of the program itself."""
        interrupted: BaseException | None = None
        for step in steps:
            try:
                step()
            except Exception as error:  # noqa: BLE001
                log.warning("while the pool was closed: %s: %s", type(error).__name__, error)
            except BaseException as error:  # noqa: BLE001
                interrupted = error
        if interrupted is not None:
            raise interrupted

    def _wait_for_all(self) -> None:
        while self._asked(lambda hub: hub.outstanding):
            time.sleep(0.02)

    def _remove_directory(self) -> None:
        if self._store is not None:
            self._store.close()
        if self._given_directory is None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _asked(self, question: Callable[[PoolRuntime], Any]) -> Any:
        hub, thread = self._running()
        return thread.ask(lambda: question(hub))

    def _running(self) -> tuple[PoolRuntime, LoopThread]:
        if self._closed:
            raise PoolClosed("the pool is closed; make a new one")
        if self._hub is None or self._thread is None:
            raise PoolError("the pool has not been started: use it in a with, or call start()")
        return self._hub, self._thread

    # -- operators on what is no task ---------------------------------------------------------------------------------

    __array_ufunc__ = None
    """Arrays leave their operators to the pool, which says what to write."""

    def __rrshift__(self, given: object) -> NoReturn:
        raise BadPool(no_task(given, ">>"))

    def __lt__(self, given: object) -> NoReturn:
        raise BadPool(no_task(given, ">"))

    def __rmatmul__(self, given: object) -> NoReturn:
        raise BadPool(no_task(given, "@"))

    # -- running tasks ------------------------------------------------------------------------------------------------

    def run(self, task: Sendable[Any]) -> Any:
        """Run it and wait for what comes of it: ``task >> pool``. A generator's values come as they are made."""
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
        """Start it: ``task > pool``. A function with arguments will do too: ``pool.submit(f, 1, 2)``."""
        hub, thread = self._running()
        if not isinstance(task, Task | GangTask):
            task = compute_of(task)(*args, **kwargs)
        prepared = self._preparer.prepare([task])
        future = TaskFuture(self._cancel_tasks)

        def begin() -> None:
            future.tasks = self._send(hub, task, prepared, future, future.answer)

        thread.soon(begin)
        return future

    @staticmethod
    def _send(
        hub: PoolRuntime,
        task: AnyTask,
        prepared: Prepared,
        single: Ticket,
        whole: Callable[[list[Answer]], None],
    ) -> list[BookTask]:
        if not isinstance(task, GangTask):
            return hub.submit(prepared, [single])
        ranks = Ranks(task.size, whole)
        tickets = [ranks.ticket(rank, single.began) for rank in range(task.size)]
        return hub.submit_gang(prepared, tickets, spread=task.spread)

    def gather(self, tasks: Sequence[AnyTask], *, return_exceptions: bool = False) -> list[Any]:
        """The values of many tasks, in their order: ``gather(*tasks) >> pool``."""
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
        """The values of many tasks as they come. The tasks are started at once, not when a value is asked for."""
        arriving = self._arrivals(tasks, return_exceptions=return_exceptions)
        return in_order(arriving) if ordered else (value for _, value in arriving)

    def _arrivals(self, tasks: Sequence[AnyTask], *, return_exceptions: bool) -> Iterator[tuple[int, Any]]:
        """Positions and values as they come. The tasks are started before this returns."""
        arrived: SimpleQueue[int] = SimpleQueue()
        return self._values(self.start_all(tasks, arrived.put), arrived, return_exceptions)

    def start_all(
        self,
        tasks: Sequence[AnyTask],
        *arrived: Callable[[int], None],
        begun: Callable[[Started], None] = lambda _: None,
    ) -> Started:
        """Start many tasks; ``arrived`` is given the position of each whose answer has come, on the pool's thread.
        ``begun`` is given what is started before any of it has."""
        hub, thread = self._running()
        plain = [position for position, task in enumerate(tasks) if isinstance(task, Task)]
        prepared = self._preparer.prepare([tasks[position] for position in plain])
        gangs = [
            (position, task, self._preparer.prepare([task]))
            for position, task in enumerate(tasks)
            if isinstance(task, GangTask)
        ]
        progress = self._console.progress(len(tasks))
        told = [] if progress is None else [progress.arrived]
        ended = (lambda: None) if progress is None else progress.ended
        started = Started(Collection(len(tasks), *told, *arrived), ended, self._cancel_tasks)
        collection = started.collection
        begun(started)

        def begin() -> None:
            with uncollected(len(plain)):
                started.tasks.extend(hub.submit(prepared, [Member(collection, position) for position in plain]))
            for position, task, one in gangs:
                whole = partial(collection.put, position)
                started.tasks.extend(self._send(hub, task, one, Member(collection, position), whole))

        thread.soon(begin)
        return started

    def _values(
        self, started: Started, arrived: SimpleQueue[int], return_exceptions: bool
    ) -> Iterator[tuple[int, Any]]:
        whole = False
        try:
            for _ in started.collection.answers:
                position = arrived.get()
                yield position, started.value(position, return_exceptions)
            whole = True
        finally:
            started.ended(whole)

    def _generated(self, task: Task[Any]) -> Iterator[Any]:
        hub, thread = self._running()
        prepared = self._preparer.prepare([task])
        ticket = StreamTicket()
        started: list[BookTask] = []
        thread.soon(lambda: started.extend(hub.submit(prepared, [ticket])))
        return streamed(ticket, lambda: self._cancel_tasks(started))

    def everywhere(self, task: Task[Any]) -> list[Any]:
        """Once on every node that is there, by rank: ``task @ pool``. A pool whose nodes are booting waits for
        them; one without any starts its first."""
        hub, thread = self._running()
        prepared = self._preparer.prepare([task])
        future: Future[list[Answer]] = Future()
        tasks: list[BookTask] = []

        def tickets(count: int) -> Sequence[Ticket]:
            ranks = Ranks(count, future.set_result)
            return [ranks.ticket(rank) for rank in range(count)]

        def begin() -> None:
            tasks.extend(hub.submit_everywhere(prepared, tickets))

        self._wait_for_nodes(task)
        thread.soon(begin)
        try:
            return gang_value(future.result())
        except BaseException:
            self._cancel_tasks(tasks)
            raise

    def _wait_for_nodes(self, task: Task[Any]) -> None:
        self.run(_NOTHING.options(needs=task.compute.options_.needs)())  # until the first is there
        while self._asked(lambda hub: hub.coming):
            time.sleep(0.02)

    def map(self, function: Callable[..., Any], *iterables: Iterable[Any], ordered: bool = True) -> Iterator[Any]:
        """The values of a function over iterables, as they come; all are started at once."""
        made = compute_of(function)
        return self.stream([made(*args) for args in zip(*iterables, strict=False)], ordered=ordered)

    def submit_all(self, tasks: Sequence[AnyTask], make: Callable[[list[Any]], Any]) -> Future[Any]:
        """Start many; the future has all of their values."""
        future = AllFuture(make)
        self.start_all(tasks, future.arrived, begun=lambda started: future.begin(started, len(tasks)))
        return future

    def put(self, value: Any) -> Handle:
        """Send a value once, for many tasks: ``handle = pool.put(array)``, then ``trial(handle, 0.1) >> pool``."""
        self._running()
        if self._store is None:
            raise PoolError("put needs nodes on this computer, or the engine 'dask'; pass the value itself")
        return Handle(self._store, value)

    def cancel(self, *futures: Future[Any]) -> int:
        """End what these futures stand for, running or not; all of the pool without any. How many tasks that were."""
        if not futures:
            return int(self._asked(lambda hub: hub.cancel(hub.all_tasks())))
        tasks = [task for future in futures for task in tasks_of(future)]
        return int(self._asked(lambda hub: hub.cancel(tasks)))

    def _cancel_tasks(self, tasks: list[BookTask]) -> None:
        hub, thread = self._hub, self._thread
        if hub is not None and thread is not None and not self._closed:
            thread.soon(lambda: hub.cancel(list(tasks)))

    # -- size and state -----------------------------------------------------------------------------------------------

    def resize(self, nodes: int | tuple[int, int] | Nodes) -> None:
        """Other limits: ``4``, ``(2, 16)`` or ``Nodes(min, desired, max)``. Nodes that are too many go when they are
        done with their work."""
        hub, thread = self._running()
        shape = shaped(self._provider, nodes, **self._arguments)
        self._shape = shape
        self._preparer.reshape(shape)
        thread.do(hub.reshape(shape))

    def status(self) -> PoolStatus:
        """What there is, what it does, what it costs, and why the last change was made. Prints as a page."""
        status: PoolStatus = self._asked(status_of)
        return status

    def why(self, name: str | int | None = None) -> str:
        """Why a node (by name or number), a function's tasks or a group are as they are, in words; without a name, why
        the pool has the size it has."""
        told: str = self._asked(lambda hub: why(hub, name))
        return told

    @property
    def most_slots(self) -> int:
        """Tasks that it may run at once when it is as large as it may become."""
        groups = [sold.group for sold in self._shape.settings.groups]
        return max(1, sum(slots_of(group) * group.hosts * group.max for group in groups))

    @property
    def directory(self) -> Path:
        """Where its journal is."""
        return self._directory

    # -- other ways to use it -----------------------------------------------------------------------------------------

    def as_executor(self) -> PoolExecutor:
        """As a ``concurrent.futures.Executor``."""
        from windlass.pool.adapters.executor import PoolExecutor

        return PoolExecutor(self)

    def as_asyncio(self) -> AsyncPool:
        """With ``await`` in place of waiting."""
        from windlass.pool.adapters.asyncio import AsyncPool

        return AsyncPool(self)

    def as_joblib(self) -> PoolBackend:
        """As a backend of joblib: ``with joblib.parallel_config(pool.as_joblib()): ...``."""
        from windlass.pool.adapters.joblib import backend_of

        return backend_of(self)


def _nothing() -> None:
    """What a pool without nodes runs to have one."""


_NOTHING: Compute[[], None] = Compute(_nothing, compute_of(_nothing).options_)
