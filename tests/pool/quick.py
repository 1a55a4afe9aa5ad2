"""A pool on the in-process engine, in real time: for tests of what a user sees."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import windlass as wl
from windlass.testing.fake_engine import FakeEngine

from .worlds import Machines


@contextmanager
def quick_pool(nodes: Any = 1, **more: Any) -> Iterator[wl.ComputePool]:
    engine = FakeEngine()
    with wl.ComputePool(Machines(engine, boot=0.0), nodes, engine=engine, **{"console": False, **more}) as pool:
        yield pool
