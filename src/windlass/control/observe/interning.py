"""InternedTable reuses the previous object when an observed item equals the last one.

Callers can then detect changes with ``is``. An item is validated once, when it is new. While nothing changes, the table
itself is the same object too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import compress, count
from operator import attrgetter, is_not
from typing import Any, Generic, TypeVar

from windlass.control.state.diff import updated

T = TypeVar("T")


class InternedTable(Generic[T]):
    """Holds the table of one kind of item."""

    def __init__(self, kind: type[T], name: str, whole: Callable[[Any], bool]) -> None:
        """``name``: the attribute with the name of an item. ``whole``: validates an item that is new."""
        self.table: Mapping[str, T] = {}
        self._kind, self._name, self._whole = kind, attrgetter(name), whole
        self._last: Sequence[Any] = ()
        """The last answer. Its items stay alive with it, so no other object can have their identities."""
        self._whole_last = False
        """Whether every item of it became an entry of the table."""

    def known(self, table: Mapping[str, T]) -> None:
        """Start from a known table."""
        self.table, self._last, self._whole_last = table, (), False

    def take(
        self, answer: Sequence[Any], strange: Callable[[Any], None], twice: Callable[[str], None]
    ) -> Mapping[str, T]:
        """Return the table of an answer. ``strange`` is called with each invalid item, ``twice`` with each repeated
        name: it raises, or the item is left out.
        """
        if answer is self._last and self._whole_last:
            return self.table
        last = answer if type(answer) is tuple else tuple(answer)
        found = self._by_news(last) if self._whole_last else None
        if found is None:
            found = self._one_by_one(last, strange, twice)
        self.table, self._last, self._whole_last = found, last, len(found) == len(last)
        return found

    def _by_news(self, answer: Sequence[Any]) -> Mapping[str, T] | None:
        """Update the table with the items that are new in this answer; None: an item is invalid or repeated."""
        fresh, over = news(self._last, answer)
        named: dict[str, T] = {}
        for one in fresh:
            known = self._known(one)
            if known is None:
                return None
            named[self._name(known)] = known
        gone = [name for name in map(self._name, over) if name not in named]
        if len(answer) != len(self.table) - len(gone) + sum([name not in self.table for name in named]):
            return None  # an item is repeated
        changed = {name: one for name, one in named.items() if self.table.get(name) is not one}
        return updated(self.table, changed, gone) if gone or changed else self.table

    def _one_by_one(
        self, answer: Sequence[Any], strange: Callable[[Any], None], twice: Callable[[str], None]
    ) -> Mapping[str, T]:
        found: dict[str, T] = {}
        for one in answer:
            known = self._known(one)
            if known is None:
                strange(one)
            elif self._name(known) in found:
                twice(self._name(known))
            else:
                found[self._name(known)] = known
        same = len(found) == len(self.table) and all(self.table.get(name) is one for name, one in found.items())
        return self.table if same else found

    def _known(self, one: Any) -> T | None:
        """Return the known object if it is equal to the item, else the item; None: it is invalid."""
        if not isinstance(one, self._kind):
            return None
        name = self._name(one)
        known = self.table.get(name) if type(name) is str else None
        if known is not None and (known is one or known == one):
            return known
        return one if self._whole(one) else None


def news(before: Sequence[Any], after: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the objects that are new in an answer, and those that are missing."""
    if len(before) == len(after):  # usually at the same positions
        changed = list(compress(count(), map(is_not, before, after)))
        if len(changed) < len(after) // 2:
            before, after = [before[at] for at in changed], [after[at] for at in changed]
    else:  # usually a few were appended, or removed somewhere
        head = _alike(before, after)
        before, after = before[head:], after[head:]
        tail = _alike(before[::-1], after[::-1])
        before, after = before[: len(before) - tail], after[: len(after) - tail]
    was, now = frozenset(map(id, before)), frozenset(map(id, after))
    return [one for one in after if id(one) not in was], [one for one in before if id(one) not in now]


def _alike(some: Sequence[Any], others: Sequence[Any]) -> int:
    """Return the length of the common prefix of identical objects."""
    return next(compress(count(), map(is_not, some, others)), min(len(some), len(others)))
