"""This module writes the error message for a user who sends something other than a task to a pool."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable
from typing import Any, Final

from .api import Compute, Sendable, Task

_SHORT: Final = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 60


def no_task(given: Any, operator: str) -> str:
    """Return why ``given`` cannot be sent with an operator, and what to write."""
    if isinstance(given, Sendable):
        return (
            f"{given!r} cannot be sent with {operator}: a gang runs on as many nodes as it has members, and many tasks "
            "wherever there is room. Write tasks >> pool"
        )
    if isinstance(given, Compute):
        return f"{given.name} has not been called: write {given.name}(...) {operator} pool"
    if isinstance(given, Callable) and hasattr(given, "__name__"):  # type: ignore[arg-type]
        name = given.__name__
        return (
            f"{name} is a plain function and has not been called: decorate it with @compute and write {name}(...) "
            f"{operator} pool; or, as it is, pool.submit({name}, ...)"
        )
    if isinstance(given, list | tuple | set) and given and all(isinstance(one, Task) for one in given):
        return _unpack(f"a {type(given).__name__} of {len(given)} tasks", operator)
    if isinstance(given, Iterable) and type(given).__name__ in ("generator", "map", "list", "tuple"):
        return _unpack(f"a {type(given).__name__}", operator)
    return (
        f"{_SHORT.repr(given)} is a value of type {type(given).__name__}, not a task: if it is the result of "
        f"a call, the function has already run here. To run it on the pool decorate it with @compute, and write "
        f"function(...) {operator} pool"
    )


def _unpack(what: str, operator: str) -> str:
    return f"{what} is not a task: write gather(*tasks) {operator if operator != '@' else '>>'} pool"
