"""This module reads where tasks may go: conditions, alternatives, classes and constraints between tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from windlass.core.model.conditions import Condition, parse_condition
from windlass.core.model.constraints import Apart, Spread, Together
from windlass.core.model.snapshot import Alternatives

from .declarations import Form
from .groups import GroupReader
from .reader import Path, is_name, shown
from .schema import APART, MOST_TASKS, SPREAD, TOGETHER

T = TypeVar("T")


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
        """Reads ``any_of``: a list of lists of conditions."""
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
        """Reads ``classes`` of a demand: a list of names."""
        if isinstance(value, str):
            self.wrong(at, f"must be a list of names, is text; write [{shown(value)}]")
            return ()
        names = [self.name((*at, index), one) for index, one in enumerate(self.items(at, value, "class names"))]
        return tuple(sorted({name for name in names if name}))

    def class_counts(self, at: Path, value: object) -> tuple[tuple[str, int], ...]:
        """Reads ``classes`` of a node: how many tasks of each class run there."""
        if value is None:
            return ()
        found = {}
        for name, count in self.mapping(at, value, "a mapping of class names to counts, such as {web: 2}").items():
            if not is_name(name):
                self.wrong(at, f"has the class {shown(name)}, which must be visible text")
            elif number := self.integer((*at, name), count, 0, high=MOST_TASKS):
                found[name] = number
        return tuple(sorted(found.items()))

    def domain_counts(self, at: Path, value: object) -> tuple[tuple[str, int], ...]:
        """Reads ``elsewhere`` of a spread constraint: how many tasks of the class each domain holds, also 0."""
        found = {}
        for name, count in self.mapping(at, value, "a mapping of domains to counts, such as {zone-a: 2}").items():
            if not is_name(name):
                self.wrong(at, f"has the domain {shown(name)}, which must be visible text")
            else:
                found[name] = self.integer((*at, name), count, 0, high=MOST_TASKS)
        return tuple(sorted(found.items()))

    def apart(self, at: Path, value: object) -> tuple[Apart, ...]:
        return tuple(self._constraints(at, value, "constraints, such as [{from: web, by: node}]", APART, Apart))

    def spread(self, at: Path, value: object) -> tuple[Spread, ...]:
        return tuple(self._constraints(at, value, "constraints, such as [{of: web, over: zone}]", SPREAD, Spread))

    def together(self, at: Path, value: object) -> tuple[Together, ...]:
        return tuple(self._constraints(at, value, "constraints, such as [{with: db, by: zone}]", TOGETHER, Together))

    def _constraints(self, at: Path, value: object, noun: str, form: Form, constraint: Callable[..., T]) -> Iterator[T]:
        """Reads each constraint of a list; one that lacks a required name is left out, after the mistake is
        recorded."""
        required = {form.keys[name].field for name in form.required}
        for index, one in enumerate(self.items(at, value, noun)):
            here = (*at, index)
            found = self.values(here, self.fields(here, one, form), form)
            if all(found.get(name) for name in required):
                yield constraint(**found)
