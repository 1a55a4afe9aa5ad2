"""What can go wrong with a pool; a class for each kind that a caller would handle differently."""

from __future__ import annotations

from windlass.workloads.pool.packing import (
    CannotSend,
    RemoteError,
    RemoteTraceback,
    ResultTooLarge,
    ResultUnreadable,
    ResultUnsendable,
)
from windlass.workloads.pool.tasks import (
    NodeLost,
    QueueTimeout,
    TaskBroken,
    TaskCancelled,
    TaskError,
    TaskTimeout,
)

__all__ = [
    "BadPool",
    "CannotSend",
    "NoNodes",
    "NodeLost",
    "NothingFits",
    "PoolClosed",
    "PoolError",
    "QueueTimeout",
    "RemoteError",
    "RemoteTraceback",
    "ResultTooLarge",
    "ResultUnreadable",
    "ResultUnsendable",
    "TaskBroken",
    "TaskCancelled",
    "TaskError",
    "TaskTimeout",
]


class PoolError(Exception):
    """Something is wrong with the pool, not with a task."""


class BadPool(PoolError, ValueError):
    """The pool cannot be made as it is asked for; the text says which argument, and what it may be."""


class NothingFits(PoolError, ValueError):
    """A task needs what no group of the pool has."""


class PoolClosed(TaskError):
    """The pool is closed."""


class NoNodes(TaskError):
    """Nodes were started, and none of them ever came to work."""
