"""This module holds futures of single tasks and collections of many. The pool's thread completes them, other threads
read them.

Values are unpickled on the thread that asks for them: a large result does not hold up the pool.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from functools import cached_property
from queue import Empty, SimpleQueue
from typing import Any, NoReturn

from windlass.pool.errors import BadPool, TaskCancelled, TaskError
from windlass.pool.scheduler.tasks import ScheduledTask as BookTask
from windlass.pool.transport.serialization import TYPES, ItemResult, RawResult, StaysHere, result_of, unpack_value


def in_order(arriving: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    early: dict[int, Any] = {}
    due = 0
    for position, value in arriving:
        early[position] = value
        while due in early:
            yield early.pop(due)
            due += 1


Answer = RawResult | TaskError


class Collection:
    """The answers to many tasks, by position, in the order in which they come."""

    def __init__(self, count: int, *on_result: Callable[[int], None]) -> None:
        """``on_result``: gets each position whose result has come."""
        self.answers: list[Answer | list[Answer]] = [None] * count
        """None: a value that is None, or one that has not come."""
        self.values: dict[int, list[bytes]] = {}
        """What generators have given so far."""
        self._bad: SimpleQueue[int] = SimpleQueue()
        """Positions whose answer is no value."""
        self._on_result, self._left = on_result, count
        self._enough = threading.Event()
        """All are there, or one that is an error."""

    # -- on the pool's thread -----------------------------------------------------------------------------------------

    def put(self, position: int, answer: Answer | list[Answer]) -> None:
        self.answers[position] = answer
        bad = type(answer) not in TYPES and _failed(answer)
        if bad:
            self._bad.put(position)
        self._left -= 1
        if bad or not self._left:
            self._enough.set()
        for notify in self._on_result:
            notify(position)

    # -- on the thread that waits -------------------------------------------------------------------------------------

    def first_error(self) -> int | None:
        """Wait until all answers are there, without waking for each; or until one of them is an error, and its
        position."""
        while True:
            whole = not self._left  # read first: what is put before is found below
            with suppress(Empty):
                return self._bad.get_nowait()
            if whole:
                return None
            self._enough.wait()
            self._enough.clear()

    def failed(self, position: int) -> bool:
        """Whether there is an answer, and it is no value."""
        return _failed(self.answers[position])

    def value(self, position: int) -> Any:
        """What came of one; raises what it raised."""
        answer = self.answers[position]
        if isinstance(answer, list):
            return gang_value(answer)
        return value_of(answer, self.values.get(position, []))


def _failed(answer: Answer | list[Answer]) -> bool:
    if isinstance(answer, ItemResult):
        return not answer.good
    return any(map(_failed, answer)) if isinstance(answer, list) else isinstance(answer, TaskError)


class Started:
    """Many tasks under way, and what must be done when no one waits for them any more."""

    def __init__(
        self, collection: Collection, on_finished: Callable[[], None], cancel: Callable[[list[BookTask]], None]
    ) -> None:
        self.collection, self._on_finished, self._cancel = collection, on_finished, cancel
        self.tasks: list[BookTask] = []
        """Filled on the pool's thread."""

    def value(self, position: int, return_exceptions: bool) -> Any:
        """What came of one; with ``return_exceptions`` that may be the exception itself."""
        try:
            return self.collection.value(position)
        except Exception as error:
            if not return_exceptions:
                raise
            return error

    def values(self, return_exceptions: bool) -> list[Any]:
        """What came of all of them, in order, once all are there."""
        return [
            answer if type(answer) in TYPES else self.value(position, return_exceptions)
            for position, answer in enumerate(self.collection.answers)
        ]

    def ended(self, whole: bool) -> None:
        """No one waits any more: all have come, or what is left is cancelled."""
        self._on_finished()
        if not whole:
            self._cancel(self.tasks)


def value_of(answer: Answer, values: list[bytes]) -> Any:
    """The value of a task; of a generator, the list of its values."""
    if isinstance(answer, TaskError):
        raise answer
    if not isinstance(answer, ItemResult):
        return answer
    value = answer.value()
    return [unpack_value(one) for one in values] if answer.kind == "streamed" else value


def gang_value(answers: list[Answer]) -> list[Any]:
    """The values of a gang by rank; raises the one exception that ended it, not those of the members it took along."""
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
    """The answers of the members of a gang, or of one task on every node; passed on when all are there."""

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
        """Members of a gang are no generators."""


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
        raise StaysHere("it is a future, whose value may not be there yet. Pass its value: future.result()")

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
        """What came of it."""
        if isinstance(answer, TaskCancelled) and not self._started:
            self._started = True
            super().cancel()
            self.set_running_or_notify_cancel()
            return
        self.on_began()
        self.set_result(answer)

    # -- for the user -------------------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """End it; True unless it is over already. A task that runs is killed, with the process of its slot."""
        if self.done():
            return self.cancelled()
        self._cancel(self.tasks)
        return True

    def result(self, timeout: float | None = None) -> Any:
        """The value, or the exception of the task is raised."""
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
        """The exception of the task; None if it gave a value."""
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
    """Passes on values as they come."""

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
    """The values of a generator; a reader that stops ends it. After a lost node it starts from its beginning, and
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


class AllFuture(Future[Any]):
    """The values of many tasks at once. It is done when all are, or when the first of them has failed; the others are
    cancelled then."""

    def __init__(self, make: Callable[[list[Any]], Any]) -> None:
        """``make``: what the list of values becomes."""
        super().__init__()
        self._make, self._left = make, 0
        self._failed: int | None = None
        """The first that failed: those that were cancelled for it get exceptions of their own later."""
        self.started: Started
        self.set_running_or_notify_cancel()

    def begin(self, started: Started, count: int) -> None:
        """These are the tasks."""
        self.started, self._left = started, count
        if not count:
            self._end(whole=True)

    def on_result(self, position: int) -> None:
        """One of them has an answer. On the pool's thread."""
        self._left -= 1
        if self.done():
            return
        if self.started.collection.failed(position):
            self._failed = position
        if not self._left or self._failed is not None:
            self._end(whole=not self._left)

    def _end(self, *, whole: bool) -> None:
        self.started.ended(whole)
        self.set_result(None)

    def cancel(self) -> bool:
        """End all of them; True unless they are over already."""
        if self.done():
            return False
        self.started.ended(False)
        return True

    @cached_property
    def _outcome(self) -> tuple[Any, BaseException | None]:
        try:
            if self._failed is not None:
                self.started.value(self._failed, return_exceptions=False)
            return self._make(self.started.values(return_exceptions=False)), None
        except BaseException as error:  # noqa: BLE001  # raised by ``result``, each time that it is asked for
            return None, error

    def result(self, timeout: float | None = None) -> Any:
        super().result(timeout)
        value, error = self._outcome
        if error is not None:
            raise error
        return value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        super().exception(timeout)
        return self._outcome[1]


def tasks_of(future: Future[Any]) -> list[BookTask]:
    """What a future of a pool stands for."""
    if isinstance(future, AllFuture):
        return list(future.started.tasks)
    if isinstance(future, TaskFuture):
        return future.tasks
    raise BadPool(f"{future!r} is no future of a pool; give what task > pool gave")
