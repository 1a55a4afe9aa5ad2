"""This module names the command that installs an extra of Windlass."""

from __future__ import annotations


def install_command(extra: str) -> str:
    """Return the command, to be run in a clone of Windlass."""
    return f"pip install '.[{extra}]' (in your clone of Windlass)"
