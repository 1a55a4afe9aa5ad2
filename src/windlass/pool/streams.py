"""A generator that runs on a node, as an iterator here."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

from windlass.workloads.pool.packing import ItemResult, Told, result_of, unpack_value
from windlass.workloads.pool.tasks import TaskError


class StreamTicket:
    """Hands on values as they come."""

    def __init__(self) -> None:
        self.arrived: queue.SimpleQueue[bytes | ItemResult | TaskError] = queue.SimpleQueue()

    def began(self) -> None:
        pass

    def yielded(self, blob: bytes) -> None:
        self.arrived.put(blob)

    def ended(self, told: Told) -> None:
        self.arrived.put(result_of(told))

    def failed(self, error: TaskError) -> None:
        self.arrived.put(error)


def streamed(ticket: StreamTicket, cancel: Callable[[], None]) -> Iterator[Any]:
    """The values of a generator; whoever stops reading ends it. After a lost node it starts from its beginning, and
    what it gave before is not given again."""
    over = False
    try:
        while True:
            arrived = ticket.arrived.get()
            if isinstance(arrived, bytes):
                yield unpack_value(arrived)
                continue
            over = True
            if isinstance(arrived, TaskError):
                raise arrived
            arrived.value()
            return
    finally:
        if not over:
            cancel()
