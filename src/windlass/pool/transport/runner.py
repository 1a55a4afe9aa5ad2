"""Runner runs the items of a batch on a slot, one after the other.

``Runner.execute`` is the entry point. An item that raises does not affect others. While an item runs, its lines on
stdout and stderr and the values of a generator go to the ``Sink`` at once, with the item's number. When it has ended,
its result is passed on before the next item begins. `serialization` is the pool's side. This module is independent of
the engine.
"""

from __future__ import annotations

import copyreg
import inspect
import io
import os
import pickle
import traceback
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout, suppress
from functools import lru_cache, partial
from types import TracebackType
from typing import Any, Final, Literal, Protocol

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

from .data_store import LARGE, Packed, StorePlace, create, load, packed, result_name
from .serialization import (
    LONGEST,
    Arguments,
    ItemResult,
    Kind,
    RawResult,
    RemoteError,
    Shared,
    StaysHere,
    StoredValue,
    is_plain,
    pack_result,
    parts_of,
    rebuilt,
    shared_here,
)

Stream = Literal["stdout", "stderr"]


LONGEST_LINE: Final = 1 << 16
"""Longest line in characters. A longer one is reported in pieces, so that a line without an end does not fill the
memory.
"""
KEPT_FUNCTIONS: Final = 64
"""Size of the cache of unpickled functions of a slot; the least recently used one is removed."""


class Sink(Protocol):
    """Receives what happens while a batch runs on a slot."""

    def on_output(self, item: int, stream: Stream, line: str) -> None: ...

    def on_value(self, item: int, blob: bytes) -> None: ...


FETCHES: Final = 3
"""How often a shared value is fetched again if it was removed before it could be read."""
Deliver = Callable[[str, Packed], str]
"""Sends a value to the pool's machine under a name; returns its path there."""
Turn = Callable[[int], None]
"""Gets the number of the item that runs next."""


class Capture(Protocol):
    """Captures printed output."""

    def batch(self, sink: Sink) -> AbstractContextManager[Turn]:
        """Entered for each batch, and called with the number of each item before it runs. Every line of an item is
        reported before the next item begins or the batch is left."""
        ...


Ended = Callable[[int, RawResult], bool]
"""Gets the number of an item that has ended and its result; returns False if the items after it were taken back."""


class Runner:
    """Runs batches on one slot, and caches functions and shared values."""

    def __init__(
        self,
        capture: Capture | None = None,
        fetch: Callable[[str, str], str] = lambda _, path: path,
        deliver: Deliver | None = None,
        *,
        away: bool = False,
    ) -> None:
        """Without a ``capture``, only output through ``sys.stdout`` and ``sys.stderr`` is captured. ``fetch`` returns
        the local path of a shared value, from its name and its path on the pool's machine. ``deliver`` sends a large
        result to the pool's machine if that is another one; without it results are sent as messages. ``away``: the pool
        is known to be on another machine.
        """
        self._capture, self._fetch, self._deliver = capture or PythonOutput(), fetch, deliver
        self._away = away
        self._function_of: Callable[[bytes], Callable[..., Any]] = lru_cache(KEPT_FUNCTIONS)(self._unpickled)
        self._kept: OrderedDict[str, Any] = OrderedDict()

    def execute(self, blob: bytes, sink: Sink, environment: Mapping[str, str], ended: Ended) -> None:
        """Run a batch; ``ended`` gets each result. ``environment`` is set during the call."""
        limit, function, items, place, call = pickle.loads(blob)
        with _environment(environment), self._capture.batch(sink) as turn:
            turn(0)
            output = _Output(limit, self._write_to(place), call)
            for number, arguments in enumerate(items):
                output.item = number
                result = self._run(function, arguments, output, sink)
                turn(number + 1)  # all its lines come before its result
                if not ended(number, result):
                    return

    def _write_to(self, place: StorePlace | None) -> Deliver | None:
        """Return how large results are sent to the pool's machine."""
        if place is None:
            return None
        here = not self._away and os.path.isdir(place.memory)  # noqa: PTH112  # quick
        return partial(create, place) if here else self._deliver

    def _run(self, function: bytes | Shared, arguments: Arguments, output: _Output, sink: Sink) -> RawResult:
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
            if is_plain(value) and output.limit >= LONGEST:
                return value
            if inspect.isgenerator(value):
                return _streamed(value, output, sink)
            return output.result(value, "result", "value")
        except BaseException as error:  # noqa: BLE001  # sys.exit in a task is reported like any other exception
            return _failed(error)

    def _shared_function(self, function: Shared) -> Callable[..., Any]:
        shared: Callable[..., Any] = self._shared(function.name, function.path, function.keep)
        return shared

    def _unpickled(self, blob: bytes) -> Any:
        token = shared_here.set(self._shared)
        try:
            return pickle.loads(blob)
        finally:
            shared_here.reset(token)

    def _shared(self, name: str, path: str, keep: bool) -> Any:
        if not keep:
            return self._loaded(name, path)
        if name not in self._kept:
            self._kept[name] = self._loaded(name, path)
            if len(self._kept) > KEPT_FUNCTIONS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(name)
        return self._kept[name]

    def _loaded(self, name: str, path: str) -> Any:
        """Load a shared value, and the shared values inside it."""
        token = shared_here.set(self._shared)
        try:
            for _ in range(FETCHES):
                with suppress(FileNotFoundError):  # it was removed between two steps, to make room for another value
                    return load(self._fetch(name, path))
            return load(self._fetch(name, path))
        finally:
            shared_here.reset(token)


class _Output:
    """Packs the results of a batch. ``item``: the number of the item that runs."""

    def __init__(self, limit: int, write: Deliver | None, call: str) -> None:
        self.limit, self.item, self._write = limit, 0, write
        self._call, self._number = call, 0

    def result(self, value: Any, what: str, kind: Kind, *, streamed: bool = False) -> ItemResult:
        try:
            blob = _packed_quickly(value)
        except Exception as error:  # noqa: BLE001  # whatever a class of the user's does when it is pickled
            words = str(error) or type(error).__name__
            remedy = ". Return plain data, or what is needed to create the object again."
            text = (
                f"the {what}, of type {type(value).__qualname__}, cannot be sent back: {words}"
                f"{'' if isinstance(error, StaysHere) else remedy}"
            )
            return ItemResult("unsendable", text=text)
        if blob.size > self.limit:
            text = (
                f"the {what}, of type {type(value).__qualname__}, is {blob.size:,} bytes long and the limit is "
                f"{self.limit:,}. Write it to a file or a bucket and return its name."
            )
            return ItemResult("too-large", text=text)
        if self._write is not None and blob.size >= LARGE:
            self._number += 1
            try:
                path = self._write(result_name(self._call, self.item, self._number, streamed=streamed), blob)
            except OSError as error:
                return ItemResult("unsendable", text=f"the {what} is large, and could not be brought back: {error}")
            return ItemResult(kind, StoredValue(path))
        return ItemResult(kind, blob.whole())


def _streamed(generator: Generator[Any, Any, Any], output: _Output, sink: Sink) -> ItemResult:
    values = 0
    while True:
        try:
            value = next(generator)
        except StopIteration as end:
            return output.result(end.value, "return value of the generator", "streamed")._replace(values=values)
        packed = output.result(value, f"value number {values + 1} of the generator", "value", streamed=True)
        if not packed.good:
            generator.close()
            return packed
        content = packed.content
        sink.on_value(output.item, pack_result(content) if isinstance(content, StoredValue) else content)
        values += 1


def _packed_quickly(value: Any) -> Packed:
    """Pickle a value by the quick way if possible, otherwise with the user's own classes and functions by value."""
    try:
        return packed(value, by_value=False)
    except Exception:  # noqa: BLE001  # each class fails in its own way; the second attempt reports it
        return packed(value)


def _is_left_to_python(value: Any) -> bool:
    """Return whether a value is an exception that tblib would pickle.

    `distributed` installs tblib for every pickle of this process. It loses what an exception keeps neither in ``args``
    nor in ``__dict__``: a ``UnicodeDecodeError`` has no text then, and a ``SyntaxError`` no line.
    """
    if not isinstance(value, BaseException):
        return False
    registered = copyreg.dispatch_table.get(type(value))
    return registered is not None and str(getattr(registered, "__module__", "")).startswith("tblib")


class _ByName(pickle.Pickler):
    """Pickles classes and functions by name, and exceptions as Python does."""

    def reducer_override(self, value: Any) -> Any:
        return value.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if _is_left_to_python(value) else NotImplemented


class _ByValue(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    """The same, with the user's own classes and functions by value."""

    def reducer_override(self, value: Any) -> Any:
        if _is_left_to_python(value):
            return value.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(value)


def _dumped(value: Any) -> bytes:
    """Pickle an exception or a part of one: by the quick way if possible, otherwise with the user's own classes and
    functions by value.
    """
    into = io.BytesIO()
    try:
        _ByName(into, pickle.HIGHEST_PROTOCOL).dump(value)
    except Exception:  # noqa: BLE001  # each class fails in its own way; the second attempt reports it
        into = io.BytesIO()
        _ByValue(into, pickle.HIGHEST_PROTOCOL).dump(value)
    return into.getvalue()


def _failed(error: BaseException) -> ItemResult:
    text = "".join(traceback.format_exception(type(error), error, _below(error.__traceback__)))
    for way in (
        lambda: error,
        lambda: _Parts(error, *parts_of(error)),
        lambda: _Parts(error, *_picklable_parts(error)),
        lambda: RemoteError(f"{type(error).__qualname__}: {error}"),
    ):
        try:
            blob = _dumped(way())
            pickle.loads(blob)  # some exceptions can be pickled but not unpickled: that must fail here, not in the pool
        except Exception:  # noqa: BLE001  # each class fails in its own way
            continue
        return ItemResult("error", blob, text)
    raise AssertionError("two strings can be pickled")


class _Parts:
    """An exception by its parts, for one whose ``__init__`` does not take what ``args`` holds."""

    def __init__(self, error: BaseException, args: tuple[Any, ...], state: Mapping[str, Any]) -> None:
        self._kind, self._args, self._state = type(error), args, dict(state)

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[Any, ...]]:
        return rebuilt, (self._kind, self._args, self._state)


def _picklable_parts(error: BaseException) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the parts of an exception that can be pickled; the others as text. The members of a group keep their
    types, too.
    """

    def or_text(value: Any) -> Any:
        try:
            pickle.loads(_dumped(value))
        except Exception:  # noqa: BLE001  # each class fails in its own way
            if isinstance(value, BaseException):
                return _Parts(value, *_picklable_parts(value))
            if type(value) in (list, tuple):
                return type(value)(map(or_text, value))
            return repr(value)
        return value

    args, state = parts_of(error)
    return tuple(map(or_text, args)), {name: or_text(value) for name, value in state.items()}


def _below(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback without the frames of this file at its top, which say nothing about the user's code."""
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
    """A text file that forwards whole lines."""

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
            self._deliver(line)
        while len(self._part) > LONGEST_LINE:
            self._deliver(self._part[:LONGEST_LINE])
            self._part = self._part[LONGEST_LINE:]
        return len(text)

    def finish(self) -> None:
        """Report the text after the last line break as a line."""
        if self._part:
            self._deliver(self._part)
            self._part = ""

    def _deliver(self, line: str) -> None:
        self._sink.on_output(self._item, self._stream, line)
