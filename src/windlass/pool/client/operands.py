"""This module writes the error message for a user who sends something other than a task to a pool."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any, Final

from .api import Compute, Sendable, Task

_SHORT: Final = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = 60


def no_task(value: Any, operator: str) -> str:
    """Return why ``value`` cannot be sent with an operator, and what to write."""
    if isinstance(value, Sendable):
        return (
            f"{value!r} cannot be sent with {operator}: a gang runs on as many nodes as it has members, and many tasks "
            "wherever there is room. Write tasks >> pool"
        )
    if isinstance(value, Compute):
        return f"{value.name} has not been called: write {value.name}(...) {operator} pool"
    if callable(value) and hasattr(value, "__name__"):
        name = value.__name__
        return (
            f"{name} is a plain function and has not been called: decorate it with @compute and write {name}(...) "
            f"{operator} pool; or, as it is, pool.submit({name}, ...)"
        )
    if isinstance(value, list | tuple | set) and value and all(isinstance(one, Task) for one in value):
        return _unpack(f"a {type(value).__name__} of {len(value)} tasks", operator)
    if isinstance(value, Iterable) and type(value).__name__ in ("generator", "map", "list", "tuple"):
        return _unpack(f"a {type(value).__name__}", operator)
    return (
        f"{_SHORT.repr(value)} is a value of type {type(value).__name__}, not a task: if it is the result of "
        f"a call, the function has already run here. To run it on the pool decorate it with @compute, and write "
        f"function(...) {operator} pool"
    )


def _unpack(what: str, operator: str) -> str:
    return f"{what} is not a task: write gather(*tasks) {operator if operator != '@' else '>>'} pool"
