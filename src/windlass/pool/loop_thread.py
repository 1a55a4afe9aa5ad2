"""LoopThread runs an event loop on a thread of its own, for a pool inside a synchronous program."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

T = TypeVar("T")

ENDING = 10.0
"""Seconds for what was interrupted to end."""


class LoopThread:
    """Runs an event loop until it is stopped. A daemon: a program that forgets its pool still ends."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine that runs there."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: what was begun there is taken back in order, by ``stop``
            raise

    def soon(self, call: Callable[[], Any]) -> None:
        """Have it done there, without waiting."""
        self.loop.call_soon_threadsafe(call)

    def ask(self, call: Callable[[], T]) -> T:
        """What a call gives there."""
        if threading.current_thread() is self._thread:
            return call()
        answer: Future[T] = Future()

        def on_answer() -> None:
            try:
                answer.set_result(call())
            except BaseException as error:  # noqa: BLE001  # raised where it was asked
                answer.set_exception(error)

        self.loop.call_soon_threadsafe(on_answer)
        return answer.result()

    def stop(self) -> None:
        """End everything that runs there, and the thread."""
        with suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(_end_tasks(), self.loop).result(ENDING + 1)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


async def _end_tasks() -> None:
    """Cancel what runs on this loop, and wait for its end: a loop that is closed under a task prints a traceback."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=ENDING)
