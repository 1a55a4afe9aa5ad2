"""The slices of a snapshot by id, and who of them is simply at work.

Where the same slices come again, only those that are other objects now are looked at (``recent``): a plan costs by what
has changed.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, count, islice, repeat
from operator import attrgetter, is_, is_not
from typing import Final

from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Slice

from .memo import Recent

FEW: Final = 32
"""Fewer slices are looked at faster than they are recognized."""

CHANGED: Final = 10
"""One slice in so many may have changed: with more it is faster to look at all of them."""

_ID: Final = attrgetter("id")
_WORKS_IN: Final = attrgetter("works_in")


@dataclass(frozen=True, slots=True)
class Muster:
    """Slices in the order of their ids; the place of each is its number in it."""

    given: tuple[Slice, ...]
    """As they came."""
    slices: tuple[Slice, ...]
    works_in: list[str | None]
    """For each place the group that the slice is simply at work in; None: there is more to say about it."""
    at_work: Mapping[str, int]
    """How many are simply at work in each group."""
    others: list[int]
    """The places of all others, in order."""
    standing: Mapping[tuple[str, State], list[int]]
    """The same by group and state."""

    @classmethod
    def of(cls, given: tuple[Slice, ...]) -> Muster:
        slices = tuple(sorted(given, key=_ID))
        return cls._with(given, slices, list(map(_WORKS_IN, slices)))

    @classmethod
    def _with(cls, given: tuple[Slice, ...], slices: tuple[Slice, ...], works_in: list[str | None]) -> Muster:
        others = list(compress(count(), map(is_, works_in, repeat(None))))
        at_work = Counter([name for name in works_in if name is not None])
        return cls(given, slices, works_in, at_work, others, _standing(slices, others))

    def within(self, groups: Container[str]) -> Muster:
        """The same where there are only these groups: who works in another one is looked at like all others."""
        if all(group in groups for group in self.at_work):
            return self
        return self._with(self.given, self.slices, [name if name in groups else None for name in self.works_in])

    def after(self, given: tuple[Slice, ...]) -> Muster | None:
        """The muster of slices that came as these did, but for a few that are other objects now; None: they did not."""
        changed = few_changes(self.given, given)
        if not changed:
            return None if changed is None else self
        slices, works_in = list(self.slices), self.works_in.copy()
        at_work, others = dict(self.at_work), self.others.copy()
        for index in changed:
            old, new = self.given[index], given[index]
            place = bisect_left(self.slices, old.id, key=_ID)
            if new.id != old.id or self.slices[place] is not old:
                return None
            was, now = works_in[place], new.works_in
            slices[place], works_in[place] = new, now
            if was == now:
                continue
            if was is None:
                del others[bisect_left(others, place)]
            else:
                at_work[was] -= 1
            if now is None:
                insort(others, place)
            else:
                at_work[now] = at_work.get(now, 0) + 1
        return Muster(given, tuple(slices), works_in, at_work, others, _standing(slices, others))


def few_changes(before: tuple[Slice, ...], after: tuple[Slice, ...]) -> list[int] | None:
    """The places at which another object is now; None: more than a few have changed, or there are more or fewer."""
    if len(before) != len(after):
        return None
    most = len(after) // CHANGED
    changed = list(islice(compress(count(), map(is_not, before, after)), most + 1))
    return None if len(changed) > most else changed


def _standing(slices: Sequence[Slice], others: Iterable[int]) -> Mapping[tuple[str, State], list[int]]:
    found: dict[tuple[str, State], list[int]] = {}
    for place in others:
        item = slices[place]
        found.setdefault((item.group, item.state), []).append(place)
    return found


_RECENT: Final = Recent[Muster](2)
"""A loop asks about one set of slices, and a plan that tries other ways also about a part of it."""


def muster_of(slices: tuple[Slice, ...]) -> Muster:
    """The muster of slices that come in any order. Nobody may write to it."""
    if len(slices) < FEW:
        return Muster.of(slices)
    return _RECENT(lambda before: before.after(slices), lambda: Muster.of(slices))
