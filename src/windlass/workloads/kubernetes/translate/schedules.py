"""This module reads durations and cron schedules of API objects."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_FIELDS: Final = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LONGEST_WINDOW: Final = 366 * 86400
"""Seconds for which the start of a window is searched: every schedule but one of a leap day opens once a year."""


def duration(text: str) -> float:
    """Parse ``10m``, ``1h30m`` or ``45s`` as seconds, the parts in any order; ``ValueError`` for anything else."""
    if _DURATION.fullmatch(text.strip()) is None:
        raise ValueError(f"must be a duration such as 90s, 10m or 1h30m, is {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))


def cron(text: str) -> tuple[frozenset[int], ...]:
    """Return the minutes, hours, days, months and weekdays of a schedule; ``ValueError`` if it is not valid."""
    parts = _NAMED.get(text.strip(), text).split()
    if len(parts) != 5:
        raise ValueError(f"must have five fields such as '0 9 * * mon-fri', is {text!r}")
    fields = [
        _field(part, low, high, place) for place, (part, (low, high)) in enumerate(zip(parts, _FIELDS, strict=True))
    ]
    fields[4] = frozenset(day % 7 for day in fields[4])
    return tuple(fields)


_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def _field(text: str, low: int, high: int, place: int) -> frozenset[int]:
    names = {name: number for number, name in enumerate(_MONTHS, 1)} if place == 3 else {}
    names |= {name: number for number, name in enumerate(_DAYS)} if place == 4 else {}
    found: set[int] = set()
    for part in text.lower().split(","):
        span, _, step = part.partition("/")
        first, _, last = span.partition("-")
        try:
            start = low if first == "*" else names.get(first) if first in names else int(first)
            end = high if first == "*" else (names[last] if last in names else int(last)) if last else start
            stride = int(step) if step else 1
        except ValueError:
            raise ValueError(f"has a field that is not a number, range or list: {part!r}") from None
        assert start is not None
        assert end is not None
        if step and not last and first != "*":
            end = high
        if not low <= start <= end <= high or stride < 1:
            raise ValueError(f"has a field outside {low}-{high}: {part!r}")
        found |= set(range(start, end + 1, stride))
    return frozenset(found)


def is_open(schedule: str, length: float, now: float) -> bool:
    """Whether a window that opens by a schedule (UTC) and lasts ``length`` seconds is open."""
    minutes, hours, days, months, weekdays = cron(schedule)
    any_day, any_weekday = days == frozenset(range(1, 32)), weekdays == frozenset(range(7))
    at = datetime.fromtimestamp(now, UTC).replace(second=0, microsecond=0)
    oldest = datetime.fromtimestamp(now - min(length, LONGEST_WINDOW), UTC)
    while at > oldest:
        day, weekday = at.day in days, (at.weekday() + 1) % 7 in weekdays
        # By cron's rule a day field and a weekday field that are both restricted are alternatives.
        fits = (day and weekday) if any_day or any_weekday else (day or weekday)
        if not fits or at.month not in months:
            at = at.replace(hour=0, minute=0) - timedelta(minutes=1)
        elif at.hour not in hours:
            at = at.replace(minute=0) - timedelta(minutes=1)
        elif at.minute not in minutes:
            at -= timedelta(minutes=1)
        else:
            return True
    return False
