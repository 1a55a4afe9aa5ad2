"""This module reads the settings of a section by their declared types, for a configuration.

A setting that is wrong is reported with its path, and its value is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any, TypeVar

from windlass.scenario.durations import WANTED, format_duration, parse_duration
from windlass.scenario.groups import GroupReader
from windlass.scenario.reader import FileKind, Path, shown
from windlass.setting_types import (
    YEARS,
    Address,
    Data,
    Duration,
    Endpoint,
    Flag,
    HostPort,
    Kind,
    MachineImage,
    Name,
    Number,
    OneOf,
    Place,
    Prices,
    Section,
    Share,
    SubSection,
    Whole,
    Words,
)

from .groups.images import read_image
from .groups.offers import read_prices

T = TypeVar("T")


class SettingReader(GroupReader):
    """Reads sections of settings. Relative paths start at the directory ``home``."""

    def __init__(self, kind: FileKind, home: FilePath) -> None:
        super().__init__(kind)
        self._home = home

    def section(self, at: Path, value: object, section: Section) -> dict[str, Any]:
        if section.short and isinstance(value, str):
            value = {section.short: value}
        return self.settings_of(at, self.fields(at, {} if value is None else value, section.form), section)

    def settings_of(self, at: Path, fields: Mapping[str, Any], section: Section) -> dict[str, Any]:
        """Return every setting of a section: the given value or the default; None for a wrong one. Reports it."""
        found: dict[str, Any] = {}
        for one in section.settings:
            here, given = (*at, one.name), fields.get(one.name)
            if isinstance(one, SubSection):
                found[one.name] = self.section(here, given, one.section)
            elif given is None and (one.default is None or one.name in section.form.required):
                found[one.name] = None
            else:
                found[one.name] = self._value(here, one.default if given is None else given, one.kind)
        return found

    def _value(self, at: Path, value: object, kind: Kind) -> Any:
        match kind:
            case Duration():
                return self.duration(at, value, kind, None)
            case Whole():
                return self.integer(at, value, None, low=kind.low, high=kind.high)
            case Share():
                return self._share(at, value, kind)
            case Flag():
                return self.boolean(at, value, False)
            case Name():
                return self.name(at, value)
            case Place():
                return self._place_of(at, value)
            case Address():
                return self._address(at, value)
            case Endpoint():
                return self._endpoint(at, value, kind)
            case HostPort():
                return self._host_port(at, value)
            case OneOf():
                return self._one_of(at, value, kind)
            case Number():
                return self._number(at, value, kind)
            case Words():
                return self._words(at, value)
            case Data():
                return self.untouched(at, value)
            case MachineImage():
                return read_image(self, at, value, self._home)
            case Prices():
                return read_prices(self, at, value)

    def duration(self, at: Path, value: object, kind: Duration, default: T) -> float | T:
        seconds = self.parsed(at, value, parse_duration, WANTED)
        if seconds is None:
            return default
        if seconds < kind.low:
            self.wrong(at, f"must be at least {format_duration(kind.low)}, is {shown(value)}")
        elif seconds > kind.high:
            most = "10 years" if kind.high == YEARS else format_duration(kind.high)
            self.wrong(at, f"must be at most {most}, is {shown(value)}")
        else:
            return seconds
        return default

    def _share(self, at: Path, value: object, kind: Share) -> float | None:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
        good = good and (value != 0 or kind.or_none)
        if good and not (kind.below_one and value == 1):
            return float(value)  # type: ignore[arg-type]
        most = "below 1" if kind.below_one else "up to 1"
        least = "from 0" if kind.or_none else "above 0"
        self.wrong(at, f"must be a number {least} and {most}, is {shown(value)}")
        return None

    def _place_of(self, at: Path, value: object) -> str | None:
        text = self.name(at, value)
        if not text:
            return None
        try:
            return str(self._home / FilePath(text).expanduser())
        except RuntimeError:
            self.wrong(at, f"starts with a home directory that is not known: {shown(text)}")
            return None

    def _endpoint(self, at: Path, value: object, kind: Endpoint) -> str | None:
        text = self.name(at, value)
        scheme, _, rest = text.partition("://")
        host, _, port = rest.rpartition(":")
        if scheme in kind.schemes and host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16:
            return text
        if text:
            options = " or ".join(f"{one}://HOST:PORT" for one in kind.schemes)
            self.wrong(at, f"must be {options}, is {shown(text)}")
        return None

    def _host_port(self, at: Path, value: object) -> str | None:
        text = self.name(at, value)
        host, _, port = text.rpartition(":")
        if host and "/" not in host and port.isascii() and port.isdecimal() and 0 < int(port) < 2**16:
            return text
        if text:
            self.wrong(at, f"must be HOST:PORT, is {shown(text)}")
        return None

    def _one_of(self, at: Path, value: object, kind: OneOf) -> str | None:
        if isinstance(value, str) and value in kind.choices:
            return value
        self.wrong(at, f"must be one of {', '.join(kind.choices)}, is {shown(value)}")
        return None

    def _number(self, at: Path, value: object, kind: Number) -> float | None:
        if isinstance(value, int | float) and not isinstance(value, bool) and kind.low <= value <= kind.high:
            return float(value)
        self.wrong(at, f"must be a number from {kind.low:g} to {kind.high:g}, is {shown(value)}")
        return None

    def _words(self, at: Path, value: object) -> list[str] | None:
        if not isinstance(value, list | tuple):
            self.wrong(at, f"must be a list of words, is {shown(value)}")
            return None
        return [self.name((*at, index), one) for index, one in enumerate(value)]

    def _address(self, at: Path, value: object) -> str | None:
        text = self.name(at, value)
        scheme, separator, rest = text.partition("://")
        if not text or text == ":memory:":
            return text or None
        if scheme in ("postgresql", "postgres") and separator:
            if rest.strip("/"):
                return text
            self.wrong(at, "must name a server or a database, such as postgresql://user@host/windlass")
        elif scheme == "sqlite" and rest.startswith("/") and len(rest) > 1:
            return self._place_of(at, rest[1:])
        elif separator:  # the rest may hold a password, so it is not repeated
            self.wrong(at, f"must be a path or a postgresql:// URL, is {shown(scheme + '://...')}")
        else:
            return self._place_of(at, text)
        return None

    def untouched(self, at: Path, value: Any) -> Any:
        """Return the data with text keys. A duplicate key is a mistake, because one of its values would be lost."""
        if isinstance(value, Mapping):
            entries = self.mapping(at, value)
            return {key: self.untouched((*at, key), one) for key, one in entries.items()}
        if isinstance(value, list | tuple):
            return [self.untouched((*at, index), one) for index, one in enumerate(value)]
        return value
