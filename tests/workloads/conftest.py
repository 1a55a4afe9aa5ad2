"""Fixtures of tests with real Ray heads: one head per version, and one driver on it, for the whole run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.workloads.ray_stage import SharedHeads


@pytest.fixture(scope="package")
def shared_heads() -> Iterator[SharedHeads]:
    """Give the head and the driver of a version; they start when they are first asked for."""
    heads = SharedHeads()
    try:
        yield heads
    finally:
        heads.stop()
