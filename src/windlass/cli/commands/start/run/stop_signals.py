"""This module handles the signals of a controller, and limits how long a stop may take.

A journal, an API server, a disk or a long plan must not delay the end of the program. A controller that ends at any
point loses nothing, so after the limit the program ends where it is, and its lease expires.

Python runs a signal handler only between two steps of the main thread, and so never while that thread is inside a call
that does not return. The handlers here do nothing; a thread reads the number of each signal from a pipe, to which
Python writes it at once.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

LIMIT = 4.0
"""Seconds from the signal to the end of the program."""
MESSAGE_WITHIN = 0.2
"""Seconds that the last message may take: the log may hang too."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_signals(
    stop: Callable[[], None],
    on_limit: Callable[[], None],
    limit: float = LIMIT,
    on_hangup: Callable[[], None] | None = None,
) -> Iterator[None]:
    """Call ``stop`` in the event loop after SIGINT or SIGTERM, and ``on_hangup`` after SIGHUP. If the program has not
    ended when the limit after the first SIGINT or SIGTERM is over, call ``on_limit``, and end the program with exit
    status 0. The limit holds also while the loop does not turn, and after the end of this context.
    """
    actions: dict[int, Callable[[], None]] = dict.fromkeys(SIGNALS, stop)
    if on_hangup is not None:
        actions[signal.SIGHUP] = on_hangup
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # a signal handler must not wait
    watch = (reader, asyncio.get_running_loop(), actions, on_limit, limit)
    threading.Thread(target=_watch, args=watch, name="signals", daemon=True).start()
    pipe_before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    handlers_before = {number: signal.signal(number, lambda *_: None) for number in actions}
    try:
        yield
    finally:
        for number, handler in handlers_before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(pipe_before)
        os.close(writer)


def _watch(
    reader: int,
    loop: asyncio.AbstractEventLoop,
    actions: dict[int, Callable[[], None]],
    on_limit: Callable[[], None],
    limit: float,
) -> None:
    """Call the action of each signal, until the context ends."""
    limited = False
    while numbers := os.read(reader, 64):
        for number in numbers:
            if number in SIGNALS and not limited:
                limited = True
                threading.Thread(target=_end_after, args=(limit, on_limit), name="stop limit", daemon=True).start()
            if number in actions:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(actions[number])
    os.close(reader)


def _end_after(limit: float, on_limit: Callable[[], None]) -> None:
    time.sleep(limit)
    last = threading.Thread(target=on_limit, daemon=True)
    last.start()
    last.join(MESSAGE_WITHIN)
    os._exit(0)
