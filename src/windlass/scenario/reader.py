"""The reader reads plain data with a path, and collects every mistake instead of stopping at the first.

A ``DataReader`` returns a usable value even for a wrong one, so that reading goes on and the next mistake is found too;
``finish`` raises if there was any. Each message is one line: the path, what is wrong, what would be right. A key whose
value is null is the same as a missing key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isfinite
from typing import Any, Final, TypeVar

from windlass.core.model.reasons import nearest_name

from .declarations import WRONG, Form
from .durations import parse_duration

T = TypeVar("T")

MANY_DIGITS: Final = 100
"""A number with as many digits is left as text: reading it would take long, and it is too large for every key."""

Path = tuple[str | int, ...]
"""A path in the data: names of keys (or ids), and indices in lists."""


class FileError(ValueError):
    """A file is wrong; ``mistakes`` has one message each, with its path, and ``places`` the path of each."""

    def __init__(self, mistakes: Iterable[str], places: Iterable[Path] = ()) -> None:
        self.mistakes = tuple(mistakes)
        known = tuple(places)
        self.places: tuple[Path, ...] = known if len(known) == len(self.mistakes) else ((),) * len(self.mistakes)
        self.line: int | None = None
        """The line of a text that is not YAML or JSON."""
        super().__init__("\n".join(self.mistakes))

    def placed(self) -> Iterable[tuple[str, Path]]:
        """Returns each mistake with its path in the data."""
        return zip(self.mistakes, self.places, strict=True)


class ScenarioError(FileError):
    """The scenario is wrong."""


@dataclass(frozen=True)
class FileKind:
    """The name of a kind of file in messages, and the error for a wrong one."""

    noun: str
    error: type[FileError]
    least: str
    """An example of the smallest valid file, for a file that is empty."""


SCENARIO_FILE: Final = FileKind("scenario", ScenarioError, "a scenario has at least groups, such as: groups: {}")


class Doubled(dict[str, Any]):
    """A mapping in whose text some keys appear more than once."""

    keys_twice: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, Any]]) -> Doubled:
        found = cls(pairs)
        seen: set[str] = set()
        twice: dict[str, None] = {}
        for key, _ in pairs:
            if key in seen:
                twice[key] = None
            seen.add(key)
        found.keys_twice = tuple(twice)
        return found


def still_marked(read: Mapping[str, Any], entries: dict[str, Any]) -> dict[str, Any]:
    """Returns entries that were made from a mapping of the text: keys that it has more than once stay marked."""
    twice = tuple(key for key in read.keys_twice if key in entries) if isinstance(read, Doubled) else ()
    if twice:
        entries = Doubled(entries)
        entries.keys_twice = twice
    return entries


def plainly(text: str) -> str:
    """Returns the text in one line, with unprintable characters escaped."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shown(value: object) -> str:
    """Formats a wrong value for a message: short, in one line, and never a structure."""
    match value:
        case None:
            return "nothing"
        case True | False:
            return "true" if value else "false"
        case str():
            text = repr(value)
        case int():
            text = str(value) if value.bit_length() < 200 else "a number with many digits"
        case float():
            text = repr(value)
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {plainly(type(value).__name__)}"
    return text if len(text) <= 60 else text[:57] + "..."


def path_text(at: Path) -> str:
    """``demands.train.needs.gpu``, ``demands[3].needs``."""
    text = ""
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += "." * bool(text) + (plainly(part) if len(part) <= 80 else plainly(part[:77]) + "...")
    return text


def is_name(value: str) -> bool:
    """Whether text can serve as an id: visible, in one line, without blanks around it."""
    return value != "" and value.isprintable() and value[0] != " " != value[-1]


def _whole(value: float) -> int | float:
    """Returns a whole number as an int, so that 60 and 1m give the same snapshot."""
    return int(value) if value.is_integer() else value


class DataReader:
    """Collects the mistakes of one file."""

    def __init__(self, kind: FileKind = SCENARIO_FILE) -> None:
        self.kind = kind
        self.mistakes: list[str] = []
        self.places: list[Path] = []
        self._good_keys: set[tuple[Form, tuple[Any, ...]]] = set()

    def wrong(self, at: Path, text: str) -> None:
        self.mistakes.append(f"{path_text(at) or self.kind.noun}: {plainly(text)}")
        self.places.append(at)

    def finish(self) -> None:
        if self.mistakes:
            raise self.kind.error(self.mistakes, self.places)

    # -- structure ---------------------------------------------------------------------------------------------------

    def mapping(self, at: Path, value: object, noun: str = "a mapping") -> Mapping[str, Any]:
        """Returns its entries; an empty mapping if it is not a mapping."""
        if isinstance(value, Doubled):
            for key in value.keys_twice:
                self.wrong((*at, key), "is given twice; keep one of them")
        elif not isinstance(value, Mapping):
            self.wrong(at, f"must be {noun}, is {shown(value)}")
            return {}
        strange = [key for key in value if not isinstance(key, str)]
        for key in strange:
            self.wrong(at, f"has the key {shown(key)}, which is not text; put it in quotes")
        return {key: value[key] for key in value if isinstance(key, str)} if strange else value

    def fields(self, at: Path, value: object, form: Form) -> Mapping[str, Any]:
        """Returns the entries of a mapping with known keys; reports unknown and missing ones."""
        if type(value) is dict and (form, tuple(value)) in self._good_keys:
            return value
        if not isinstance(value, Mapping):
            keys = ", ".join(form.required or form.known[:4])
            noun = form.noun if form.noun.startswith(("a ", "an ")) else "a mapping"
            self.wrong(at, f"must be {noun} with {keys}, is {shown(value)}")
            return {}
        before = len(self.mistakes)
        entries = self.mapping(at, value)
        for key in entries:
            if key in form.old_names:
                if form.old_names[key] in entries:
                    self.wrong((*at, key), f"is the old name of {form.old_names[key]}; keep one of them")
            elif key not in form.known:
                meant = nearest_name(key[:80], form.known)
                remedy = f"did you mean {meant}?" if meant else f"known here: {', '.join(form.known)}"
                self.wrong((*at, key), f"unknown key; {remedy}")
        for key in form.required:
            if entries.get(key) is None:
                self.wrong((*at, key), f"is required in {form.noun}, and is missing")
        if len(self.mistakes) == before and type(value) is dict and None not in value.values():
            self._good_keys.add((form, tuple(value)))
        return entries

    def values(self, at: Path, fields: Mapping[str, Any], form: Form) -> dict[str, Any]:
        """Returns the given values by dataclass field, each read by the type of its key. Wrong ones are left out."""
        found = {}
        for name, key in form.keys.items():
            value = fields.get(name)
            if value is None and key.old_name:
                name, value = key.old_name, fields.get(key.old_name)
            if value is not None and key.type is not None and key.field:
                one = key.type.read(self, (*at, name), value)
                if one is not WRONG:
                    found[key.field] = one
        return found

    def items(self, at: Path, value: object, noun: str) -> Sequence[Any]:
        """Returns the entries of a list; none if the key is missing."""
        if value is None:
            return ()
        if not isinstance(value, list | tuple):
            self.wrong(at, f"must be a list of {noun}, is {shown(value)}")
            return ()
        return value

    # -- single values -----------------------------------------------------------------------------------------------

    def name(self, at: Path, value: object) -> str:
        """Reads an id or a name. Whole numbers are read as text."""
        if type(value) is int and value.bit_length() < 200:
            return str(value)
        if not isinstance(value, str):
            self.wrong(at, f"must be text, is {shown(value)}" + "; put it in quotes" * isinstance(value, float | bool))
        elif not is_name(value):
            self.wrong(at, f"must be visible text in one line without blanks around it, is {shown(value)}")
        else:
            return value
        return ""

    def text(self, at: Path, value: object, default: str = "") -> str:
        """Reads text for people or for comparing; true, false and numbers are read as text."""
        match value:
            case None:
                return default
            case True | False:
                return "true" if value else "false"
            case int() if value.bit_length() < 200:
                return str(value)
            case float() if isfinite(value):
                return repr(value)
            case str():
                if value.isprintable():
                    return value
                self.wrong(at, f"must be text in one line without control characters, is {shown(value)}")
            case _:
                self.wrong(at, f"must be text, is {shown(value)}")
        return default

    def labels(self, at: Path, value: object) -> dict[str, str]:
        """Reads keys and values as text."""
        if value is None:
            return {}
        found = {}
        for key, one in self.mapping(at, value, "a mapping of labels, such as {zone: us-1a}").items():
            here = (*at, key)
            if not is_name(key):
                self.wrong(at, f"has the label key {shown(key)}, which must be visible text")
            elif one is None:
                self.wrong(here, "must have a value; write '' for an empty one")
            else:
                found[key] = self.text(here, one)
        return found

    def boolean(self, at: Path, value: object, default: bool) -> bool:
        if value is None or isinstance(value, bool):
            return default if value is None else value
        self.wrong(at, f"must be true or false, is {shown(value)}")
        return default

    def integer(self, at: Path, value: object, default: T, *, low: int = 0, high: int) -> int | T:
        """Reads a whole number between the bounds; 3.0 is one, '3' and true are not."""
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if type(value) is not int:
            quoted = isinstance(value, str) and value.strip().isdigit()
            if quoted and len(str(value)) >= MANY_DIGITS:  # such a number is text without quotes around it
                self.wrong(at, f"must be at most {high}, is a number with many digits")
                return default
            remedy = "; write it without quotes" if quoted else ""
            self.wrong(at, f"must be a whole number, is {shown(value)}{remedy}")
        elif value < low:
            self.wrong(at, f"must be at least {low}, is {shown(value)}")
        elif value > high:
            self.wrong(at, f"must be at most {high}, is {shown(value)}")
        else:
            return value
        return default

    def number(self, at: Path, value: object, default: T, *, low: float = -1e15, high: float = 1e15) -> int | float | T:
        """Reads a time or a duration in seconds, as a number or as text such as ``10m``, between the bounds."""
        if value is None:
            return default
        if isinstance(value, str):
            try:
                value = _whole(parse_duration(value))
            except ValueError:
                self.wrong(at, f"must be a number of seconds, or text such as 45s, 10m, 6h or 30d, is {shown(value)}")
                return default
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            self.wrong(at, f"must be a number of seconds, or text such as 45s, 10m, 6h or 30d, is {shown(value)}")
        elif value < low:
            self.wrong(at, f"must be at least {low:g}, is {shown(value)}")
        elif value > high:
            self.wrong(at, f"must be at most {high:g}, is {shown(value)}")
        else:
            return value
        return default

    def share(self, at: Path, value: object, wanted: str, low: float, high: float, *, above: bool) -> object:
        """Reads a number between the bounds as a fraction; returns ``WRONG`` if it is none."""
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            good = False
        else:
            good = not above or value > low
        if good:
            return Fraction(str(value))
        self.wrong(at, f"must be a share {wanted}, is {shown(value)}")
        return WRONG

    def choice(self, at: Path, value: object, options: Sequence[str], default: T) -> str | T:
        """Reads one of a few words."""
        if value is None:
            return default
        if isinstance(value, str):
            if value in options:
                return value
            meant = nearest_name(value[:80], options)
            hint = f"; did you mean {meant}?" if meant else ""
        else:
            hint = ""
        self.wrong(at, f"must be one of {', '.join(options)}, is {shown(value)}{hint}")
        return default

    def parsed(self, at: Path, value: object, parse: Callable[[Any], T], wanted: str) -> T | None:
        """Reads an amount or a price: a number or text that ``parse`` accepts."""
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            self.wrong(at, f"must be {wanted}, is {shown(value)}")
        elif isinstance(value, int) and value.bit_length() > 100:
            self.wrong(at, f"is too large: {shown(value)}")
        else:
            try:
                return parse(value)
            except ValueError as error:
                self.wrong(at, plainly(str(error)))
        return None
