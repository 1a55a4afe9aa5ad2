"""Release tracks which slices the rules of this package may release.

The rules run in this order: surplus in flight and ``idle_timeout`` (`idle`), ``low_utilization`` and ``utilization``
with marks (`utilization`), consolidation (`consolidation`). They never go below ``min`` slices and ``spare`` free ones,
and never release a slice that got a placement in this plan or holds requested room, a protected one, or one of a group
that is frozen or that this plan launches. A slice with an unhealthy node is not released here: the controller replaces
it.
"""

from __future__ import annotations

from windlass.core.capacity.limits import LimitScope
from windlass.core.model.lifecycle import RECALLABLE, State
from windlass.core.model.plan import Waiting
from windlass.core.model.reasons import IMPOSSIBLE, Code, Reason, plural
from windlass.core.model.snapshot import ScaleDown, Seconds
from windlass.core.placement.gang_holding import holds_what_it_would_use, serve_partly
from windlass.core.placement.minimums import free_slices
from windlass.core.plan_draft import PlanDraft


class Release:
    """The slices that may be released; each release is counted."""

    def __init__(self, draft: PlanDraft, waiting: dict[str, Waiting]) -> None:
        self.draft = draft
        placed = draft.placed()
        self.placed = frozenset(placed[: len(draft.slices)].nonzero()[0].tolist())
        """Slices that exist and have demand placed on them."""
        self.live = [self._live(group) for group in range(len(draft.groups))]
        self.free = [0] * len(draft.groups)
        """Counted only where a rule needs it."""
        self.scopes, self.scopes_of = draft.snapshot_tables.scopes, draft.snapshot_tables.scopes_of
        asks = any(_asks_for_free(kind.scale_down) for kind in draft.groups)
        if asks or any(scope.spare for scope in self.scopes):
            self.free = [free_slices(draft, group, placed) for group in range(len(draft.groups))]
        self.launching = [count > 0 for count in draft.limits.new]
        self.wanted = self._wanted(waiting)
        self.held, self.was_held = self._held(waiting)
        self.marks: dict[int, Seconds] = {}
        self.mark_reasons: dict[int, Reason] = {}
        self.unmarks: dict[int, Reason] = {}
        self.stays: dict[int, Reason] = {}
        """Why a slice that a rule considered was not released."""

    def _live(self, group: int) -> int:
        draft = self.draft
        live = draft.live_count(group)
        if not draft.snapshot_tables.recallable:
            return live
        leaving = draft.snapshot_tables.of(group, *RECALLABLE)
        return live + sum(p not in draft.recalled and p in self.placed for p in leaving)

    def _wanted(self, waiting: dict[str, Waiting]) -> list[bool]:
        """For each group: whether demand waits that it could hold without its limits."""
        aside = (Code.GANG_FORMING, Code.INVALID_DEMAND, Code.NOT_TAKEN, Code.UNKNOWN_INPUT)
        codes = [item.groups for item in waiting.values() if item.reason.code not in aside]
        return [any(reasons[group.name].code not in IMPOSSIBLE for reasons in codes) for group in self.draft.groups]

    def _held(self, waiting: dict[str, Waiting]) -> tuple[dict[int, str], dict[int, tuple[str, Seconds]]]:
        """Slices that members of a forming gang would use, and those that a gang held until its deadline."""
        held: dict[int, str] = {}
        was: dict[int, tuple[str, Seconds]] = {}
        late = sorted(self.draft.decisions.late_gangs, key=lambda gang: (gang.deadline or 0, gang.id))
        for gang in (*self.draft.decisions.waiting_gangs, *late):
            if not holds_what_it_would_use(self.draft, gang, waiting[gang.id]):
                continue
            positions = serve_partly(self.draft, gang)
            if waiting[gang.id].reason.code == Code.GANG_FORMING and gang.deadline is not None:
                was.update({p: (gang.id, gang.deadline) for p in positions if p not in was})
            else:
                held.update({p: gang.id for p in positions if p not in held})
        return held, was

    # -- what may go ------------------------------------------------------------------------------------------------

    def is_free(self, position: int) -> bool:
        return self.draft.is_whole_and_free(position) and position not in self.placed

    def is_pinned(self, position: int) -> bool:
        """Whether a slice is never released, whatever the rule."""
        draft, group = self.draft, self.draft.group_of(position)
        return (
            position in draft.released
            or position in self.placed
            or position in draft.requested
            or position in draft.recalled
            or position in self.held
            or group is None
            or self.launching[group]
            or draft.groups[group].frozen
            or draft.slices[position].id in draft.groups[group].protected
            or not draft.slices[position].healthy
        )

    def floor(self, position: int) -> Reason | None:
        """Returns the minimum that would not be met without this slice."""
        group = self.draft.group_of(position)
        assert group is not None
        scopes = [self.scopes[at] for at in self.scopes_of[group]]
        for scope in scopes:
            live = self.live_in(scope)
            if live <= scope.min:
                return Reason(Code.MIN, f"{scope} keeps at least {plural(scope.min, 'machine')} and has {live}")
        for scope in scopes:
            if scope.spare and self.is_free(position) and self.free_in(scope) <= scope.spare:
                return Reason(Code.SPARE, f"{scope} keeps {plural(scope.spare, 'free machine')} ready beyond demand")
        return None

    def live_in(self, scope: LimitScope) -> int:
        return sum([self.live[group] for group in scope.groups])

    def free_in(self, scope: LimitScope) -> int:
        return sum([self.free[group] for group in scope.groups])

    def release(self, position: int, reason: Reason) -> bool:
        """Releases a slice unless a minimum needs it; returns whether it was released."""
        group = self.draft.group_of(position)
        assert group is not None
        if floor := self.floor(position):
            self.stays[position] = floor
            return False
        self.free[group] -= self.is_free(position)
        self.live[group] -= 1
        self.draft.release(position, reason)
        return True

    def take_from_free(self, position: int) -> None:
        """Stops counting a slice as free, because it is kept for work."""
        group = self.draft.group_of(position)
        assert group is not None
        self.free[group] -= self.is_free(position)

    def ready(self, group: int) -> list[int]:
        draft = self.draft
        ready = draft.snapshot_tables.with_work(group, State.READY)
        return [p for p in ready if p not in draft.released and p not in draft.snapshot_tables.final]


def _asks_for_free(rules: ScaleDown | None) -> bool:
    return rules is not None and (rules.utilization is not None or rules.consolidate)
