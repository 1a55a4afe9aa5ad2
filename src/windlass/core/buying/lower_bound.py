"""This module computes a lower bound on the number of slices to buy, so that the search stops at a plan that reaches
it.

Of each kind of resource there is so much free on what is there, and so much is needed. A task goes to one node, so what
a node has free is of use to the tasks that need an amount or more only if it has that much; and where all of these need
a multiple of some amount, only whole multiples are of use. What is missing then must be bought, and one slice brings no
more than the largest does.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from windlass.core.capacity.room import Ints, Need


def fewest_slices(free: Ints, slices: Ints, tasks: Iterable[tuple[Need, int]]) -> int:
    """New slices that it takes at least to run so many tasks of each need, whichever way they are placed.

    ``free``: a row for each node that is there. ``slices``: a row for each group, all hosts of a slice together.
    """
    wanted: dict[int, dict[int, int]] = {}
    for need, count in tasks:
        for column, amount in need.amounts():
            of_kind = wanted.setdefault(column, {})
            of_kind[amount] = of_kind.get(amount, 0) + count
    fewest = 0
    for column, counts in wanted.items():
        here, needed, unit = free[:, column], 0, 0
        for amount in sorted(counts, reverse=True):
            needed += amount * counts[amount]
            unit = gcd(unit, amount)
            missing = needed - int((here[here >= amount] // unit * unit).sum())
            if missing > 0:
                fewest = max(fewest, -(-missing // max(int(slices[:, column].max()), 1)))
    return fewest
