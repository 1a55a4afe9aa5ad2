"""Fixtures of tests with real Ray heads: one head per version, and one driver on it, for the whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.workloads.ray_stage import Driver, RayHead


@pytest.fixture(scope="package")
def shared_head() -> Iterator[Callable[[str], tuple[RayHead, Driver]]]:
    """Give the head and the driver of a version; they start when they are first asked for."""
    started: dict[str, tuple[RayHead, Driver]] = {}

    def of(which: str) -> tuple[RayHead, Driver]:
        if which not in started:
            head = RayHead(which)
            try:
                started[which] = head.start(), head.driver()
            except BaseException:
                head.stop()
                raise
        return started[which]

    yield of
    for head, driver in started.values():
        driver.close()
        head.stop()
