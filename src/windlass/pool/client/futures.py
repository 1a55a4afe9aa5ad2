"""This module holds futures of single tasks and collections of many. The pool's thread completes them, other threads
read them.

Values are unpickled on the thread that reads them, so a large result does not block the pool.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any, NoReturn, Protocol

from windlass.pool.errors import BadPool, TaskCancelled, TaskError
from windlass.pool.scheduler.tasks import ScheduledTask as BookTask
from windlass.pool.transport.serialization import TYPES, ItemResult, RawResult, StaysHere, result_of, unpack_value
from windlass.pool.waits import next_of, wait_for_event, wait_for_future


def in_order(arriving: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    early: dict[int, Any] = {}
    due = 0
    for position, value in arriving:
        early[position] = value
        while due in early:
            yield early.pop(due)
            due += 1


Answer = RawResult | TaskError


class CountsResults(Protocol):
    """Counts the tasks of a collection that have ended, by position."""

    def on_result(self, position: int) -> None:
        """The task returned a value or raised."""
        ...

    def on_failed(self, position: int) -> None:
        """The pool ended the task without a result."""
        ...


class Collection:
    """The results of many tasks, by position, in the order of their arrival."""

    def __init__(self, count: int, *on_result: Callable[[int], None], progress: CountsResults | None = None) -> None:
        """``on_result`` gets each position whose result has arrived. ``progress`` counts them."""
        self.answers: list[Answer | list[Answer]] = [None] * count
        """None: the value None, or no value yet."""
        self.values: dict[int, list[bytes]] = {}
        """The values of generators so far."""
        self._bad: SimpleQueue[int] = SimpleQueue()
        """Positions whose result is an error."""
        self._on_result, self._progress, self._left = on_result, progress, count
        self._enough = threading.Event()
        """Set when all results are there, or one is an error."""

    # -- on the pool's thread -----------------------------------------------------------------------------------------

    def put(self, position: int, answer: Answer | list[Answer]) -> None:
        self.answers[position] = answer
        bad = type(answer) not in TYPES and _failed(answer)
        if bad:
            self._bad.put(position)
        self._left -= 1
        if bad or not self._left:
            self._enough.set()
        if self._progress is not None:
            lost = bad and any(isinstance(one, TaskError) for one in (answer if isinstance(answer, list) else [answer]))
            (self._progress.on_failed if lost else self._progress.on_result)(position)
        for notify in self._on_result:
            notify(position)

    # -- on the thread that waits -------------------------------------------------------------------------------------

    def first_error(self) -> int | None:
        """Wait until all results are there, without waking for each, or return the position of the first error."""
        while True:
            whole = not self._left  # read first: results that arrived before are found below
            with suppress(Empty):
                return self._bad.get_nowait()
            if whole:
                return None
            wait_for_event(self._enough)
            self._enough.clear()

    def failed(self, position: int) -> bool:
        """Return whether the result is an error."""
        return _failed(self.answers[position])

    def value(self, position: int) -> Any:
        """Return the value of one task, or raise its exception."""
        answer = self.answers[position]
        if isinstance(answer, list):
            return gang_value(answer)
        return value_of(answer, self.values.get(position, []))


def _failed(answer: Answer | list[Answer]) -> bool:
    if isinstance(answer, ItemResult):
        return not answer.good
    return any(map(_failed, answer)) if isinstance(answer, list) else isinstance(answer, TaskError)


class Started:
    """Many tasks in flight, and what to clean up when no caller waits for them."""

    def __init__(self, collection: Collection, on_finished: Callable[[], None], cancel: Callable[..., None]) -> None:
        """``cancel`` gets tasks; with ``only_waiting`` it cancels those that have not been placed."""
        self.collection, self._on_finished, self._cancel = collection, on_finished, cancel
        self.tasks: list[BookTask] = []
        """Filled on the pool's thread."""

    def value(self, position: int, return_exceptions: bool) -> Any:
        """Return the value of one task; with ``return_exceptions`` that may be its exception."""
        try:
            return self.collection.value(position)
        except Exception as error:
            if not return_exceptions:
                raise
            return error

    def values(self, return_exceptions: bool) -> list[Any]:
        """Wait for all values, and return them in order."""
        return [
            answer if type(answer) in TYPES else self.value(position, return_exceptions)
            for position, answer in enumerate(self.collection.answers)
        ]

    def cancel_waiting(self) -> None:
        """Cancel the tasks that have not been placed on a slot."""
        self._cancel(self.tasks, only_waiting=True)

    def ended(self, whole: bool) -> None:
        """End the collection: cancel the tasks that have not ended."""
        self._on_finished()
        if not whole:
            self._cancel(self.tasks)


def value_of(answer: Answer, values: list[bytes]) -> Any:
    """Return the value of a task; for a generator, the list of its values."""
    if isinstance(answer, TaskError):
        raise answer
    if not isinstance(answer, ItemResult):
        return answer
    value = answer.value()
    return [unpack_value(one) for one in values] if answer.kind == "streamed" else value


def gang_value(answers: list[Answer]) -> list[Any]:
    """Return the values of a gang by rank, or raise the exception that ended it, not those of members that ended with
    it.
    """
    for answer in answers:
        if isinstance(answer, ItemResult) and not answer.good:
            answer.value()
    return [value_of(answer, []) for answer in answers]


class Member:
    """The ticket of one task of a collection."""

    __slots__ = ("_collection", "_position")

    def __init__(self, collection: Collection, position: int) -> None:
        self._collection, self._position = collection, position

    def on_began(self) -> None:
        pass

    def on_ended(self, result: RawResult) -> None:
        self._collection.put(self._position, result)

    def on_failed(self, error: TaskError) -> None:
        self._collection.put(self._position, error)

    def on_value(self, blob: bytes) -> None:
        self._collection.values.setdefault(self._position, []).append(blob)


class Ranks:
    """Collects the results of a gang, or of one task on every node, and passes them on when all are there."""

    def __init__(self, size: int, whole: Callable[[list[Answer]], None]) -> None:
        self._answers: list[Answer] = [None] * size
        self._left, self._whole = size, whole

    def ticket(self, rank: int, on_began: Callable[[], None] = lambda: None) -> Rank:
        return Rank(self, rank, on_began)

    def put(self, rank: int, answer: Answer) -> None:
        self._answers[rank] = answer
        self._left -= 1
        if not self._left:
            self._whole(self._answers)


class Rank:
    """The ticket of one rank."""

    __slots__ = ("_on_began", "_rank", "_ranks")

    def __init__(self, ranks: Ranks, rank: int, on_began: Callable[[], None]) -> None:
        self._ranks, self._rank, self._on_began = ranks, rank, on_began

    def on_began(self) -> None:
        self._on_began()

    def on_ended(self, result: RawResult) -> None:
        self._ranks.put(self._rank, result)

    def on_failed(self, error: TaskError) -> None:
        self._ranks.put(self._rank, error)

    def on_value(self, blob: bytes) -> None:
        """Never called: members of a gang are not generators."""


class TaskFuture(Future[Any]):
    """The future of one task or gang. ``cancel`` ends it wherever it is, also while it runs."""

    def __init__(self, cancel: Callable[[list[BookTask]], None]) -> None:
        super().__init__()
        self.tasks: list[BookTask] = []
        """Its tasks in the task book."""
        self._cancel, self._values = cancel, list[bytes]()
        self._started = False
        self._lock = threading.Lock()
        self._unpacked = False

    def __reduce__(self) -> NoReturn:
        raise StaysHere("a future cannot be an argument of a task. Pass its value: future.result()")

    # -- as a ticket, on the pool's thread ----------------------------------------------------------------------------

    def on_began(self) -> None:
        if not self._started:
            self._started = True
            self.set_running_or_notify_cancel()

    def on_ended(self, result: RawResult) -> None:
        self.answer(result)

    def on_failed(self, error: TaskError) -> None:
        self.answer(error)

    def on_value(self, blob: bytes) -> None:
        self._values.append(blob)

    def answer(self, answer: Answer | list[Answer]) -> None:
        """The result of the task or gang."""
        if isinstance(answer, TaskCancelled) and not self._started:
            self._started = True
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        self.on_began()
        self.set_result(answer)

    # -- for the user -------------------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Cancel the task; True unless it has ended. A running task is killed with the process of its slot."""
        if self.done():
            return self.cancelled()
        self._cancel(self.tasks)
        return True

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the value and return it, or raise the exception of the task."""
        if timeout is None:
            wait_for_future(self)
        answer = super().result(timeout)
        with self._lock:
            if not self._unpacked:
                self._outcome = self._unpack(answer)
                self._unpacked = True
        value, error = self._outcome
        if error is not None:
            raise error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the task and return its exception; None if it returned a value."""
        if timeout is None:
            wait_for_future(self)
        super().exception(timeout)
        try:
            self.result(0)
        except BaseException as error:  # noqa: BLE001  # any exception is the answer
            return error
        return None

    def _unpack(self, answer: Any) -> tuple[Any, BaseException | None]:
        try:
            return (gang_value(answer) if isinstance(answer, list) else value_of(answer, self._values)), None
        except BaseException as error:  # noqa: BLE001  # raised by ``result``, each time that it is asked for
            return None, error


class StreamTicket:
    """The ticket of a generator: passes on values as they arrive."""

    def __init__(self) -> None:
        self.arrived: queue.SimpleQueue[bytes | ItemResult | TaskError] = queue.SimpleQueue()

    def on_began(self) -> None:
        pass

    def on_value(self, blob: bytes) -> None:
        self.arrived.put(blob)

    def on_ended(self, result: RawResult) -> None:
        self.arrived.put(result_of(result))

    def on_failed(self, error: TaskError) -> None:
        self.arrived.put(error)


def streamed(ticket: StreamTicket, cancel: Callable[[], None]) -> Iterator[Any]:
    """Iterates over the values of a generator on a node. A reader that stops ends the generator. After a lost node the
    generator starts again from its beginning, and the values that the reader has got are skipped.
    """
    over = False
    try:
        while True:
            arrived = next_of(ticket.arrived)
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


class AllFuture(Future[Any]):
    """The future of many tasks. It is done when all tasks have ended, or when the first has failed; then the others are
    cancelled. With ``return_exceptions`` none is cancelled, and exceptions are among the values.
    """

    def __init__(self, make: Callable[[list[Any]], Any], *, return_exceptions: bool = False) -> None:
        """``make`` converts the list of values into the result."""
        super().__init__()
        self._make, self._left, self._return_exceptions = make, 0, return_exceptions
        self._failed: int | None = None
        """The first task that failed: those that were cancelled because of it get their own exceptions later."""
        self.started: Started
        self.set_running_or_notify_cancel()

    def begin(self, started: Started, count: int) -> None:
        """Set the tasks of the future."""
        self.started, self._left = started, count
        if not count:
            self._end(whole=True)

    def on_result(self, position: int) -> None:
        """Note that a task has a result. Called on the pool's thread."""
        self._left -= 1
        if self.done():
            return
        if not self._return_exceptions and self.started.collection.failed(position):
            self._failed = position
        if not self._left or self._failed is not None:
            self._end(whole=not self._left)

    def _end(self, *, whole: bool) -> None:
        self.started.ended(whole)
        self.set_result(None)

    def cancel(self) -> bool:
        """Cancel all tasks; True unless they have ended."""
        if self.done():
            return False
        self.started.ended(False)
        return True

    @cached_property
    def _outcome(self) -> tuple[Any, BaseException | None]:
        try:
            if self._failed is not None:
                self.started.value(self._failed, return_exceptions=False)
            return self._make(self.started.values(self._return_exceptions)), None
        except BaseException as error:  # noqa: BLE001  # raised by ``result``, each time that it is asked for
            return None, error

    def result(self, timeout: float | None = None) -> Any:
        if timeout is None:
            wait_for_future(self)
        super().result(timeout)
        value, error = self._outcome
        if error is not None:
            raise error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if timeout is None:
            wait_for_future(self)
        super().exception(timeout)
        return self._outcome[1]


def tasks_of(future: Future[Any]) -> list[BookTask]:
    """Return the tasks of a future of a pool."""
    if isinstance(future, AllFuture):
        return list(future.started.tasks)
    if isinstance(future, TaskFuture):
        return future.tasks
    raise BadPool(f"{future!r} is not a future of a pool; give the future that task > pool returned")
