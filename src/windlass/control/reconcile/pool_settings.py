"""Steering: how the settings are meant in view of what was just seen.

A workload with a rule of its own about its size (an elastic pool) is no planner beside the planner: its rule turns into
floors and release rules of the groups, in the same pass and from the same look as the plan that obeys them, and what is
in force goes into the journal like any other settings. Without a view nothing is known, and nothing is steered anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windlass.control.observe.validation import ValidView
from windlass.control.settings import Settings
from windlass.control.state.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Steered:
    """Settings as they are meant now."""

    settings: Settings
    due: float | None = None
    """When they may be meant otherwise although nothing happens."""


Steer = Callable[[Settings, ValidView | None, Fleet, float], Steered]
"""Given what was told, what the workload shows (None: unknown), the book before the pass, and the time."""


def as_told(settings: Settings, work: ValidView | None, fleet: Fleet, now: float) -> Steered:  # noqa: ARG001
    """Nobody steers."""
    return Steered(settings)
