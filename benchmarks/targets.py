"""Checks a measurement against its target. A check is plain data, so that it can be stored and shown later."""

from __future__ import annotations

from typing import Any

Check = dict[str, Any]
"""``what``, ``measured`` (a number), ``shown`` (the same for people), ``target``, ``reached``."""


def below(what: str, measured: float, limit: float, unit: str = "", digits: int = 2) -> Check:
    """The measured number must be less than the limit."""
    return _check(what, measured, f"< {limit:g}", unit, digits, measured < limit)


def at_most(what: str, measured: float, limit: float, unit: str = "", digits: int = 2) -> Check:
    return _check(what, measured, f"<= {limit:g}", unit, digits, measured <= limit)


def at_least(what: str, measured: float, limit: float, unit: str = "", digits: int = 2, lower: bool = False) -> Check:
    """``lower``: the measured number is only known to be at least so large."""
    check = _check(what, measured, f">= {limit:g}", unit, digits, measured >= limit)
    if lower:
        check["shown"] = f"> {check['shown']}"
        # Below the target but only a lower bound: neither reached nor missed.
        check["reached"] = True if measured >= limit else None
    return check


def _check(what: str, measured: float, target: str, unit: str, digits: int, reached: bool) -> Check:
    space = " " if unit and unit != "x" else ""
    shown = f"{measured:,}" if isinstance(measured, int) else f"{measured:,.{digits}f}"
    return {
        "what": what,
        "measured": measured,
        "shown": f"{shown}{space}{unit}",
        "target": f"{target}{space}{unit}",
        "reached": bool(reached),
    }
