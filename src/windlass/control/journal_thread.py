"""JournalThread makes journal calls off the event loop, on a daemon thread that does not delay the end of the program.

A database that hangs, or a slow disk, must not keep the loop from handling signals, answers and timers. Calls run in
order, one at a time. A simulation, where a call takes no time, makes them in place.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    """Makes a call that may block, and returns its result."""

    def __call__(self, call: Callable[[], T]) -> Awaitable[T]: ...


async def inline(call: Callable[[], T]) -> T:
    """Make the call in place."""
    return call()


class JournalThread:
    """A thread for calls that may block. It ends with the program, even during a call."""

    def __init__(self, name: str = "journal") -> None:
        self._calls: queue.SimpleQueue[tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]] = (
            queue.SimpleQueue()
        )
        self._thread: threading.Thread | None = None
        self._name = name

    async def __call__(self, call: Callable[[], T]) -> T:
        if self._thread is None:
            # A daemon thread: unlike asyncio's executor, it does not delay the end of the interpreter.
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._calls.put((loop, future, call))
        return await future

    def _work(self) -> None:
        while True:
            loop, future, call = self._calls.get()
            try:
                result, error = call(), None
            except BaseException as raised:  # noqa: BLE001  # handed to the caller
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                return  # the loop is closed: no caller waits


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
