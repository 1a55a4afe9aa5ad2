"""``Completed`` is an awaitable that already has its result.

A source in the same process returns it instead of a coroutine, which saves the cost of an asyncio task: that costs more
than most in-process observations.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class Completed(Coroutine[Any, Any, T]):
    """A coroutine that has already ended."""

    __slots__ = ("answer",)

    def __init__(self, answer: T) -> None:
        self.answer = answer

    def send(self, value: Any) -> Any:  # noqa: ARG002
        raise StopIteration(self.answer)

    def throw(self, kind: Any, value: Any = None, trace: Any = None) -> Any:
        return super().throw(kind, value, trace)

    def close(self) -> None:
        """Do nothing: the coroutine has already ended."""

    def __await__(self) -> Generator[Any, Any, T]:
        yield from ()
        return self.answer
