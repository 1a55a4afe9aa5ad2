"""This module defines the errors of a pool, one class for each kind that a caller would handle differently."""

from __future__ import annotations

from typing import TypeGuard

from windlass.pool.transport.serialization import (
    CannotSend,
    RemoteError,
    RemoteTraceback,
    ResultTooLarge,
    ResultUnreadable,
    ResultUnsendable,
    TaskExit,
)


class TaskError(Exception):
    """The task failed for a reason other than its own exception."""


class NodeLost(TaskError):
    """Its node went away under it, and its retries are used up."""


class TaskCrashed(NodeLost):
    """It ended the process that it ran in, again and again: by ``os._exit``, a segmentation fault or for want of
    memory. Its node is not harmed."""


class EngineLost(TaskError):
    """The pool's engine died and could not be started again."""


class TaskTimeout(TaskError, TimeoutError):
    """It ran for longer than its ``timeout``."""


class QueueTimeout(TaskError, TimeoutError):
    """It had not begun when its ``queue_timeout`` was over."""


class TaskBroken(TaskError):
    """It could not be run, or its result could not be brought back."""


class TaskCancelled(TaskError):
    """The task was cancelled."""


__all__ = [
    "BadPool",
    "CannotSend",
    "EngineLost",
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
    "TaskCrashed",
    "TaskError",
    "TaskExit",
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


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Whether it is a whole number between the two."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, least: float, most: float = 1e9) -> TypeGuard[float]:
    """Whether it is a number between the two."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
