"""This module waits without a time limit, in a way that Ctrl-C always ends.
Python runs signal handlers between two instructions of the main thread. A signal that arrives after the last check and
before the thread blocks interrupts nothing, and the wait would go on for ever. These waits wake each second instead.
"""

from __future__ import annotations

from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Event, Lock
from typing import Any, Final, TypeVar

T = TypeVar("T")

WAKE: Final = 1.0


def wait_for_event(event: Event) -> None:
    """Wait until an event is set."""
    while not event.wait(WAKE):
        pass


def wait_for_future(future: Future[Any]) -> None:
    """Wait until a future is done.

    The wait holds no lock of the future: Ctrl-C could keep it locked, and the thread that sets the result would hang.
    """
    ended = Lock()
    ended.acquire()
    future.add_done_callback(lambda _: ended.release())
    while not ended.acquire(timeout=WAKE):
        pass


def next_of(queue: SimpleQueue[T]) -> T:
    """Wait for the next item of a queue and return it."""
    while True:
        try:
            return queue.get(timeout=WAKE)
        except Empty:
            continue
