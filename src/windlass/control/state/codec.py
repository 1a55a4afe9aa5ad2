"""The codec converts frozen dataclasses to plain JSON data and back, for the journal.

It is derived from the fields of the types. A field with its default value is left out, so records stay small and a new
field with a default reads old records. Decoding returns an equal value.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Later(Mapping[str, Any]):
    """A mapping that is built when it is first read. Few entries of a journal in memory are ever read."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[], Mapping[str, Any]]) -> None:
        self._make = make
        self._found: Mapping[str, Any] | None = None

    def _read(self) -> Mapping[str, Any]:
        if self._found is None:
            self._found = self._make()
        return self._found

    def __getitem__(self, key: str) -> Any:
        return self._read()[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def __repr__(self) -> str:
        return repr(self._read())


def to_plain(value: Any) -> Any:
    """Return the value as JSON data."""
    kind = type(value)
    return value if kind in _JSON_TYPES else _writer(cast(Hashable, kind))(value)


_JSON_TYPES: Final = frozenset({type(None), bool, int, float, str})


@cache
def _writer(kind: Any) -> Callable[[Any], Any]:
    """Return the encoder of one type."""
    if issubclass(kind, bool | int | float):
        return _unchanged
    if issubclass(kind, Enum):
        return _value_of
    if issubclass(kind, Fraction):
        return lambda value: f"{value.numerator}/{value.denominator}"
    if issubclass(kind, Mapping):
        return lambda value: {key: to_plain(one) for key, one in sorted(value.items())}
    if issubclass(kind, frozenset):
        return lambda value: sorted(to_plain(one) for one in value)
    if issubclass(kind, tuple | list):
        return lambda value: [one if type(one) in _JSON_TYPES else to_plain(one) for one in value]
    return _record_writer(kind)


def _value_of(value: Enum) -> Any:
    return value._value_  # the same, without a property lookup


def _record_writer(kind: type) -> Callable[[Any], Any]:
    """Generate an encoder with a line for each field: a loop over the fields takes twice as long, and every pass
    encodes all changes.
    """
    lines = ["def write(value):", "    plain = {}"]
    known: dict[str, Any] = {"json_types": _JSON_TYPES, "to_plain": to_plain}
    for number, (name, default) in enumerate(_kept(cast(Hashable, kind))):
        known[f"default_{number}"] = default
        lines += [
            f"    one = value.{name}",
            f"    if one is not default_{number} and one != default_{number}:",
            f"        plain[{name!r}] = one if type(one) in json_types else to_plain(one)",
        ]
    exec("\n".join([*lines, "    return plain"]), known)
    write: Callable[[Any], Any] = known["write"]
    return write


@cache
def _kept(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return the encoded fields with their defaults; a field without a default gets an object that equals no value. A
    field with ``metadata={"kept": False}`` is not encoded.
    """
    if not is_dataclass(kind):
        raise TypeError(f"{kind.__name__} has no plain form")
    found = []
    for one in fields(kind):
        if not one.metadata.get("kept", True):
            continue
        default = one.default
        if one.default_factory is not MISSING:
            default = one.default_factory()
        found.append((one.name, default))
    return tuple(found)


def from_plain(kind: type[T], data: Any) -> T:
    """Return the value that ``to_plain`` encoded."""
    result: T = _reader(cast(Hashable, kind))(data)
    return result


@cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return the decoder of one type."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return _optional([one for one in inner if one is not type(None)])
    if origin is tuple:
        return _tuple(inner)
    if origin is frozenset:
        member = _reader(inner[0])
        return lambda data: frozenset(member(one) for one in data)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        of_value = _reader(inner[1])
        return lambda data: {key: of_value(one) for key, one in data.items()}
    if kind is Fraction:
        return Fraction
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if is_dataclass(kind):
        return _record(kind)
    return _unchanged


def _unchanged(data: Any) -> Any:
    return data


def _optional(kinds: list[Any]) -> Callable[[Any], Any]:
    """Return the decoder of a union: one type or None; several types only where JSON keeps them apart, such as int or
    float.
    """
    plain = all(one in (int, float, str, bool, Any) or get_origin(one) is Literal for one in kinds)
    read = _unchanged if plain else _reader(kinds[0])
    return _unchanged if read is _unchanged else lambda data: None if data is None else read(data)


def _tuple(inner: tuple[Any, ...]) -> Callable[[Any], Any]:
    if len(inner) == 2 and inner[1] is Ellipsis:
        member = _reader(inner[0])
        if member is _unchanged:
            return tuple
        return lambda data: tuple([member(one) for one in data])
    members = [_reader(one) for one in inner]
    return lambda data: tuple([read(one) for read, one in zip(members, data, strict=True)])


def _record(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    readers = {name: _reader(hints[name]) for name, _ in _kept(kind)}
    converted = [(name, read) for name, read in readers.items() if read is not _unchanged]

    def read(data: Any) -> Any:
        found = dict(data)
        for name, convert in converted:
            if name in found:
                found[name] = convert(found[name])
        if not found.keys() <= readers.keys():
            found = {name: one for name, one in found.items() if name in readers}
        return kind(**found)

    return read
