"""``eventually`` polls for a condition until a deadline."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, on an event loop of its own."""
    return asyncio.run(coroutine)


async def a_moment() -> None:
    await asyncio.sleep(0.02)


async def eventually(
    look: Callable[[], Awaitable[T]],
    wanted: Callable[[T], object] = bool,
    *,
    within: float = 60.0,
    pass_time: Callable[[], Awaitable[None]] = a_moment,
) -> T:
    """What ``look`` gives, as soon as it is ``wanted``. An ``AssertionError`` with the last sight after ``within``."""
    deadline = time.monotonic() + within
    while True:
        seen = await look()
        if wanted(seen):
            return seen
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s; last seen: {seen!r}")
        await pass_time()


async def refusal_of(call: Awaitable[object], kind: type[E]) -> E:
    """The error of this kind with which a call is refused; any other goes through, and no error at all is one too."""
    try:
        await call
    except kind as error:
        return error
    raise AssertionError(f"it was not refused with {kind.__name__}")
