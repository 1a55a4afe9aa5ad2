"""What travels between the pool and a slot: batches of items one way, their results the other.

The pool's side, in the order in which the book uses it:

    function = pack_function(trial)             # once for each function, however many tasks
    arguments = pack_arguments((0.1,), {})      # once for each task; CannotSend says what cannot be pickled
    blob = pack_batch(function, [arguments])    # of tasks of one function; each is an item of the batch
    call = Call(id, node, slot, blob, shared=needed)
    ...                                         # the engine carries it, `runner.execute` runs it on the slot
    results = unpack_results(outcome.result)
    results.seconds                             # what all took there, to learn the size of a batch
    for result in results:                      # one for each item, in the order of the batch
        result.value()                          # the value; or raises: the user's own exception with the remote
                                                # traceback as its cause, ResultUnsendable, ResultTooLarge, ...
    unpack_value(blob)                          # what came by ``yielded``

Nothing of the user's is unpickled on the way, nor by ``unpack_results``: only ``value`` does, so a class that is
missing here spoils its own item and no other. Plain values (`plain`) need no pickle of their own.

What many calls need travels once for each node. Give its bytes to the engine under a name, ``engine.share(name,
pack_value(data))``, put ``Shared(name)`` where the object would stand, at any depth of the arguments or in the place of
the function, and name it in ``Call.shared``. On the slot each item gets a fresh copy, as if it had been sent with the
item; with ``keep`` all items on a slot get the same object, which is right for functions and for what nobody changes.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, Final, Literal, NamedTuple

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

LIMIT: Final = 1 << 30
"""Bytes of the largest result of one item, unless the batch says otherwise. Larger ones belong into a file or a bucket:
every result passes through the pool's own process."""


class CannotSend(Exception):
    """A function, an argument or a value cannot be pickled; the text says which, and what to do."""


class ResultUnsendable(Exception):
    """A function ran, and what it gave back cannot be pickled."""


class ResultTooLarge(Exception):
    """A function ran, and what it gave back is larger than the limit."""


class ResultUnreadable(Exception):
    """A result has arrived that cannot be unpickled here, for want of a module for example."""


class RemoteTraceback(Exception):
    """The traceback on the node, as text: the cause of an exception that was raised there."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"on the node:\n{self.text}"


class RemoteError(Exception):
    """Stands for an exception that cannot be pickled itself: its type and its words as text."""


# -- from the pool to the slot -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shared:
    """Stands for an object whose bytes are shared under a name. Unpickled on a slot it is that object."""

    name: str
    keep: bool = False
    """Whether all items on a slot get the same object; otherwise each gets a copy of its own."""

    def __reduce__(self) -> tuple[Callable[[str, bool], Any], tuple[str, bool]]:
        return _resolved, (self.name, self.keep)


shared_here: ContextVar[Callable[[str, bool], Any]] = ContextVar("windlass_shared_here")
"""How a slot finds what is shared; set by the runner while it unpacks."""


def _resolved(name: str, keep: bool) -> Any:
    find = shared_here.get(None)
    return Shared(name, keep) if find is None else find(name, keep)


Arguments = bytes | tuple[tuple[Any, ...], Mapping[str, Any]]
"""Of one item: pickled, or as they are if all of them are plain."""
_NO_KEYWORDS: Final[Mapping[str, Any]] = {}
"""One for all items that have none: a pickle of many has it once."""


def pack_function(function: Callable[..., Any]) -> bytes:
    """A function, with all it closes over."""
    return _packed(function, "the function", _name_of(function))


def pack_arguments(args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Arguments:
    """The arguments of one item."""
    if are_plain(args) and (not kwargs or are_plain((*kwargs, *kwargs.values()))):
        return tuple(args), dict(kwargs) if kwargs else _NO_KEYWORDS
    given = tuple(args), dict(kwargs or {})
    try:
        return _dumped(given)
    except Exception as error:  # whatever a class of the user's does when it is pickled
        named = [*((f"argument {number}", one) for number, one in enumerate(given[0], 1)), *given[1].items()]
        for name, one in named:
            _packed(one, "the argument" if name in given[1] else "the", name)
        raise CannotSend(f"the arguments cannot be sent to a node: {_words(error)}") from error


def length_of(arguments: Arguments) -> int:
    """Bytes that they take on the way, at the most."""
    return len(arguments) if isinstance(arguments, bytes) else LONGEST


def pack_value(value: Any) -> bytes:
    """Any object, to be shared."""
    return _packed(value, "the value of type", type(value).__name__)


def pack_batch(function: bytes | Shared, items: Sequence[Arguments], *, limit: int = LIMIT) -> bytes:
    """What a call carries: a function, and the arguments of each of its runs. ``limit``: the largest result of an item,
    in bytes."""
    return pickle.dumps((limit, function, items), protocol=pickle.HIGHEST_PROTOCOL)


def _packed(thing: Any, what: str, name: str) -> bytes:
    try:
        return _dumped(thing)
    except Exception as error:  # whatever a class of the user's does when it is pickled
        raise CannotSend(
            f"{what} {name} cannot be sent to a node: {_words(error)}. Open files, locks, connections and generators "
            "stay where they are: make them inside the function, or pass what it takes to make them."
        ) from error


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
come to its end. ``error``: it raised, or could not even be unpacked there. ``unsendable``, ``too-large``: it ran, and
what it gave cannot be brought here."""


class ItemResult(NamedTuple):
    """What came of one item."""

    kind: Kind
    content: Any = b""
    """A plain value itself. Otherwise pickled: the value, what a generator returned at its end, or the exception."""
    text: str = ""
    """The traceback on the node for an ``error``; for the other failures the sentence that tells it."""
    values: int = 0
    """How many values a generator gave."""

    @property
    def good(self) -> bool:
        return self.kind in ("plain", "value", "streamed")

    def value(self) -> Any:
        """What the function returned; for a generator, what it returned at its end. Otherwise the exception is raised
        that ``error`` gives."""
        error = self.error()
        if error is not None:
            raise error
        return self.content if self.kind == "plain" else unpack_value(self.content)

    def error(self) -> BaseException | None:
        """Why there is no value: the exception itself, not raised; None when there is one."""
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
                found.__cause__ = RemoteTraceback(self.text)
                return found
        return None


Told = Any
"""What is told of one item: the value as it is if that is plain, or else an `ItemResult`."""


@dataclass(frozen=True, slots=True)
class Results:
    """What came of all items of a batch, in its order."""

    seconds: float
    """What all of them took on the slot, unpacking and packing included."""
    told: Sequence[Told]

    def __len__(self) -> int:
        return len(self.told)

    def __getitem__(self, number: int) -> ItemResult:
        return result_of(self.told[number])

    def __iter__(self) -> Iterator[ItemResult]:
        return map(result_of, self.told)


def result_of(told: Told) -> ItemResult:
    return told if isinstance(told, ItemResult) else ItemResult("plain", told)


def pack_results(results: Results) -> bytes:
    """All results of a batch; on the slot."""
    return pickle.dumps((results.seconds, results.told), protocol=pickle.HIGHEST_PROTOCOL)


def unpack_results(blob: bytes) -> Results:
    """Of all items of a batch. Nothing of the user's is unpickled yet."""
    return Results(*pickle.loads(blob))


def rebuilt(kind: type[BaseException], args: tuple[Any, ...], state: Mapping[str, Any]) -> BaseException:
    """An exception from its parts, without its ``__init__``."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(state)
    return error


def unpack_value(blob: bytes) -> Any:
    """A value that came from a slot."""
    try:
        return pickle.loads(blob)
    except Exception as error:  # whatever a class of the user's does when it is unpickled
        raise ResultUnreadable(
            f"a result came back that cannot be unpickled here: {_words(error)}. A module that the node has and this "
            "program has not is the usual cause."
        ) from error


LONGEST: Final = 512
"""Bytes of all plain values of an item, pickled, at the most: whoever counts bytes may count so many for it."""
_SMALL: Final = LONGEST // 2
"""The same as Python counts them in memory, where a letter that takes two bytes in a pickle may take one."""
TYPES: Final = frozenset({int, float, bool, str, bytes, type(None)})
"""Of all plain values; those of them that are small are plain."""


def is_plain(value: Any) -> bool:
    return type(value) in TYPES and getsizeof(value) <= _SMALL


def are_plain(values: Iterable[Any]) -> bool:
    """Whether all of them are, and are small together."""
    room = _SMALL
    for value in values:
        if type(value) not in TYPES:
            return False
        room -= getsizeof(value)
    return room >= 0
