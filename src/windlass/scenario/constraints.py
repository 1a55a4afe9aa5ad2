"""Reads where tasks may go: conditions, alternatives, classes and the constraints between tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.core.model.conditions import Condition, parse_condition
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.core.model.snapshot import Alternatives

from .groups import GroupReader
from .reader import Path, is_name, shown
from .schema import APART, MOST_TASKS, SPREAD, TOGETHER


class ConstraintReader(GroupReader):
    """Reads the parts of demands and bundles that say where their tasks may go."""

    def conditions(self, at: Path, value: object) -> tuple[Condition, ...]:
        found = []
        if isinstance(value, str):
            self.wrong(at, f"must be a list of conditions, is text; write [{shown(value)}]")
            return ()
        for index, one in enumerate(self.items(at, value, "conditions, such as ['zone == us-1a']")):
            here = (*at, index)
            if not isinstance(one, str):
                self.wrong(here, f"must be a condition such as 'zone == us-1a', is {shown(one)}; put it in quotes")
            elif not one.isprintable():
                self.wrong(here, f"must be a condition in one line, is {shown(one)}")
            elif (condition := self.parsed(here, one, parse_condition, "a condition")) is not None:
                found.append(condition)
        return tuple(found)

    def alternatives(self, at: Path, value: object) -> Alternatives:
        """``any_of``: a list of lists of conditions."""
        found = []
        for index, one in enumerate(
            self.items(at, value, "lists of conditions, such as [['zone == a'], ['zone == b']]")
        ):
            if isinstance(one, str):
                self.wrong((*at, index), f"must be a list of conditions, is text; write [{shown(one)}]")
            elif one is None:
                self.wrong((*at, index), "must be a list of conditions; write [] for one that matches all")
            else:
                found.append(self.conditions((*at, index), one))
        return tuple(found)

    def classes(self, at: Path, value: object) -> tuple[str, ...]:
        """``classes`` of a demand: a list of names."""
        if isinstance(value, str):
            self.wrong(at, f"must be a list of names, is text; write [{shown(value)}]")
            return ()
        names = [self.name((*at, index), one) for index, one in enumerate(self.items(at, value, "class names"))]
        return tuple(sorted({name for name in names if name}))

    def class_counts(self, at: Path, value: object) -> tuple[tuple[str, int], ...]:
        """``classes`` of a node: how many tasks of each run there."""
        if value is None:
            return ()
        found = {}
        for name, count in self.mapping(at, value, "a mapping of class names to counts, such as {web: 2}").items():
            if not is_name(name):
                self.wrong(at, f"has the class {shown(name)}, which must be visible text")
            elif number := self.integer((*at, name), count, 0, high=MOST_TASKS):
                found[name] = number
        return tuple(sorted(found.items()))

    def apart(self, at: Path, value: object) -> tuple[Apart, ...]:
        found = []
        for index, one in enumerate(self.items(at, value, "constraints, such as [{from: web, by: node}]")):
            here, fields = (*at, index), self.fields((*at, index), one, APART)
            at_most = self.integer((*here, "at_most"), fields.get("at_most"), 1, high=MOST_TASKS)
            if (names := self._names(here, fields, "from", "by")) is not None:
                found.append(Apart(*names, at_most))
        return tuple(found)

    def spread(self, at: Path, value: object) -> tuple[Spread, ...]:
        found = []
        for index, one in enumerate(self.items(at, value, "constraints, such as [{of: web, over: zone}]")):
            here, fields = (*at, index), self.fields((*at, index), one, SPREAD)
            skew = self.integer((*here, "max_skew"), fields.get("max_skew"), 1, low=1, high=MOST_TASKS)
            domains = self.integer((*here, "min_domains"), fields.get("min_domains"), 1, low=1, high=MOST_TASKS)
            if (names := self._names(here, fields, "of", "over")) is not None:
                found.append(Spread(*names, skew, domains))
        return tuple(found)

    def together(self, at: Path, value: object) -> tuple[Together, ...]:
        found = []
        for index, one in enumerate(self.items(at, value, "constraints, such as [{with: db, by: zone}]")):
            here, fields = (*at, index), self.fields((*at, index), one, TOGETHER)
            if (names := self._names(here, fields, "with", "by")) is not None:
                found.append(Together(*names))
        return tuple(found)

    def _names(self, at: Path, fields: Mapping[str, Any], *keys: str) -> tuple[str, str] | None:
        """Two names that are required; None if one is missing or wrong, which is recorded as a mistake."""
        first, second = (self.name((*at, key), fields[key]) if fields.get(key) is not None else "" for key in keys)
        return (first, second) if first and second else None
