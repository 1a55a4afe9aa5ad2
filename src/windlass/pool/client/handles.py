"""Handle stands for a value that was sent to a pool once: ``handle = pool.put(value)``.

A handle in the arguments of a task, at any depth, is replaced by the value on the node. On one machine tasks read it
without a copy; to another machine it travels once for each node. The value is removed when no handle and no task holds
it.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from windlass.pool.errors import PoolClosed
from windlass.pool.transport.data_store import DataStore, load
from windlass.pool.transport.serialization import Shared, pack_shared


class Handle:
    """A value that a pool holds."""

    def __init__(self, store: DataStore, value: Any) -> None:
        name = store.put(pack_shared(value))
        self._shared = Shared(name, store.path(name))
        self._kind = type(value).__name__
        self._release = weakref.finalize(self, store.drop, name, keep=False)

    def get(self) -> Any:
        """Return a copy of the value in this process. ``PoolClosed`` if its pool is closed."""
        try:
            return load(self._shared.path)
        except FileNotFoundError:
            raise PoolClosed("the pool of this handle is closed, and the value was removed with it") from None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self._shared.__reduce__()

    def __repr__(self) -> str:
        return f"<handle of {self._kind}>"
