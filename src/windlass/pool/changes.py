"""What a pass of the controller changed, for people who watch a pool."""

from __future__ import annotations

from windlass.control.loop import Pass
from windlass.control.story import lines

TOLD = frozenset({"launch", "slice", "trouble", "refused"})
"""Kinds of journal entries that have a line; the first steps of a life have none, they are told by the launch."""
QUIET_STATES = (" requesting: ", " booting: ", " initializing: ", " terminating: ")


def changes_of(done: Pass) -> list[str]:
    """What a pass changed, in lines for people."""
    return [
        line.text
        for line in lines(done.entries)
        if line.kind in TOLD and (line.alarm or not any(state in line.text for state in QUIET_STATES))
    ]
