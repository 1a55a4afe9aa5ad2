"""Settings for the whole suite: property tests are repeatable, and judged by their answers, not by the clock."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "default", deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("deep", parent=settings.get_profile("default"), derandomize=False, max_examples=5000)
settings.load_profile(os.environ.get("WINDLASS_HYPOTHESIS", "default"))

# A shell that starts the suite in the background tells it to ignore Ctrl-C, and every program that a test starts would
# inherit that, among them those that a test ends so.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the browser tests last: Playwright keeps an event loop running, beside which no other one can be started."""
    items.sort(key=lambda item: item.get_closest_marker("browser") is not None)
