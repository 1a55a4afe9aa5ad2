"""Which nodes and groups a demand may go to: conditions and taints, checked once per different node.

Nodes that look the same to every condition in the snapshot share one profile. A rack label that no demand asks about
makes no difference, so ten thousand nodes have a handful of profiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from windlass.core.model.conditions import Taint, untolerated
from windlass.core.model.snapshot import Demand, Group, Selector

from .room import Bools, Ints

Profile = tuple[tuple[tuple[str, str], ...], tuple[Taint, ...]]


class Eligibility:
    """Profiles of nodes, and the answer of each selector for each profile."""

    def __init__(self, demands: Iterable[Demand]) -> None:
        conditions = {condition for demand in demands for condition in (*demand.where, *demand.prefer)}
        self._keys = sorted({condition.key for condition in conditions})
        self.asks = bool(self._keys)
        """Whether anybody asks for a label."""
        self._index: dict[Profile, int] = {}
        self._profiles: list[tuple[dict[str, str], tuple[Taint, ...]]] = []
        self._answers: dict[Selector, tuple[Bools, Ints]] = {}

    def group_profile(self, group: Group) -> int:
        return self._profile(group.node_labels(), group.taints)

    def node_profile(self, group: Group, labels: Mapping[str, str], of_group: int) -> int:
        """The profile of a node with labels of its own over those of its group."""
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

    def answers(self, selector: Selector) -> tuple[Bools, Ints]:
        """For each profile: whether it may be used, and how many preferences it leaves unmet."""
        known = self._answers.get(selector)
        if known is None:
            known = self._answers[selector] = self._ask(selector)
        return known

    def _ask(self, selector: Selector) -> tuple[Bools, Ints]:
        where, prefer, tolerates = selector
        allowed = np.ones(len(self._profiles), np.bool_)
        unmet = np.zeros(len(self._profiles), np.int64)
        for index, (labels, taints) in enumerate(self._profiles):
            disliked = untolerated(taints, tolerates)
            hard = any(taint.effect != "PreferNoSchedule" for taint in disliked)
            allowed[index] = not hard and all(condition.holds(labels) for condition in where)
            unmet[index] = sum(not condition.holds(labels) for condition in prefer) + len(disliked)
        return allowed, unmet
