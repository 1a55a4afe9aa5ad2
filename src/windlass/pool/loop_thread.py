"""LoopThread runs an event loop on a separate thread, for a pool inside a synchronous program."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from windlass.pool.waits import wait_for_event, wait_for_future

T = TypeVar("T")

ENDING = 10.0
"""Seconds for interrupted calls to end."""


class LoopThread:
    """Runs an event loop until it is stopped. The thread is a daemon, so a program that does not close its pool still
    ends.
    """

    loop: asyncio.AbstractEventLoop

    def __init__(self, name: str) -> None:
        self._has_loop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        wait_for_event(self._has_loop)

    def _run(self) -> None:
        # Made here and not by the main thread, where Ctrl-C could leave it half made: Python prints errors about that.
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        self._has_loop.set()
        self.loop.run_forever()

    def do(self, work: Coroutine[Any, Any, T], uninterrupted: float = 0.0) -> T:
        """Run a coroutine on the loop, wait for it, and return its result. Ctrl-C cancels it; in the first
        ``uninterrupted`` seconds it does not, and is raised when the coroutine has ended.
        """
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        until, interrupt = time.monotonic() + uninterrupted, None
        while not future.done():
            try:
                wait_for_future(future)
            except BaseException as error:
                if time.monotonic() >= until:
                    future.cancel()  # ``stop`` waits for its end
                    raise
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return future.result()

    def soon(self, call: Callable[[], Any]) -> None:
        """Schedule a call on the loop, without waiting for it."""
        self.loop.call_soon_threadsafe(call)

    def ask(self, call: Callable[[], T]) -> T:
        """Make a call on the loop, wait for it, and return its result."""
        if threading.current_thread() is self._thread:
            return call()
        answer: Future[T] = Future()

        def on_answer() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:  # noqa: BLE001  # raised where it was asked
                answer.set_exception(error)

        self.loop.call_soon_threadsafe(on_answer)
        wait_for_future(answer)
        return answer.result()

    def stop(self) -> None:
        """Cancel everything on the loop, and end the thread."""
        try:
            self.do(_end_tasks(), uninterrupted=ENDING + 1)
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


async def _end_tasks() -> None:
    """Cancel every task of this loop and wait for their end: a loop that is closed under a task prints a traceback. A
    task that was cancelled before is not cancelled again, because that would interrupt what it does at its end.
    """
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        if not task.cancelling():
            task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=ENDING)
