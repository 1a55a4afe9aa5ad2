"""The scheduler's process: Dask's scheduler without a dashboard, and the pool's hand in it.

    WINDLASS_DASK_SCHEDULER='{"pool": 123, ...}' python -m windlass.pool.engines.dask.scheduler

It says where it listens with one line on stdout, and ends when the pool's process does, however that ends. Beside
Dask's own it knows the nodes' lines, passes orders on to them, gives out what is shared, and tells the pool which
workers and nodes come and go. It never unpickles anything of the user's: a task's function is our own, and
its arguments are bytes.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from distributed import Scheduler, Status
from distributed.comm import Comm
from distributed.diagnostics.plugin import SchedulerPlugin

from windlass.pool.transport.process_session import told_to_end
from windlass.pool.transport.shared_memory import chunk_of, size_of
from windlass.pool.transport.tls import Credentials

from . import messages
from .messages import GATHERING, SCHEDULER, TOPIC

KEY: Final = "windlass-"
"""How the keys of our tasks begin; the rest is the id of the call."""
_PATIENCE: Final = 30.0
"""Seconds within which what is shared must have come from the pool."""


class SchedulerServer(SchedulerPlugin):  # type: ignore[misc, unused-ignore]
    """The pool's hand in the scheduler."""

    name = "windlass"

    def __init__(self, pool: socket.socket) -> None:
        self._pool = pool
        """By it comes what is shared, as handles of files in memory."""
        self._shared: dict[str, int] = {}
        self._more = asyncio.Condition()
        self._lines: dict[str, Comm] = {}
        self._names: dict[str, str] = {}
        """The worker at each address."""
        self._doing: set[asyncio.Future[None]] = set()

    async def start(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        scheduler.handlers |= {
            "windlass_line": self.hold_line,
            "windlass_order": self.order,
            "windlass_revoke": self.revoke,
            "windlass_shared": self.shared,
        }
        asyncio.get_running_loop().add_reader(self._pool, self._from_pool)

    # -- what comes and goes ----------------------------------------------------------------------------------------

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._names[worker] = scheduler.workers[worker].name
        scheduler.stream_comms[worker].interval = GATHERING
        self._tell("up", self._names[worker], worker)

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: Any) -> None:  # noqa: ARG002
        if (name := self._names.pop(worker, None)) is not None:
            self._tell("down", name, worker)

    def transition(self, key: str, start: str, finish: str, *_: Any, **about: Any) -> None:  # noqa: ARG002
        """A task that failed as a task, not as a call: its code or its blob could not even be taken up."""
        lost = "worker" in about and about["worker"] not in self._scheduler.workers
        if finish == "erred" and key.startswith(KEY) and not lost:
            text = about.get("exception_text") or "Dask could not start it"
            self._tell("call", key.removeprefix(KEY), "broken", str(text))

    async def hold_line(self, comm: Comm, node: str, slots: int, python: str, address: str) -> Status:
        """A node's line, for as long as it holds."""
        self._lines[node] = comm
        self._tell("line", node, slots, python, address)
        why = ""
        with suppress(OSError):  # CommClosedError is one
            while True:
                why = (await comm.read())["why"]
        if self._lines.get(node) is comm:
            del self._lines[node]
            self._tell("line-gone", node, why)
        return Status.dont_reply

    def _tell(self, *words: Any) -> None:
        self._scheduler.log_event(TOPIC, words)

    # -- what the pool wants ----------------------------------------------------------------------------------------

    async def order(self, node: str, order: dict[str, Any]) -> None:
        """For a node, by its line."""
        if (line := self._lines.get(node)) is not None:
            with suppress(OSError):
                await line.write(order)

    async def revoke(self, address: str, call: str) -> bool | None:
        """Whether the call was taken back before it began; None if nobody can tell, for the worker is gone."""
        try:
            taken: bool = await self._scheduler.rpc(address).windlass_revoke(call=call)
        except OSError:
            return None
        return taken

    def _from_pool(self) -> None:
        text, handles, _, _ = socket.recv_fds(self._pool, 1 << 16, 1)
        if not text:
            asyncio.get_running_loop().remove_reader(self._pool)
            return
        name = text.decode()
        if name in self._shared:
            os.close(self._shared.pop(name))
        if handles:
            self._shared[name] = handles[0]
            self._do(self._told_of_more())
        else:
            for line in self._lines.values():
                self._do(_written(line, {"forget": name}))

    def _do(self, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(what)
        self._doing.add(task)
        task.add_done_callback(self._doing.discard)

    async def _told_of_more(self) -> None:
        async with self._more:
            self._more.notify_all()

    async def shared(self, name: str, offset: int, length: int) -> tuple[int, bytes | None]:
        """A piece of what is shared, and the size of all of it. What a call needs may come a moment after the call."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE), self._more:
                await self._more.wait_for(lambda: name in self._shared)
        if name not in self._shared:
            return 0, None
        handle = self._shared[name]
        return size_of(handle), chunk_of(handle, offset, length)


async def _written(line: Comm, message: dict[str, Any]) -> None:
    with suppress(OSError):
        await line.write(message)


async def serve(told: dict[str, Any]) -> None:
    """Until the pool's process has ended, or wants it."""
    ended = told_to_end(told["pool"])
    if ended.is_set():
        return
    credentials = Credentials(**told["credentials"]) if told["credentials"] else None
    scheduler = Scheduler(
        host=told["host"],
        port=told["port"],
        protocol="tcp" if credentials is None else "tls",
        security=messages.security_of(credentials),
        dashboard=False,
        plugins=(SchedulerServer(socket.socket(fileno=told["shared"])),),
    )
    await scheduler
    sys.stdout.write(f"{scheduler.address}\n")
    sys.stdout.flush()
    await ended.wait()
    os._exit(0)  # nothing here is worth a slow end: the nodes' lines break with the process


def main() -> None:
    messages.set_up()
    asyncio.run(serve(json.loads(os.environ.pop(SCHEDULER))))


if __name__ == "__main__":
    main()
