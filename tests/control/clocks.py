"""Virtual time for tests of the loop: the clock of the simulator, from zero on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from windlass.sim.run.virtual_loop import run_virtually

T = TypeVar("T")


def leap(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in virtual time."""
    return run_virtually(coroutine, start=0.0)


def now() -> float:
    """The time of the loop that runs."""
    return asyncio.get_running_loop().time()
