"""Room is the free space on a set of nodes; it implements the fit rule of the planner.

Every part of the planner that checks whether a task fits (placing on running nodes, filling a machine that could be
bought, explaining, consolidating) uses this module, so that no two parts can disagree.

A node is a row. Columns are resource kinds, in whole units (``quantities``). Accelerators are devices: a need below one
device takes a share of ONE device, a need of one or more takes whole free devices. So a row also holds how many devices
are whole, and the free part of each device in partial use. Shares go to the fullest device that still has room; opened
devices are never merged. Operations work on whole columns (numpy), so that ten thousand nodes cost little more than
ten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from windlass.core.model.quantities import ACCELERATORS, DEVICE

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

UNBOUNDED: Final = 2**40
"""The capacity for a need of nothing: above any count of a demand, small enough to be summed over all nodes."""


@dataclass(frozen=True, slots=True)
class Kinds:
    """The resource kinds of one snapshot, in name order: the columns of every table."""

    names: tuple[str, ...]
    column: Mapping[str, int]
    devices: tuple[int, ...]

    @classmethod
    def of(cls, names: Iterable[str]) -> Kinds:
        ordered = tuple(sorted(set(names)))
        column = {name: index for index, name in enumerate(ordered)}
        return cls(ordered, column, tuple(column[name] for name in ordered if name in ACCELERATORS))


@dataclass(frozen=True, slots=True)
class Need:
    """The needs of one task, in a form that is compared with the columns of a ``Room``."""

    plain: tuple[tuple[int, int], ...]
    """(column, amount) of ordinary resources."""
    whole: tuple[tuple[int, int, int], ...]
    """(device index, column, amount): whole devices."""
    shares: tuple[tuple[int, int, int], ...]
    """(device index, column, amount below one device): a share of one device."""
    unknown: tuple[str, ...]
    """Resources that no group has: such a need fits nowhere."""

    @classmethod
    def of(cls, needs: Mapping[str, int], kinds: Kinds) -> Need:
        plain, whole, shares, unknown = [], [], [], []
        for name, amount in sorted(needs.items()):
            if amount == 0:
                continue
            column = kinds.column.get(name)
            if column is None:
                unknown.append(name)
            elif column not in kinds.devices:
                plain.append((column, amount))
            elif amount < DEVICE:
                shares.append((kinds.devices.index(column), column, amount))
            else:
                whole.append((kinds.devices.index(column), column, amount))
        return cls(tuple(plain), tuple(whole), tuple(shares), tuple(unknown))

    def amounts(self) -> tuple[tuple[int, int], ...]:
        """(column, amount) of every kind that is needed."""
        devices = ((column, amount) for _, column, amount in (*self.whole, *self.shares))
        return (*self.plain, *devices)


class Room:
    """Free space, one row per node. Mutable: each plan has its own."""

    __slots__ = ("_log", "free", "kinds", "parts", "present", "total", "whole")

    def __init__(self, kinds: Kinds, total: Ints, free: Ints, present: Ints | None = None) -> None:
        """``present``: how many kinds each node has, at least 1; counted if it is not given."""
        self.kinds = kinds
        self.total = total
        self.free = free
        self.present = np.maximum((total > 0).sum(axis=1), 1) if present is None else present
        count, devices = total.shape[0], len(kinds.devices)
        self.whole = np.zeros((count, devices), np.int64)
        self.parts = np.zeros((count, devices, 0), np.int64)
        self._log: list[tuple[Ints | int, Ints, Ints, Ints]] | None = None
        for index, column in enumerate(kinds.devices):
            self._open_used(index, column)

    @classmethod
    def fresh(cls, kinds: Kinds, total: Ints) -> Room:
        """Returns the room of empty nodes."""
        return cls(kinds, total, total.copy())

    def _open_used(self, index: int, column: int) -> None:
        """Returns the room of nodes with this use, packed on as few devices as possible."""
        free = self.free[:, column]
        self.whole[:, index] = free // DEVICE * DEVICE
        rest = free % DEVICE
        if rest.any():
            self._widen(1)
            self.parts[:, index, 0] = rest

    def __len__(self) -> int:
        return len(self.total)

    def tables(self) -> tuple[Ints, ...]:
        return self.total, self.free, self.present, self.whole, self.parts

    def copy(self) -> Room:
        twin = object.__new__(Room)
        twin.kinds, twin.total, twin.present = self.kinds, self.total, self.present
        twin.free, twin.whole, twin.parts = self.free.copy(), self.whole.copy(), self.parts.copy()
        twin._log = None
        return twin

    def rows(self, rows: Ints) -> Room:
        """Returns a new room with these rows."""
        twin = object.__new__(Room)
        twin.kinds, twin._log = self.kinds, None
        twin.total, twin.present = self.total[rows], self.present[rows]
        twin.free, twin.whole, twin.parts = self.free[rows], self.whole[rows], self.parts[rows]
        return twin

    def repeated(self, times: int) -> Room:
        """Returns the same rows, repeated ``times`` times."""
        twin = object.__new__(Room)
        twin.kinds, twin._log = self.kinds, None
        twin.total, twin.free = np.tile(self.total, (times, 1)), np.tile(self.free, (times, 1))
        twin.present, twin.whole = np.tile(self.present, times), np.tile(self.whole, (times, 1))
        twin.parts = np.tile(self.parts, (times, 1, 1))
        return twin

    def append(self, other: Room) -> None:
        """Appends the rows of another room."""
        width = max(self.parts.shape[2], other.parts.shape[2])
        self._widen(width)
        parts = np.zeros((len(other), len(self.kinds.devices), width), np.int64)
        parts[:, :, : other.parts.shape[2]] = other.parts
        self.total = np.concatenate((self.total, other.total))
        self.free = np.concatenate((self.free, other.free))
        self.present = np.concatenate((self.present, other.present))
        self.whole = np.concatenate((self.whole, other.whole))
        self.parts = np.concatenate((self.parts, parts))

    def truncate(self, count: int) -> None:
        """Drops the rows from ``count`` on."""
        self.total, self.free, self.present = self.total[:count], self.free[:count], self.present[:count]
        self.whole, self.parts = self.whole[:count], self.parts[:count]

    def _widen(self, width: int) -> None:
        more = width - self.parts.shape[2]
        if more > 0:
            self.parts = np.pad(self.parts, ((0, 0), (0, 0), (0, more)))

    # -- the fit rule -----------------------------------------------------------------------------------------------

    def capacity(self, need: Need) -> Ints:
        """Returns how many tasks of this need fit on each node."""
        if need.unknown:
            return np.zeros(len(self), np.int64)
        result: Ints | None = None
        for column, amount in need.plain:
            fits = self.free[:, column] // amount
            result = fits if result is None else np.minimum(result, fits)
        for index, _, amount in need.whole:
            fits = self.whole[:, index] // amount
            result = fits if result is None else np.minimum(result, fits)
        for index, _, amount in need.shares:
            fits = self.whole[:, index] // DEVICE * (DEVICE // amount)
            if self.parts.shape[2]:
                fits = fits + (self.parts[:, index, :] // amount).sum(axis=1)
            result = fits if result is None else np.minimum(result, fits)
        return np.full(len(self), UNBOUNDED, np.int64) if result is None else result

    def left_share(self, need: Need, rows: Ints) -> Floats:
        """Returns what each of these nodes would have left after one more such task: the mean share over its kinds."""
        left = self.free[rows]
        for column, amount in need.amounts():
            left[:, column] -= amount
        total = self.total[rows]
        shares = np.divide(left, total, out=np.zeros(left.shape), where=total > 0)
        return np.asarray(shares.sum(axis=1) / self.present[rows])

    def take(self, need: Need, rows: Ints, counts: Ints) -> None:
        """Places ``counts`` tasks on ``rows`` (each row at most once); they must fit."""
        if self._log is not None:
            self._log.append((rows, self.free[rows], self.whole[rows], self.parts[rows]))
        # One row is by far the most frequent case, and much faster as a number than as an array of one.
        at, many = (int(rows[0]), int(counts[0])) if len(rows) == 1 else (rows, counts)
        for column, amount in need.amounts():
            self.free[at, column] -= amount * many
        for index, _, amount in need.whole:
            self.whole[at, index] -= amount * many
        for index, _, amount in need.shares:
            self._take_shares(index, amount, rows, counts)

    def take_all(self, need: Need, counts: Ints) -> None:
        """Places ``counts`` tasks on the rows, one number for each row; they must fit. Not logged for ``undo``."""
        for column, amount in need.amounts():
            self.free[:, column] -= amount * counts
        for index, _, amount in need.whole:
            self.whole[:, index] -= amount * counts
        for index, _, amount in need.shares:
            rows = np.flatnonzero(counts)
            self._take_shares(index, amount, rows, counts[rows])

    def put(self, rows: Ints, other: Room) -> None:
        """Makes ``rows`` as free as the rows of another room."""
        if self._log is not None:
            self._log.append((rows, self.free[rows], self.whole[rows], self.parts[rows]))
        self._widen(other.parts.shape[2])
        self.free[rows], self.whole[rows] = other.free, other.whole
        self._put_parts(rows, other.parts)

    def _put_parts(self, rows: Ints | int, parts: Ints) -> None:
        """Returns opened devices right-aligned in each row, zeros before them."""
        more = self.parts.shape[2] - parts.shape[-1]
        if more:
            self.parts[rows, :, :more] = 0
        self.parts[rows, :, more:] = parts

    def _take_shares(self, index: int, amount: int, rows: Ints, counts: Ints) -> None:
        parts, opened = share_devices(self.parts[rows, index, :], np.full(len(rows), amount), counts)
        self.whole[rows, index] -= opened * DEVICE
        self._widen(parts.shape[1])
        more = self.parts.shape[2] - parts.shape[1]
        if more:
            self.parts[rows, index, :more] = 0
        self.parts[rows, index, more:] = parts

    # -- undoing ----------------------------------------------------------------------------------------------------

    def mark(self) -> tuple[int, int]:
        """Returns a state to which ``undo`` can roll back; from here on every change is logged."""
        if self._log is None:
            self._log = []
        return len(self._log), len(self)

    def undo(self, mark: tuple[int, int]) -> None:
        """Rolls back to the state at ``mark``: later rows are removed, later placements are freed."""
        entries, rows = mark
        assert self._log is not None
        while len(self._log) > entries:
            touched, free, whole, parts = self._log.pop()
            self.free[touched], self.whole[touched] = free, whole
            self._put_parts(touched, parts)
        self.truncate(rows)

    def forget(self) -> None:
        """Discards the log: nothing before this point will be undone."""
        self._log = None


def share_devices(parts: Ints, share: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Places shares on devices; returns what is left on opened devices, and how many whole ones were opened, per node.

    ``counts`` shares of ``share`` each go to the fullest opened device that has room, then to whole devices that are
    opened for them. ``parts`` is what opened devices have left, the fullest first; 0 is no device.
    """
    fits = parts // share[:, None]
    taken = np.clip(counts[:, None] - (np.cumsum(fits, axis=1) - fits), 0, fits)
    parts = parts - taken * share[:, None]
    left = counts - taken.sum(axis=1)
    per_device = DEVICE // share
    opened = -(-left // per_device)
    place = np.arange(int(opened.max(initial=0)))
    on_it = np.clip(left[:, None] - place * per_device[:, None], 0, per_device[:, None])
    rest = np.where(place < opened[:, None], DEVICE - on_it * share[:, None], 0)
    parts = np.sort(np.concatenate((parts, rest), axis=1), axis=1)
    return parts[:, int((parts == 0).all(axis=0).sum()) :], opened


def at_end(parts: Ints, width: int) -> Ints:
    """Right-aligns the columns in a block of ``width``, zeros before them."""
    return np.pad(parts, ((0, 0), (width - parts.shape[1], 0)))


def amounts_matrix(rows: Sequence[Mapping[str, int]], kinds: Kinds) -> Ints:
    """Returns one row per mapping, one column per kind."""
    matrix = np.zeros((len(rows), len(kinds.names)), np.int64)
    for position, row in enumerate(rows):
        for name, amount in row.items():
            matrix[position, kinds.column[name]] = amount
    return matrix
