"""The command that installs an optional part of Windlass."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """What to type where the clone of Windlass is."""
    return f"pip install '.[{extra}]' (in your clone of Windlass)"
