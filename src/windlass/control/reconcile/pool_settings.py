"""A workload with its own size rule, such as an elastic pool, overrides settings of the controller through this module.

The rule becomes minimums and scale-down rules of the groups, in the same pass and from the same observation as the
plan, and the settings in force go into the journal. Without a valid observation nothing is overridden.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from windlass.control.observe.validation import ValidView
from windlass.control.settings import Settings
from windlass.control.state.fleet import Fleet


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The effective settings."""

    settings: Settings
    due: float | None = None
    """When the settings may change without a new observation."""


OverrideSettings = Callable[[Settings, ValidView | None, Fleet, float], EffectiveSettings]
"""Takes the configured settings, the workload's view (None: unknown), the fleet before the pass, and the time."""


def unchanged_settings(settings: Settings, work: ValidView | None, fleet: Fleet, now: float) -> EffectiveSettings:  # noqa: ARG001
    """Return the settings unchanged."""
    return EffectiveSettings(settings)
