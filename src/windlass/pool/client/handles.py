"""Handle stands for a value that was sent to a pool once: ``handle = pool.put(value)``.

Given to a task, at any depth of its arguments, it is the value there. On one machine tasks read it without a copy; to
another machine it travels once for each node. It is dropped when no handle and no task holds it any more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from windlass.pool.transport.data_store import DataStore, load
from windlass.pool.transport.serialization import Shared, pack_shared


class Handle:
    """A value that a pool holds."""

    def __init__(self, store: DataStore, value: Any) -> None:
        name = store.put(pack_shared(value))
        self._shared = Shared(name, store.path(name))
        self._kind = type(value).__name__
        self._release = weakref.finalize(self, store.drop, name)

    def get(self) -> Any:
        """Return the value here, as a copy of its own."""
        return load(self._shared.path)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._shared.__reduce__()

    def __repr__(self) -> str:
        return f"<handle of {self._kind}>"
