"""The master linear program finds how many slices of each known pattern cover all tasks at the least cost, with
fractions.

It is a small dense revised simplex to which patterns can be added. Rows are shapes (at least ``counts`` tasks each)
and, after them, the groups whose limit may bind (at most ``headroom`` slices each). The dual prices of the rows at the
optimum are the cost of one more task of each shape; they guide the search for better patterns. The first basis is
always feasible (every shape on slices of its own, or unserved at a very high price), so there is no first phase.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from windlass.core.capacity.room import Floats, Ints

TOLERANCE: Final = 1e-7
"""A pattern enters if it saves more than this share of its price: a smaller saving is rounding noise."""

PIVOT: Final = 1e-7
"""Smaller entries of a direction are rounding noise; a pivot on one would make the basis singular."""

JITTER: Final = 1e-7
"""Counts are raised by up to this share, each differently, because ties in the ratio test make the simplex stall."""

DIGITS: Final = 9
TIE: Final = 1e-10
"""Numbers that differ by less are equal, and the first one wins: sums in another order (other threads, another
processor) must not lead to another mix."""

SHORTLIST: Final = 100
"""Number of patterns, the best of all, that are priced at every pivot: pricing all of them costs more than the
pivot."""

DEFER: Final = 48
"""Number of pivots that are kept as a list before they are applied to the inverse together: one product of matrices is
ten times faster."""

REFACTOR: Final = 2000
"""Number of pivots between two inversions of the basis: after 1000 the errors were below 1e-10 with 446 shapes."""


class LinearProgram:
    """Minimise ``price @ x`` with ``patterns.T @ x >= counts``, ``x`` of a limited group at most its headroom."""

    def __init__(self, counts: Floats, limits: Floats) -> None:
        self.shapes = len(counts)
        right = np.concatenate((counts, limits))
        rows = len(right)
        # Multiples of the golden ratio, modulo 1: spread evenly, without randomness.
        self.right: Floats = right * (1.0 + JITTER * (np.arange(1, rows + 1) * 0.6180339887498949 % 1.0))
        # Columns are nearly empty: [column, entry] the rows and the non-zero numbers, padded with 0 * row 0.
        self._at: Ints = np.zeros((0, 1), np.int64)
        self._by: Floats = np.zeros((0, 1))
        self.price: Floats = np.zeros(0)
        self.basis: Ints = np.zeros(0, np.int64)
        self._inverse: Floats = np.eye(rows)
        # The inverse is really ``_inverse - _left.T @ _right`` over the first ``_pending`` rows of both.
        self._left: Floats = np.zeros((DEFER, rows))
        self._right: Floats = np.zeros((DEFER, rows))
        self._pending = 0
        self.level: Floats = self.right.copy()
        self.duals: Floats = np.zeros(rows)
        self._pivots = 0
        self._lasting = 0
        self._sound: Ints = self.basis

    def add(self, columns: Floats, price: Floats) -> None:
        """Adds patterns [column, row]."""
        where, rows = np.nonzero(columns)
        filled = np.bincount(where, minlength=len(columns))
        width = max(self._at.shape[1], int(filled.max(initial=0)))
        entry = np.arange(len(where)) - np.repeat(np.cumsum(filled) - filled, filled)
        at, by = np.zeros((len(columns), width), np.int64), np.zeros((len(columns), width))
        at[where, entry], by[where, entry] = rows, columns[where, rows]
        if width > self._at.shape[1]:
            wider = ((0, 0), (0, width - self._at.shape[1]))
            self._at, self._by = np.pad(self._at, wider), np.pad(self._by, wider)
        self._at, self._by = np.concatenate((self._at, at)), np.concatenate((self._by, by))
        self.price = np.concatenate((self.price, price))

    def columns(self, which: Ints) -> Floats:
        """[column, row]: some of the patterns, written out."""
        result = np.zeros((len(which), len(self.right)))
        np.add.at(result, (np.arange(len(which))[:, None], self._at[which]), self._by[which])
        return result

    def _savings(self) -> Floats:
        """Returns what each pattern saves at the present dual prices, as a share of its own price."""
        worth = (self.duals[self._at] * self._by).sum(axis=1)
        return np.asarray(np.round((worth - self.price) / _scale(self.price), DIGITS))

    def start(self, basis: Ints) -> None:
        """Starts with this basis, which must be feasible; known columns are kept."""
        self.basis = basis
        self._lasting = len(self.price)
        self._refactor()

    def _refactor(self) -> None:
        """Inverts the basis again; if rounding has made it singular, restores the last regular one."""
        try:
            self._inverse = np.linalg.inv(self.columns(self.basis).T).astype(np.float64)
        except np.linalg.LinAlgError:
            self.basis = self._sound.copy()
            self._inverse = np.linalg.inv(self.columns(self.basis).T).astype(np.float64)
        self._sound = self.basis.copy()
        self.level = np.maximum(self._inverse @ self.right, 0.0)
        self.duals = self.price[self.basis] @ self._inverse
        self._pivots = self._pending = 0

    def solve(self, pivots: int) -> int:
        """Improves by at most this many pivots; returns how many were made."""
        done = 0
        while done < pivots:
            saving = self._savings()
            best = np.flatnonzero(saving > TOLERANCE)
            best = best[np.argsort(-saving[best], kind="stable")[:SHORTLIST]]
            made = self._solve_among(best, pivots - done)
            done += made
            if not made:
                break
        return done

    def _solve_among(self, shortlist: Ints, pivots: int) -> int:
        columns, price = self.columns(shortlist), self.price[shortlist]
        scale = _scale(price)
        barred = np.zeros(len(shortlist))
        for done in range(pivots if len(shortlist) else 0):
            saving = np.round((columns @ self.duals - price) / scale, DIGITS) - barred
            entering = int(saving.argmax())
            if saving[entering] <= TOLERANCE:
                return done
            column = columns[entering]
            direction = self._times_inverse(column)
            possible = np.flatnonzero(direction > PIVOT)
            if not len(possible):  # cannot happen in exact arithmetic: a column with unlimited savings
                barred[entering] = np.inf
                continue
            pivots_there = direction[possible]
            ratio = self.level[possible] / pivots_there
            step = float(ratio.min())
            # Among equals the largest pivot, for numerical stability.
            chosen = int(np.where(ratio <= step + TIE, np.round(pivots_there, DIGITS), -1.0).argmax())
            leaving = int(possible[chosen])
            cost = float(price[entering] - column @ self.duals)
            self._pivot(int(shortlist[entering]), leaving, direction, float(ratio[chosen]), cost)
        return pivots if len(shortlist) else 0

    def _pivot(self, entering: int, leaving: int, direction: Floats, step: float, cost: float) -> None:
        row = self._inverse[leaving] - self._left[: self._pending, leaving] @ self._right[: self._pending]
        row /= direction[leaving]
        self.duals += cost * row
        self._left[self._pending] = direction
        self._left[self._pending, leaving] -= 1.0
        self._right[self._pending] = row
        self._pending += 1
        self.level -= step * direction
        np.maximum(self.level, 0.0, out=self.level)
        self.level[leaving] = step
        self.basis[leaving] = entering
        self._pivots += 1
        if self._pivots >= REFACTOR:
            self._refactor()
        elif self._pending == DEFER:
            self._inverse -= self._left.T @ self._right
            self._pending = 0

    def _times_inverse(self, column: Floats) -> Floats:
        some = np.flatnonzero(column)
        late = self._right[: self._pending, some] @ column[some]
        return np.asarray(self._inverse[:, some] @ column[some] - late @ self._left[: self._pending])

    def forget(self, keep: int) -> Ints:
        """Drops the patterns outside the basis that save the least, down to ``keep``; returns which patterns stay."""
        keep += self._lasting
        if len(self.price) <= keep:
            return np.arange(len(self.price))
        saving = self._savings()
        saving[self.basis] = np.inf
        saving[self._sound] = np.inf
        saving[: self._lasting] = np.inf
        stay: Ints = np.sort(np.argsort(-saving, kind="stable")[:keep])
        place = np.full(len(self.price), -1, np.int64)
        place[stay] = np.arange(len(stay))
        self._at, self._by, self.price = self._at[stay], self._by[stay], self.price[stay]
        self.basis = place[self.basis]
        self._sound = place[self._sound]
        return stay


def _scale(price: Floats) -> Floats:
    """Returns the denominator of savings: the price, or 1 for a column without a price (a surplus, a slack)."""
    return np.where(price > 0.0, price, 1.0)
