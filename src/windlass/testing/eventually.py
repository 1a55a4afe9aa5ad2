"""``eventually`` polls for a condition until a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new event loop and return its result."""
    return asyncio.run(coroutine)


async def a_moment() -> None:
    await asyncio.sleep(0.02)


async def eventually(
    read: Callable[[], Awaitable[T]],
    wanted: Callable[[T], object] = bool,
    *,
    within: float = 60.0,
    pass_time: Callable[[], Awaitable[None]] = a_moment,
) -> T:
    """Poll ``read`` until its value is ``wanted`` and return the value.

    Raises ``AssertionError`` with the last value after ``within`` seconds.
    """
    deadline = time.monotonic() + within
    while True:
        seen = await read()
        if wanted(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s; last value: {seen!r}")
        await pass_time()


async def refusal_of(call: Awaitable[object], kind: type[E]) -> E:
    """Return the error of this kind that a call raises. Other errors propagate; no error is an ``AssertionError``."""
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"the call did not raise {kind.__name__}")
