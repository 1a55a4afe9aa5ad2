"""This module parses instants: ``10m ago``, ``14:02``, ``2026-03-01T14:02``."""

from __future__ import annotations

import re
import time
from datetime import datetime
from typing import Final

import click

from windlass.scenario.durations import parse_duration

WANTED: Final = "10m ago, 14:02, 14:02:30 or 2026-03-01T14:02"
_CLOCK = re.compile(r"(\d{1,2}):(\d\d)(?::(\d\d))?", re.ASCII)


def instant(text: str, now: float) -> float:
    """Return seconds since 1970; ``ValueError`` explains a wrong text. Without a zone it is local time."""
    words = text.strip()
    if words.endswith("ago"):
        try:
            return now - parse_duration(words.removesuffix("ago"))
        except ValueError:
            raise ValueError(f"{text!r} is not a time; write {WANTED}") from None
    try:
        if found := _CLOCK.fullmatch(words):
            hour, minute, second = (int(part or 0) for part in found.groups())
            today = datetime.fromtimestamp(now).astimezone()
            at = today.replace(hour=hour, minute=minute, second=second, microsecond=0).timestamp()
        else:
            at = datetime.fromisoformat(words).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r} is not a time; write {WANTED}") from None
    if at > now:
        raise ValueError(f"{text!r} is in the future; for another day write the date, such as 2026-03-01T14:02")
    return at


def read_instant(_context: click.Context, _option: click.Parameter, text: str | None) -> float | None:
    """The type of an option that takes an instant."""
    if text is None:
        return None
    try:
        return instant(text, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error)) from None
