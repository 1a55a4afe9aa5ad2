"""This module defines the errors of a pool, one class for each kind that a caller would handle differently."""

from __future__ import annotations

from concurrent.futures import CancelledError
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
    """The node of the task was lost while it ran, and the retries are used up."""


class TaskCrashed(NodeLost):
    """The task ended its own process in every run: by ``os._exit``, a segmentation fault or because memory ran out. Its
    node is not affected."""


class EngineLost(TaskError):
    """The pool's engine died and could not be started again."""


class TaskTimeout(TaskError, TimeoutError):
    """The task ran for longer than its ``timeout``."""


class QueueTimeout(TaskError, TimeoutError):
    """The task had not begun when its ``queue_timeout`` was over."""


class TaskBroken(TaskError):
    """The task could not be run, or its result could not be sent back."""


class TaskCancelled(TaskError, CancelledError):
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
    """The arguments of a pool or a task are wrong; the text names the argument and its allowed values."""


class NothingFits(PoolError, ValueError):
    """A task needs resources that no group of the pool has."""


class PoolClosed(TaskError):
    """The pool is closed."""


class NoNodes(TaskError):
    """Nodes were started, and none of them joined."""


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Return whether a value is a whole number between two bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, least: float, most: float = 1e9) -> TypeGuard[float]:
    """Return whether a value is a number between two bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
