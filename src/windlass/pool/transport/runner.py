"""What happens on a slot: the items of a batch are run one after the other, and what came of each is told.

``Runner.execute`` is all of it. An item that raises spoils no other. While an item runs, its lines on stdout and stderr
and the values of a generator go to the ``Sink`` at once, with the number of the item; the rest is in the result.
`packing` has the pool's side. Nothing here knows which engine carries it.
"""

from __future__ import annotations

import inspect
import io
import os
import pickle
import time
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, Literal, Protocol

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

from .serialization import (
    LONGEST,
    Arguments,
    ItemResult,
    Kind,
    RemoteError,
    Results,
    Shared,
    Told,
    is_plain,
    pack_results,
    rebuilt,
    shared_here,
)

Stream = Literal["stdout", "stderr"]


LONGEST_LINE: Final = 1 << 16
"""Characters. A line that is longer is told in pieces: one that never ends must not fill the memory."""
KEPT_FUNCTIONS: Final = 64
"""Functions that a slot keeps unpacked; the one that was used longest ago goes first."""


class Sink(Protocol):
    """Where a slot tells what happens while a batch runs."""

    def said(self, item: int, stream: Stream, line: str) -> None: ...

    def yielded(self, item: int, blob: bytes) -> None: ...


Turn = Callable[[int], None]
"""Told the number of the item whose turn it is."""


class Capture(Protocol):
    """Catches what is printed."""

    def batch(self, sink: Sink) -> AbstractContextManager[Turn]:
        """Entered for each batch, and told when the turn of each item comes; when the next one's does, or the batch is
        left, every line of an item has been told."""
        ...


class Runner:
    """Runs batches on one slot, and keeps there what is needed again."""

    def __init__(self, fetch: Callable[[str], bytes | memoryview], capture: Capture | None = None) -> None:
        """``fetch`` gives the bytes of what is shared under a name. Without a ``capture``, what Python itself prints is
        caught, and what other programs and libraries print is not."""
        self._fetch = fetch
        self._capture = capture or PythonOutput()
        self._function_of: Callable[[bytes], Callable[..., Any]] = lru_cache(KEPT_FUNCTIONS)(self._unpickled)
        self._kept: dict[str, Any] = {}

    def execute(self, blob: bytes, sink: Sink, environment: Mapping[str, str]) -> bytes:
        """Run a batch; the blob for ``packing.unpack_results``. ``environment`` is set for the time of the call."""
        began = time.perf_counter()
        limit, function, items = pickle.loads(blob)
        told: list[Told] = []
        with _environment(environment), self._capture.batch(sink) as turn:
            for number, arguments in enumerate(items):
                turn(number)
                told.append(self._run(function, arguments, limit, number, sink))
        return pack_results(Results(time.perf_counter() - began, told))

    def forget(self, name: str) -> None:
        """Nobody needs what is shared under this name any more."""
        self._kept.pop(name, None)

    def _run(self, function: bytes | Shared, arguments: Arguments, limit: int, number: int, sink: Sink) -> Told:
        try:
            called = self._function_of(function) if isinstance(function, bytes) else self._shared_function(function)
            args, kwargs = self._unpickled(arguments) if isinstance(arguments, bytes) else arguments
        except BaseException as error:  # noqa: BLE001  # a missing module, or whatever the user's own classes do
            error.add_note(
                "The function or its arguments could not be unpacked on the node. Does it have their modules?"
            )
            return _failed(error)
        try:
            value = called(*args, **kwargs)
            if is_plain(value) and limit >= LONGEST:
                return value
            if inspect.isgenerator(value):
                return _streamed(value, limit, number, sink)
            return _packed(value, limit, "result", "value")
        except BaseException as error:  # noqa: BLE001  # sys.exit in a task is told like any other exception
            return _failed(error)

    def _shared_function(self, function: Shared) -> Callable[..., Any]:
        shared: Callable[..., Any] = self._shared(function.name, function.keep)
        return shared

    def _unpickled(self, blob: bytes) -> Any:
        token = shared_here.set(self._shared)
        try:
            return pickle.loads(blob)
        finally:
            shared_here.reset(token)

    def _shared(self, name: str, keep: bool) -> Any:
        if not keep:
            return pickle.loads(self._fetch(name))
        if name not in self._kept:
            self._kept[name] = pickle.loads(self._fetch(name))
        return self._kept[name]


def _streamed(generator: Generator[Any, Any, Any], limit: int, number: int, sink: Sink) -> ItemResult:
    values = 0
    while True:
        try:
            value = next(generator)
        except StopIteration as end:
            return _packed(end.value, limit, "return value of the generator", "streamed")._replace(values=values)
        packed = _packed(value, limit, f"value number {values + 1} of the generator", "value")
        if not packed.good:
            generator.close()
            return packed
        sink.yielded(number, packed.content)
        values += 1


def _packed(value: Any, limit: int, what: str, kind: Kind) -> ItemResult:
    try:
        blob = _dumped(value)
    except Exception as error:  # noqa: BLE001  # whatever a class of the user's does when it is pickled
        words = str(error) or type(error).__name__
        text = (
            f"the {what}, of type {type(value).__qualname__}, cannot be sent back: {words}. "
            "Return plain data, or what it takes to make the object again."
        )
        return ItemResult("unsendable", text=text)
    if len(blob) > limit:
        text = (
            f"the {what}, of type {type(value).__qualname__}, is {len(blob):,} bytes long and the limit is {limit:,}. "
            "Write it to a file or a bucket and return its name."
        )
        return ItemResult("too-large", text=text)
    return ItemResult(kind, blob)


def _dumped(value: Any) -> bytes:
    """Quickly if that can be, or else with classes and functions of the user's own program in it."""
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:  # noqa: BLE001  # each class fails in its own way; the second try tells
        blob: bytes = cloudpickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
        return blob


def _failed(error: BaseException) -> ItemResult:
    text = "".join(traceback.format_exception(type(error), error, _below(error.__traceback__)))
    for way in (lambda: error, lambda: _Parts(error), lambda: RemoteError(f"{type(error).__qualname__}: {error}")):
        try:
            blob = _dumped(way())
            pickle.loads(blob)  # many an exception can be pickled and not unpickled: better seen here
        except Exception:  # noqa: BLE001  # each class fails in its own way
            continue
        return ItemResult("error", blob, text)
    raise AssertionError("two strings can be pickled")


class _Parts:
    """An exception by its parts, for one whose ``__init__`` does not take what ``args`` holds."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[Any, ...]]:
        return rebuilt, (type(self._error), self._error.args, self._error.__dict__)


def _below(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of this file at its top: they are none of the user's business."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


# -- what is printed ---------------------------------------------------------------------------------------------------


class PythonOutput:
    """Catches what is written to ``sys.stdout`` and ``sys.stderr``."""

    @contextmanager
    def batch(self, sink: Sink) -> Iterator[Turn]:
        out, err = _Lines(sink, "stdout"), _Lines(sink, "stderr")

        def turn(number: int) -> None:
            out.turn(number)
            err.turn(number)

        with redirect_stdout(out), redirect_stderr(err):
            yield turn
        out.finish()
        err.finish()


class _Lines(io.TextIOBase):
    """A text file that hands on whole lines."""

    def __init__(self, sink: Sink, stream: Stream) -> None:
        self._sink, self._stream = sink, stream
        self._item = 0
        self._part = ""

    def turn(self, item: int) -> None:
        self.finish()
        self._item = item

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._part = (self._part + text).split("\n")
        for line in lines:
            self._tell(line)
        while len(self._part) > LONGEST_LINE:
            self._tell(self._part[:LONGEST_LINE])
            self._part = self._part[LONGEST_LINE:]
        return len(text)

    def finish(self) -> None:
        """What stands after the last end of a line is a line too."""
        if self._part:
            self._tell(self._part)
            self._part = ""

    def _tell(self, line: str) -> None:
        self._sink.said(self._item, self._stream, line)
