"""PoolHost runs a pool's runtime on a separate thread, and owns the pool's directory, journal and data store.

It starts all of them and ends all of them, also when a step fails. `pool` uses `ask` to call the runtime and wait for
the answer, and `running` to get the runtime and its thread.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from windlass.journal import open_journal
from windlass.pool.engines.protocol import Engine
from windlass.pool.engines.registry import engine_of
from windlass.pool.options import PoolShape
from windlass.pool.report.console import Console
from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.process_session import sweep_sessions
from windlass.pool.transport.temp_dirs import own_directory
from windlass.providers.protocol import Provider

from .config_file import JOURNAL, write_config
from .environment import Image, prepared_here
from .errors import BadPool, PoolClosed, PoolError
from .local import Local
from .loop_thread import LoopThread
from .machines import LOOPBACK, RemoteMachines
from .runtime import PoolRuntime

log = logging.getLogger(__name__)

UNINTERRUPTED = 10.0
"""Seconds for the end of all nodes in which another Ctrl-C changes nothing: machines that are not ended cost money."""


class PoolHost:
    """Hosts the runtime of one pool."""

    def __init__(
        self,
        provider: Local | RemoteMachines | Provider,
        shape: PoolShape,
        image: Image,
        engine: str | Engine,
        console: Console,
        name: str,
        directory: Path | None,
    ) -> None:
        """``directory``: where the journal is kept; None: a temporary directory."""
        self._provider, self._shape, self._image, self._name = provider, shape, image, name
        self._engine, self._console = engine_of(engine), console
        if engine == "ray" and isinstance(provider, RemoteMachines) and provider.connect == "tunnel":
            raise BadPool(
                "engine='ray' needs machines that reach this computer directly, because Ray's own connections do not "
                f"go through a tunnel: {type(provider).__name__}(..., connect='direct'), or engine='dask'"
            )
        self._given_directory = directory
        self.directory = Path()
        self.store: DataStore | None = None
        """The store of large values; None before the start."""
        self._thread: LoopThread | None = None
        self.runtime: PoolRuntime | None = None
        self._closed = False
        self._ending = threading.RLock()
        """Held while everything is ended. A signal handler may take it again in the same thread."""

    @property
    def used(self) -> bool:
        """Whether the pool has been started or closed before."""
        return self.runtime is not None or self._closed

    @property
    def is_open(self) -> bool:
        return self.runtime is not None and not self._closed

    @property
    def has_had_nodes(self) -> bool:
        return self.runtime is not None and self.runtime.task_book.ever_joined

    def start(self) -> None:
        """Start everything; return before the nodes have joined."""
        if self.used:
            raise PoolError("a pool can be started only once: make a new one for the next with")
        sweep_sessions()  # of programs that were killed
        self.directory = self._given_directory or own_directory()
        self.directory.mkdir(parents=True, exist_ok=True)
        try:
            self._thread = LoopThread(f"windlass {self._name}")
            self.store = DataStore(self.directory / "data")
            environment = self._prepared_nodes()
            self.runtime = self._thread.do(self._started(environment))
        except BaseException:
            self._closed = True
            begun = [] if self._thread is None else [self._thread.stop]
            _take_all(*begun, self._remove_directory)
            raise

    def running(self) -> tuple[PoolRuntime, LoopThread]:
        """Return the runtime, and the thread on which it must be called."""
        if self._closed:
            raise PoolClosed("the pool is closed; make a new one")
        if self.runtime is None or self._thread is None:
            raise PoolError("the pool has not been started: use it in a with, or call start()")
        return self.runtime, self._thread

    def ask(self, question: Callable[[PoolRuntime], Any]) -> Any:
        """Call a function of the runtime on its thread, and return the result."""
        runtime, thread = self.running()
        return thread.ask(lambda: question(runtime))

    def close(self, *, wait: bool) -> None:
        """End everything. With ``wait``, first wait for all tasks to end. It may be called again, also by another
        thread or a signal handler while it runs: each call returns when everything has ended.
        """
        try:
            with suppress(PoolClosed):  # closed by another thread meanwhile
                while wait and self.is_open and self.ask(lambda runtime: runtime.outstanding):
                    time.sleep(0.02)
        finally:
            with self._ending:
                self._end()

    def _end(self) -> None:
        runtime, thread = self.runtime, self._thread
        if runtime is None or thread is None or self._closed:
            self._closed = True
            return
        self._closed = True
        _take_all(
            self._console.on_close,  # first: a live view reads the pool's status until then
            lambda: thread.do(runtime.close(on_record=self._given_directory is not None), UNINTERRUPTED),
            runtime.journal.close,
            thread.stop,
            self._remove_directory,
        )

    # -- construction -------------------------------------------------------------------------------------------------

    def _prepared_nodes(self) -> dict[str, str]:
        """Prepare what nodes need; return their environment variables."""
        if isinstance(self._provider, Local):
            return prepared_here(self._image, self.directory)
        if isinstance(self._provider, RemoteMachines):
            return {}  # the order of each machine contains the image
        if self._image.pip or self._image.apt or self._image.includes:
            raise BadPool(
                f"image: {type(self._provider).__name__} cannot put packages or files on its machines; use machines "
                "that have them, and image=Image(env=...) for the environment"
            )
        return dict(self._image.env)

    async def _started(self, environment: Mapping[str, str]) -> PoolRuntime:
        address = self._provider.own_address() if isinstance(self._provider, RemoteMachines) else LOOPBACK
        engine = self._engine(self._shape.settings.policy.unhealthy_timeout, address)
        runtime = PoolRuntime(
            self._shape,
            engine,
            self._seller(),
            open_journal(str(self.directory / JOURNAL), durable=False),
            now=time.time,
            steady=lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
            environment=environment,
            on_output=self._console.on_output,
            on_pass=self._console.on_pass,
            on_message=self._console.on_message,
            holder=f"{self._name}-{os.getpid()}",
            last_output=self._last_output,
            store=self.store,
        )
        try:
            await runtime.start()
        except BaseException:
            runtime.journal.close()
            await engine.close()
            raise
        return runtime

    def _seller(self) -> Provider:
        if isinstance(self._provider, RemoteMachines):
            return self._provider.provider(self._image.for_machines())
        if not isinstance(self._provider, Local):
            return self._provider
        from windlass.providers.local.provider import LocalProvider

        local = self._provider
        nodes = self.directory / "nodes" if local.directory is None else Path(local.directory)
        write_config(self._shape, self.directory.absolute(), nodes.absolute())
        return LocalProvider(
            nodes,
            boot_delay=local.boot_delay,
            grace=local.grace,
            tie_to=os.getpid(),
            environment=None,
        )

    def _last_output(self, slice_id: str) -> str:
        """Return the last line in the log of a node on this computer."""
        if not isinstance(self._provider, Local):
            return ""
        home = Path(self._provider.directory or self.directory / "nodes") / slice_id
        lines = []
        for log_file in sorted(home.glob("host-*/stderr.log")):
            with suppress(OSError):
                lines += log_file.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        return "; ".join(lines)

    def _remove_directory(self) -> None:
        _take_whole(self._remove_files)

    def _remove_files(self) -> None:
        if self.store is not None:
            self.store.close()
        if self._given_directory is None:
            shutil.rmtree(self.directory, ignore_errors=True)
            # A node that ends at this moment may have written its record into a directory that was just emptied.
            shutil.rmtree(self.directory, ignore_errors=True)


def _take_whole(step: Callable[[], object]) -> None:
    """Run a step again that Ctrl-C or another signal interrupts, until it is done; then raise what interrupted it."""
    interrupted: BaseException | None = None
    while True:
        try:
            step()
            break
        except (KeyboardInterrupt, SystemExit) as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted


def _take_all(*steps: Callable[[], object]) -> None:
    """Run every step of the shutdown, also when another step fails. Ctrl-C is raised when all steps are done; other
    errors are logged, so that they never hide an exception of the program itself.
    """
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
