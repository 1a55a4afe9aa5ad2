"""An event loop whose time stands still while anything happens, and leaps to the next thing that is due."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Leaping(selectors.SelectSelector):
    """Instead of waiting it moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("nothing is due and nothing can happen any more")
        self.passed += max(0.0, timeout)
        return super().select(0)


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop on virtual time. What is given to a thread is done at once."""

    def __init__(self) -> None:
        self.clock = _Leaping()
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.passed

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> Any:
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  # handed on to whoever waits for it
            future.set_exception(error)
        return future


def leap(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in virtual time."""
    with asyncio.Runner(loop_factory=LeapingLoop) as runner:
        return runner.run(coroutine)


def now() -> float:
    """The time of the loop that runs."""
    return asyncio.get_running_loop().time()
