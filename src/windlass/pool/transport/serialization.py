"""Serialization packs batches of items for a slot, and the results of items for the pool.

The pool's side, in the order in which the task book uses it:

    function = pack_function(trial)             # once for each function, however many tasks
    arguments = pack_arguments((0.1,), {})      # once for each task; CannotSend says what cannot be pickled
    blob = pack_batch(function, [arguments])    # of tasks of one function; each is an item of the batch
    call = Call(id, node, slot, blob)
    ...                                         # the engine carries it, `runner.execute` runs it on the slot
    for result in unpack_results(results):      # of each item that has ended, in the order of the batch
        result_of(result).value()               # the value; or raises: the user's own exception with the remote
                                                # traceback as its cause, ResultUnsendable, ResultTooLarge, ...
    unpack_value(blob)                          # what came by ``on_value``

Only ``value`` unpickles what belongs to the user, so a class that is missing here affects its own item and no other.
Plain values (`is_plain`) need no pickle of their own.

A large value is a file of the `data_store`: ``Shared`` stands for it in the arguments, at any depth, and is the value
itself when it is unpickled on a slot. Each item gets a copy of its own, made when it changes something; with ``keep``
all items on a slot get the same object, which is right for functions.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from mmap import mmap
from sys import getsizeof
from typing import Any, Final, Literal, NamedTuple

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

from .data_store import Packed, StorePlace, load, mapped, packed, unpack

LIMIT: Final = 1 << 30
"""Bytes of the largest result of one item, unless the batch says otherwise. Larger ones belong into a file or a
bucket."""


class StaysHere(TypeError):
    """An object cannot leave the program that created it, such as a pool; the text says what to send instead."""


class CannotSend(Exception):
    """A function, an argument or a value cannot be pickled; the text says which, and what to do."""


class ResultUnsendable(Exception):
    """A function has run, and its result cannot be pickled."""


class ResultTooLarge(Exception):
    """A function has run, and its result is larger than the limit."""


class ResultUnreadable(Exception):
    """A result has arrived that cannot be unpickled here, for example because a module is missing."""


class RemoteTraceback(Exception):
    """The traceback on the node, as text. It is the cause of an exception that was raised there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"on the node:\n{self.text}"


class RemoteError(Exception):
    """Replaces an exception that cannot be pickled; has its type and message as text."""


class TaskExit(Exception):
    """A task raised SystemExit, KeyboardInterrupt or another BaseException, which would end this program if it were
    raised here.
    """


# -- from the pool to the slot -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shared:
    """A reference to a value of the `data_store`. Unpickling it on a slot gives that value."""

    name: str
    path: str
    """The path of its file on the pool's machine."""
    keep: bool = False
    """Whether all items on a slot get the same object; otherwise each gets a private copy."""

    def __reduce__(self) -> tuple[Callable[[str, str, bool], Any], tuple[str, str, bool]]:
        names = names_used.get(None)
        if names is not None:
            names.append(self.name)
        return _resolved, (self.name, self.path, self.keep)


names_used: ContextVar[list[str]] = ContextVar("windlass_names_used")
"""While it is set, pickling adds the names of shared values to it."""
shared_here: ContextVar[Callable[[str, str, bool], Any]] = ContextVar("windlass_shared_here")
"""The function that loads shared values on a slot; set by the runner while it unpickles."""


def _resolved(name: str, path: str, keep: bool) -> Any:
    find = shared_here.get(None)
    return Shared(name, path, keep) if find is None else find(name, path, keep)


Arguments = bytes | tuple[tuple[Any, ...], Mapping[str, Any]]
"""The arguments of one item: pickled, or unchanged if all of them are plain."""
NO_KEYWORDS: Final[Mapping[str, Any]] = {}
"""The keyword arguments of all items without any: a pickle of many items has it once."""


def pack_function(function: Callable[..., Any]) -> bytes:
    """Pickle a function with its closure."""
    return _packed(function, "the function", _name_of(function))


def pack_arguments(
    args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None, function: str = "the call"
) -> Arguments:
    """Pack the arguments of one item. ``function``: its name, for error messages."""
    if are_plain(args) and (not kwargs or are_plain((*kwargs, *kwargs.values()))):
        return tuple(args), dict(kwargs) if kwargs else NO_KEYWORDS
    given = tuple(args), dict(kwargs or {})
    try:
        return _dumped(given)
    except Exception as error:  # whatever a class of the user's does when it is pickled
        named = [*((str(number), one) for number, one in enumerate(given[0], 1)), *given[1].items()]
        for name, one in named:
            _packed(one, "argument", f"{name} of {function}")
        raise CannotSend(f"the arguments of {function} cannot be sent to a node: {_words(error)}") from error


def length_of(arguments: Arguments) -> int:
    """Return an upper bound of the bytes of packed arguments."""
    return len(arguments) if isinstance(arguments, bytes) else LONGEST


def pack_shared(value: Any, what: str = "a value") -> Packed:
    """Pickle any object for the `data_store`. ``what``: its description, for error messages."""
    try:
        return packed(value)
    except Exception as error:  # whatever a class of the user's does when it is pickled
        raise _cannot_send(f"{what} of type", type(value).__name__, error) from error


def pack_batch(
    function: bytes | Shared,
    items: Sequence[Arguments],
    *,
    limit: int = LIMIT,
    place: StorePlace | None = None,
    call: str = "",
) -> bytes:
    """Pack a batch: a function, and the arguments of each item. ``limit``: the largest result of an item, in bytes.
    ``place``: the directories for large results, which are named after the ``call``.
    """
    return pickle.dumps((limit, function, items, place, call), protocol=pickle.HIGHEST_PROTOCOL)


def _packed(thing: Any, what: str, name: str) -> bytes:
    try:
        return _dumped(thing)
    except Exception as error:  # whatever a class of the user's does when it is pickled
        raise _cannot_send(what, name, error) from error


def _cannot_send(what: str, name: str, error: Exception) -> CannotSend:
    remedy = (
        ""
        if isinstance(error, StaysHere)
        else ". Open files, locks, connections and generators cannot be pickled: create them inside the function, or "
        "pass what is needed to create them."
    )
    return CannotSend(f"{what} {name} cannot be sent to a node: {_words(error)}{remedy}")


def _dumped(thing: Any) -> bytes:
    blob: bytes = cloudpickle.dumps(thing, protocol=pickle.HIGHEST_PROTOCOL)
    return blob


def _name_of(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


# -- from the slot to the pool -----------------------------------------------------------------------------------------

Kind = Literal["plain", "value", "streamed", "error", "unsendable", "too-large"]
"""``plain``: it returned a plain value. ``value``: it returned another one. ``streamed``: it was a generator and has
ended. ``error``: it raised, or could not be unpickled there. ``unsendable``, ``too-large``: it ran, and its result
cannot be sent.
"""


class ItemResult(NamedTuple):
    """The result of one item."""

    kind: Kind
    content: Any = b""
    """A plain value itself. Otherwise pickled: the value, what a generator returned at its end, or the exception. A
    large value is a file: a `StoredValue`, or the file in memory once it has been claimed."""
    text: str = ""
    """The traceback on the node for an ``error``; a sentence for other failures."""
    values: int = 0
    """How many values a generator yielded."""

    @property
    def good(self) -> bool:
        return self.kind in ("plain", "value", "streamed")

    def value(self) -> Any:
        """Return what the function returned (a generator: at its end), or raise the exception of ``error``."""
        error = self.error()
        if error is not None:
            raise error
        return self.content if self.kind == "plain" else unpack_value(self.content)

    def error(self) -> BaseException | None:
        """Return the exception in place of a value, without raising it; None if there is a value."""
        match self.kind:
            case "unsendable":
                return ResultUnsendable(self.text)
            case "too-large":
                return ResultTooLarge(self.text)
            case "error":
                try:
                    found: BaseException = unpack_value(self.content)
                except ResultUnreadable as unreadable:
                    found = unreadable
                if not isinstance(found, Exception):
                    found = TaskExit(f"the task raised {type(found).__name__}: {found}".rstrip(": "))
                found.__cause__ = RemoteTraceback(self.text)
                return found
        return None


RawResult = Any
"""The result of one item: a plain value, or an `ItemResult`."""


class StoredValue(NamedTuple):
    """A large value that a slot has written: the path of its file."""

    path: str


def claimed(result: RawResult) -> RawResult:
    """Take over the file of a large result, so that it is removed with the result."""
    if isinstance(result, ItemResult) and isinstance(result.content, StoredValue):
        try:
            return result._replace(content=mapped(result.content.path, remove=True))
        except OSError as error:
            return ItemResult("unsendable", text=f"the file of a large result is gone: {error}")
    return result


def result_of(result: RawResult) -> ItemResult:
    return result if isinstance(result, ItemResult) else ItemResult("plain", result)


PackedResult = Any
"""The result of one item between a slot and the task book: bytes from `pack_result`, or a small plain value itself."""


def pack_result(result: RawResult) -> bytes:
    """Pickle the result of one item; on the slot."""
    return pickle.dumps(result, protocol=pickle.HIGHEST_PROTOCOL)


def unpack_results(results: Iterable[PackedResult]) -> list[RawResult]:
    """Unpack the results of items. Nothing of the user's is unpickled yet."""
    return [claimed(pickle.loads(one)) if type(one) is bytes else one for one in results]


_BARE: Final = frozenset({int, float, bool, str, type(None)})
"""Types of values that `result_entry` does not pickle twice. Bytes are not among them, because they mark a pickle."""
_LIST: Final = b"\x80\x05]"
"""The beginning of a pickle that is a list, and no element yet."""


def result_entry(result: RawResult) -> bytes:
    """Return the part of a pickle that appends the result of one item to a list. Entries are concatenated, and
    `unpack_entries` reads thousands of them with one call of ``pickle.loads``.
    """
    value = result if type(result) in _BARE else pack_result(result)
    return pickle.dumps(value, protocol=5)[2:-1] + b"a"  # without the protocol before it and the stop after it


def unpack_entries(entries: bytes) -> list[PackedResult]:
    """Return the results in entries that follow each other."""
    found: list[PackedResult] = pickle.loads(b"".join((_LIST, entries, b".")))
    return found


_MADE_IN_PYTHON: Final = 1 << 9
"""The flag of classes that a ``class`` statement makes: ``Py_TPFLAGS_HEAPTYPE``."""


def _built_in(kind: type[BaseException]) -> type[BaseException]:
    """Return the nearest built-in class of an exception: it knows what an exception holds beside its ``__dict__``, such
    as ``errno``.
    """
    return next(one for one in kind.__mro__ if not one.__flags__ & _MADE_IN_PYTHON and issubclass(one, BaseException))


def parts_of(error: BaseException) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """Return the arguments and the state of an exception for `rebuilt`, whatever its class does when it is pickled."""
    reduced: tuple[Any, ...] = tuple(_built_in(type(error)).__reduce__(error))
    return reduced[1], reduced[2] if len(reduced) > 2 else {}


def rebuilt(kind: type[BaseException], args: tuple[Any, ...], state: Mapping[str, Any]) -> BaseException:
    """Create an exception from its parts, without calling an ``__init__`` that is written in Python."""
    try:
        error = kind.__new__(kind, *args)
        _built_in(kind).__init__(error, *args)
    except Exception:  # noqa: BLE001  # a __new__ of the user's own, or an argument that came as text
        error = kind.__new__(kind)
        error.args = args
    for name, value in state.items():
        try:
            setattr(error, name, value)
        except Exception:  # noqa: BLE001  # a property of the user's own
            error.__dict__[name] = value
    return error


def unpack_value(blob: bytes | mmap) -> Any:
    """Unpickle a value that came from a slot."""
    try:
        if isinstance(blob, mmap):
            return unpack(blob)
        value = pickle.loads(blob)
        return load(value.path, remove=True) if isinstance(value, StoredValue) else value
    except Exception as error:  # whatever a class of the user's does when it is unpickled
        raise ResultUnreadable(
            f"a result came back that cannot be unpickled here: {_words(error)}. A module that the node has and this "
            "program has not is the usual cause."
        ) from error


LONGEST: Final = 512
"""Most bytes that all plain values of an item take, pickled."""
_SMALL: Final = LONGEST // 2
"""The same in memory, where a character that takes two bytes in a pickle may take one."""
TYPES: Final = frozenset({int, float, bool, str, bytes, type(None)})
"""Types of plain values; a value of these types is plain if it is small."""


def is_plain(value: Any) -> bool:
    return type(value) in TYPES and getsizeof(value) <= _SMALL


def are_plain(values: Iterable[Any]) -> bool:
    """Return whether all values are plain, and small in total."""
    room = _SMALL
    for value in values:
        if type(value) not in TYPES:
            return False
        room -= getsizeof(value)
    return room >= 0
