"""PlannerMemo is what a caller that plans repeatedly, such as a controller, passes to ``plan`` each time."""

from __future__ import annotations

from .groups import GroupTable
from .memo import Memo
from .nodes import NodeTable
from .slices import SliceTable


class PlannerMemo:
    """Tables of the last plans. A plan with a memo is equal to one without it, only faster.

    Keep one for each sequence of similar snapshots. Without one, nothing outlives a call of ``plan``.
    """

    def __init__(self) -> None:
        self.groups = Memo[GroupTable](8)
        """A controller plans with one or two sets of groups, and a plan that explains itself with a few more."""
        self.slices = Memo[SliceTable](2)
        """A controller plans with one set of slices, and a plan that tries alternatives also with a part of it."""
        self.nodes = Memo[NodeTable](2)
