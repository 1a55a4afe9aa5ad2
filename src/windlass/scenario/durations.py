"""This module reads durations as people write them: ``90``, ``45s``, ``10m``, ``6h``, ``30d``."""

from __future__ import annotations

import re
from typing import Final

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
WANTED: Final = "seconds such as 90, or text such as 45s, 10m, 6h or 30d"

_TEXT = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s?([smhd]?)", re.ASCII)


def parse_duration(value: object) -> float:
    """Returns the duration in seconds; raises ``ValueError`` with the cause."""
    if isinstance(value, str):
        match = _TEXT.fullmatch(value.strip())
        if match is None:
            raise ValueError(f"must be {WANTED}, is {value[:40]!r}")
        return float(match[1]) * UNITS[match[2] or "s"]
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
        raise ValueError(f"must be {WANTED}, is {value}")
    return float(value)


def format_duration(seconds: float) -> str:
    """Formats a duration in the largest unit in which it is a whole number: ``90s``, ``15m``, ``30d``."""
    for unit in ("d", "h", "m"):
        if seconds and seconds % UNITS[unit] == 0:
            return f"{seconds / UNITS[unit]:g}{unit}"
    return f"{seconds:g}s"
