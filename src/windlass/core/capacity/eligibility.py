"""Eligibility decides by conditions and taints which nodes and groups a demand may use, once per distinct node profile.

Nodes that no condition of the snapshot can distinguish share one profile. A rack label that no demand names makes no
difference, so ten thousand nodes have a few profiles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

import numpy as np

from windlass.core.model.conditions import Taint, untolerated
from windlass.core.model.constraints import NODE, SLICE
from windlass.core.model.snapshot import Bundle, Demand, Group, Selector

from .room import Bools, Ints

ALTERNATIVE: Final = 2**32
"""A number above any number of preferences: an earlier alternative counts before all preferences."""


def alternative(unmet: Ints) -> Ints:
    """Returns the index of the alternative that holds."""
    return unmet // ALTERNATIVE


def preferences(unmet: Ints) -> Ints:
    """Returns the number of preferences that are not met."""
    return unmet % ALTERNATIVE


Profile = tuple[tuple[tuple[str, str], ...], tuple[Taint, ...]]


class Eligibility:
    """The profiles of nodes, and the answer of each selector for each profile."""

    def __init__(self, demands: Sequence[Demand]) -> None:
        keys: set[str] = set()
        self.domain_keys: set[str] = set()
        """Labels that constraints between tasks name."""
        self.classes: set[str] = set()
        """Classes that constraints between tasks name."""
        self.domains_elsewhere: set[tuple[str, str]] = set()
        """Labels and values of machines that no group owns, which spread constraints count."""
        parts: list[Demand | Bundle] = [demand for demand in demands if not demand.plain]
        parts += [bundle for demand in demands for bundle in demand.bundles if not bundle.plain]
        for part in parts:
            if part.where or part.prefer or part.any_of:
                keys.update([condition.key for condition in chain(part.where, part.prefer, *part.any_of)])
            if part.apart or part.spread or part.together:
                self.domain_keys |= part.rules.domains() - {NODE, SLICE}
                self.classes |= part.rules.named()
                self.domains_elsewhere |= {
                    (one.over, value)
                    for one in part.spread
                    if one.over not in (NODE, SLICE)
                    for value, _ in one.elsewhere
                }
        self._keys = sorted(keys | self.domain_keys)
        self.asks = bool(self._keys)
        """Whether a condition uses a label."""
        self._index: dict[Profile, int] = {}
        self._profiles: list[tuple[dict[str, str], tuple[Taint, ...]]] = []
        self._answers: dict[Selector, tuple[Bools, Ints]] = {}

    def group_profile(self, group: Group) -> int:
        return self._profile(group.node_labels(), group.taints)

    def node_profile(self, group: Group, labels: Mapping[str, str], of_group: int) -> int:
        """Returns the profile of a node whose own labels replace those of its group."""
        if not any(key in labels for key in self._keys):
            return of_group
        return self._profile({**group.node_labels(), **labels}, group.taints)

    def _profile(self, labels: Mapping[str, str], taints: tuple[Taint, ...]) -> int:
        seen = tuple((key, labels[key]) for key in self._keys if key in labels)
        profile = (seen, taints)
        if profile not in self._index:
            self._index[profile] = len(self._profiles)
            self._profiles.append((dict(seen), taints))
            self._answers.clear()
        return self._index[profile]

    def values(self, key: str) -> list[str | None]:
        """Returns for each profile its value of a label that some constraint names."""
        return [labels.get(key) for labels, _ in self._profiles]

    def answers(self, selector: Selector) -> tuple[Bools, Ints]:
        """Returns for each profile whether it may be used, and its penalty.

        The penalty is the number of unmet preferences, plus ``ALTERNATIVE`` times the index of the first list of
        ``any_of`` that holds: see ``alternative`` and ``preferences``.
        """
        known = self._answers.get(selector)
        if known is None:
            known = self._answers[selector] = self._ask(selector)
        return known

    def _ask(self, selector: Selector) -> tuple[Bools, Ints]:
        where, prefer, tolerates, any_of = selector
        allowed = np.ones(len(self._profiles), np.bool_)
        unmet = np.zeros(len(self._profiles), np.int64)
        for index, (labels, taints) in enumerate(self._profiles):
            untolerated_taints = untolerated(taints, tolerates)
            hard = any(taint.effect != "PreferNoSchedule" for taint in untolerated_taints)
            allowed[index] = not hard and all(condition.holds(labels) for condition in where)
            unmet[index] = sum(not condition.holds(labels) for condition in prefer) + len(untolerated_taints)
            rank = 0
            for alternatives in any_of:
                holding = [all(condition.holds(labels) for condition in one) for one in alternatives]
                allowed[index] &= any(holding)
                rank = rank * len(alternatives) + (holding.index(True) if any(holding) else 0)
            unmet[index] += rank * ALTERNATIVE
        return allowed, unmet
