"""Each key of a scenario or configuration is declared once, with its type, its default and its meaning.

A ``Form`` lists the keys of one mapping. The reader reads values by the type of their key, the writer writes them,
the reference page and the JSON Schema describe them, and the builders in ``windlass.builders`` offer them as keywords.
The default of a key is that of the dataclass field which holds its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, Final, NamedTuple

REQUIRED: Final = "required"
WRONG: Final = object()
"""The result of reading a wrong value, after the mistake was recorded. The default is used instead."""


@dataclass(frozen=True)
class ValueType:
    """How values of one type are read, written and described."""

    read: Callable[[Any, tuple[str | int, ...], Any], Any]
    """Takes the reader, the path and a value that is not null; returns the value of the snapshot, or ``WRONG``."""
    schema: Mapping[str, Any]
    """The type as JSON Schema."""
    python: str
    """The type as an annotation, for the keyword of a builder."""
    write: Callable[[Any], Any] = lambda value: value
    """The inverse of ``read``."""


class Key(NamedTuple):
    """One key of a form."""

    default: str
    """The default in words; ``REQUIRED``: the key must not be left out."""
    meaning: str
    unit: str = ""
    type: ValueType | None = None
    """None: the owner of the form reads it."""
    field: str = ""
    """The dataclass field that holds its value. Empty: no single field does, and the owner of the form reads it."""
    old_name: str = ""
    """A former name, which is still read."""


class Declared(NamedTuple):
    """A key in a table of keys; ``Form.of`` adds the default of the dataclass."""

    type: ValueType
    meaning: str
    unit: str = ""
    default: str = ""
    """The default in words, where the default of the field does not say enough."""
    field: str | None = ""
    """The field, where its name is not that of the key; None: there is no single one."""
    old_name: str = ""


@dataclass(frozen=True, eq=False)
class Form:
    """The keys that a mapping may have."""

    noun: str
    keys: Mapping[str, Key]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values by dataclass field; a value that is equal to its default is not written."""
    known: tuple[str, ...] = field(init=False)
    required: tuple[str, ...] = field(init=False)
    old_names: Mapping[str, str] = field(init=False)
    """The current name of each former name."""

    def __post_init__(self) -> None:
        old = {one.old_name: key for key, one in self.keys.items() if one.old_name}
        object.__setattr__(self, "old_names", old)
        object.__setattr__(self, "known", tuple(self.keys))
        object.__setattr__(self, "required", tuple(key for key, one in self.keys.items() if one.default == REQUIRED))

    @classmethod
    def of(cls, noun: str, holder: type, declared: Mapping[str, Declared]) -> Form:
        """Returns the form of the mapping that is read into a dataclass."""
        defaults = _defaults(holder)
        keys = {}
        for name, one in declared.items():
            attribute = "" if one.field is None else one.field or name
            words = one.default or (_words(defaults[attribute]) if attribute in defaults else REQUIRED)
            keys[name] = Key(words, one.meaning, one.unit, one.type, attribute, one.old_name)
        return cls(noun, keys, defaults)

    def replace(self, noun: str, *, without: Iterable[str] = (), more: Mapping[str, Key] | None = None) -> Form:
        """Returns the form with fewer or more keys."""
        left = {key: one for key, one in self.keys.items() if key not in without}
        return Form(noun, left | dict(more or {}), self.defaults)

    def write(self, value: object, *, without: Iterable[str] = ()) -> dict[str, Any]:
        """Returns the mapping from which an equal value is read: required keys, and those that differ from their
        default."""
        found = {}
        for name, key in self.keys.items():
            if not key.field or key.type is None or name in without:
                continue
            one = getattr(value, key.field)
            if one is not None and (key.default == REQUIRED or one != self.defaults.get(key.field, WRONG)):
                found[name] = key.type.write(one)
        return found


def _defaults(holder: type) -> dict[str, Any]:
    """Returns the default of each field of a dataclass that has one."""
    found = {}
    for one in fields(holder):
        if one.default is not MISSING:
            found[one.name] = one.default
        elif one.default_factory is not MISSING:
            found[one.name] = one.default_factory()
    return found


def _words(value: object) -> str:
    match value:
        case True | False:
            return "true" if value else "false"
        case None | () | "":
            return "none" if value is None or value == () else "empty"
        case str():
            return f"`{value}`"
        case int() | float():
            return f"{value:g}"
        case _:
            return "none"
