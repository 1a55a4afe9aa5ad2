"""The fit cache holds where a task could run by conditions, taints and size, once for each different task.

Tasks with different constraints often have the same needs and conditions. Answers that do not depend on placed tasks
are computed once for each need and selector, and for each set of labels.
"""

from __future__ import annotations

import numpy as np

from windlass.core.capacity.class_counts import Bounds
from windlass.core.capacity.offers import Offers
from windlass.core.capacity.room import Bools, Ints, Need
from windlass.core.model.snapshot import Selector
from windlass.core.plan_draft import PlanDraft


class FitCache:
    """The answers for one table of offers; those about its rows are dropped when it grows or shrinks."""

    def __init__(self, draft: PlanDraft, table: Offers) -> None:
        self._draft, self._table = draft, table
        self._groups: dict[tuple[Need, Selector], tuple[Bools, Ints]] = {}
        self._rows: dict[tuple[Need, Selector], Bools] = {}
        self._per_slice: dict[tuple[Need, Selector, int, int], tuple[Ints, Bools]] = {}
        self._cells: dict[tuple[str, ...], tuple[Ints, Ints, Ints]] = {}
        self._length = len(table)

    def _check_length(self) -> None:
        if len(self._table) != self._length:
            self._rows.clear()
            self._cells.clear()
            self._length = len(self._table)

    def eligible(self, need: Need, selector: Selector) -> tuple[Bools, Bools]:
        """Returns rows and groups where a task could run, whatever is free there. The caller must not write to them."""
        self._check_length()
        key = (need, selector)
        allowed, held = self._of_groups(key)
        if key not in self._rows:
            answers, _ = self._draft.eligibility.answers(selector)
            self._rows[key] = answers[self._table.profile] & (held > 0)[self._table.group]
        return self._rows[key], allowed

    def _of_groups(self, key: tuple[Need, Selector]) -> tuple[Bools, Ints]:
        """Returns the groups where a task could run, and how many such tasks an empty node of each group holds."""
        if key not in self._groups:
            need, selector = key
            answers, _ = self._draft.eligibility.answers(selector)
            held = self._draft.group_table.fresh.capacity(need)
            self._groups[key] = answers[self._draft.profile_index] & (held > 0), held
        return self._groups[key]

    def per_slice(self, need: Need, selector: Selector, bounds: Bounds) -> tuple[Ints, Bools]:
        """Returns how many of the tasks one new slice of each group would take, and which groups take one."""
        key = (need, selector, bounds.fresh_node, bounds.fresh_slice)
        if key not in self._per_slice:
            allowed, held = self._of_groups((need, selector))
            on_slice = np.minimum(np.minimum(held, bounds.fresh_node) * self._draft.hosts, bounds.fresh_slice)
            found = np.where(allowed, on_slice, 0)
            self._per_slice[key] = found, found > 0
        return self._per_slice[key]

    def cells(self, keys: tuple[str, ...]) -> tuple[Ints, Ints, Ints]:
        """Returns [cell, label] the existing combinations of label values, and the cell of each row and of each
        group."""
        self._check_length()
        if keys not in self._cells:
            classes = self._table.classes
            assert classes is not None
            of_rows = np.stack([classes.value[key] for key in keys], axis=1)
            of_groups = np.stack([classes.group_value[key] for key in keys], axis=1)
            cells, number = np.unique(np.concatenate((of_rows, of_groups)), axis=0, return_inverse=True)
            number = number.reshape(-1)
            self._cells[keys] = cells, number[: len(of_rows)], number[len(of_rows) :]
        return self._cells[keys]
