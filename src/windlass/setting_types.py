"""Setting types declare the keys of a configuration: how a value is read, its default, its unit and its meaning.

A ``Section`` is one mapping of the file. From its settings the file is read, the reference page is written and the JSON
Schema is made. Providers and workloads declare their own sections with these types (see ``providers.registry`` and
``workloads.registry``); those of the controller itself are in ``config.schema``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from windlass.scenario.declarations import REQUIRED, Form, Key
from windlass.scenario.durations import format_duration


class BadSettings(Exception):
    """The settings are invalid. Each message begins with the path of its setting."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = mistakes


YEARS: Final = 10 * 365 * 86400.0
"""The longest duration in seconds; a longer one is a typing error."""


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration between the bounds, in seconds."""

    low: float = 0
    high: float = YEARS


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between the bounds."""

    low: int = 0
    high: int = 10**6


@dataclass(frozen=True, slots=True)
class Share:
    """A number above 0 and up to 1; with ``below_one``, 1 is too much; with ``or_none``, 0 is fine."""

    below_one: bool = False
    or_none: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""


@dataclass(frozen=True, slots=True)
class Name:
    """Visible text in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """A path; a relative one is relative to the directory of the configuration file."""


@dataclass(frozen=True, slots=True)
class Address:
    """The place of a journal: a path as above, or the URL of a database."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a server: one of these schemes, a host and a port."""

    schemes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HostPort:
    """The address of a server: ``HOST:PORT``, without a scheme."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these words."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Number:
    """A number between the bounds."""

    low: float = 0
    high: float = 10**12


@dataclass(frozen=True, slots=True)
class Words:
    """A list of words, each visible text in one line."""


@dataclass(frozen=True, slots=True)
class Data:
    """Plain data of any form (mappings, lists, text, numbers); the owner of the section reads it further."""


@dataclass(frozen=True, slots=True)
class MachineImage:
    """A group's ``image``: what machines must have before their program starts. None if nothing is needed."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per hour by machine type, or by machine type and market (``p4d.24xlarge/spot``)."""


Kind = (
    Duration
    | Whole
    | Share
    | Flag
    | Name
    | Place
    | Address
    | Endpoint
    | HostPort
    | OneOf
    | Number
    | Words
    | Data
    | MachineImage
    | Prices
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of a section."""

    name: str
    kind: Kind
    default: Any
    """The default as written in a file; ``REQUIRED``: the setting is required; None: see ``absent``."""
    unit: str
    meaning: str
    absent: str = ""
    """The behaviour without the setting, in words, if there is no default value."""

    def key(self) -> Key:
        if self.default == REQUIRED:
            text = REQUIRED
        elif self.default is None:
            text = self.absent
        elif isinstance(self.kind, Duration) and not isinstance(self.default, str):
            text = f"`{format_duration(self.default)}`"
        else:
            text = f"`{str(self.default).lower() if isinstance(self.kind, Flag) else self.default}`"
        return Key(text, self.meaning, self.unit)


@dataclass(frozen=True)
class Section:
    """The settings of one mapping in the file."""

    noun: str
    settings: tuple[Setting | SubSection, ...]
    short: str = ""
    """The setting whose value may replace the whole mapping."""

    @cached_property
    def form(self) -> Form:
        return Form(self.noun, {one.name: one.key() for one in self.settings})

    def typed(self, key: Key) -> Form:
        """Return the section with ``type`` as its first setting, for sections with several types."""
        return Form(self.noun, {"type": key, **self.form.keys})


@dataclass(frozen=True, slots=True)
class SubSection:
    """A section inside a section."""

    name: str
    section: Section
    meaning: str

    def key(self) -> Key:
        return Key("see below", self.meaning)
