"""This module computes a lower bound on the number of slices to buy; the search stops at a plan that reaches it.

For each resource it compares the amount needed with the amount free on existing nodes. A task runs on one node, so the
free amount of a node counts for tasks of a given size only if at least that much is free there; if all these tasks need
multiples of one amount, only whole multiples count. The rest must be bought, and one slice adds at most what the
largest slice has.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from windlass.core.capacity.room import Ints, Need


def fewest_slices(free: Ints, slices: Ints, tasks: Iterable[tuple[Need, int]]) -> int:
    """Returns the least number of new slices with which the given tasks can run, however they are placed.

    ``free`` has a row for each existing node, ``slices`` a row for each group with all hosts of a slice together.
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
