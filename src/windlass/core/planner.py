"""``plan`` turns a snapshot into a plan, step by step.

The steps are: lowered limits, minimums (min, requests), demand by priority, spares, probe launches for gangs, reasons
for waiting demand, releases, reasons for slices that stay. Each step is a module of its own; this one calls them in
order and combines their results. It is a pure function: the same snapshot gives the same plan, byte for byte, whatever
the order of its parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial
from typing import Final

from windlass.core.explain.kept import busy, kept
from windlass.core.explain.launches import demands_of, launch_reason, passed_over
from windlass.core.explain.unblock import TrialOutcome, Unblocker
from windlass.core.explain.waiting import Explainer, waiting_counts, waiting_items
from windlass.core.model.lifecycle import COSTLY, IN_FLIGHT, State
from windlass.core.model.plan import Change, HourlyCost, Launch, Placement, Plan, Unblock, Waiting
from windlass.core.model.reasons import Code, ComputedReasons, Reason
from windlass.core.model.snapshot import Snapshot
from windlass.core.placement.gang_attempt import tasks_of
from windlass.core.placement.minimums import buy_ahead, hold_spares, meet_requests, raise_to_min
from windlass.core.placement.singles import serve
from windlass.core.scale_down.candidates import Release
from windlass.core.scale_down.consolidation import consolidate, keep_for_moves
from windlass.core.scale_down.idle import release_idle, release_surplus, surplus_reason
from windlass.core.scale_down.over_limit import lower_to_limits
from windlass.core.scale_down.utilization import marks_of, release_by_utilization, release_low_utilization
from windlass.core.tables.planner_memo import PlannerMemo
from windlass.core.tables.snapshot_tables import SnapshotTables

from .candidate_plans import best_draft, without_queued_surplus
from .next_plan import with_next_decisions
from .plan_draft import DraftOptions, PlacedRun, PlanDraft, Purchase
from .probe_launches import send_ahead


def plan(snapshot: Snapshot, memo: PlannerMemo | None = None) -> Plan:
    """Decides what to do about a snapshot, and why, item by item.

    ``memo``: what a caller that plans repeatedly keeps from plan to plan. It saves time and changes no plan.
    """
    memo = memo or PlannerMemo()
    decide = partial(_decided, memo=memo)
    draft = with_next_decisions(decide(snapshot), decide, _opened)
    send_ahead(draft)
    waiting = waiting_items(draft)
    release = Release(draft, {item.demand: item for item in waiting})
    keep_for_moves(release)
    release_surplus(release)
    release_idle(release)
    release_low_utilization(release)
    release_by_utilization(release)
    consolidate(release)

    called_back = _called_back(release)
    marks, unmarks = marks_of(release)
    slices, gone = draft.slices, [(draft.slices[p], reason) for p, reason in sorted(draft.released.items())]
    moved = {*draft.released, *called_back, *release.marks, *release.unmarks}
    return Plan(
        now=snapshot.now,
        strategy=draft.strategy,
        launches=tuple(_launches(draft)),
        cancel=tuple([Change(item.id, reason) for item, reason in gone if item.state in IN_FLIGHT]),
        drain=tuple([Change(item.id, reason) for item, reason in gone if item.state not in IN_FLIGHT]),
        uncordon=tuple([Change(slices[p].id, reason) for p, reason in sorted(called_back.items())]),
        mark=tuple(marks),
        unmark=tuple(unmarks),
        stays=tuple(kept(release, moved)),
        waiting=waiting,
        hourly_cost=_hourly_cost(draft),
        mistakes=tuple([f"{demand.id}: {mistake}" for demand, mistake in draft.decisions.invalid]),
        _busy=lambda: busy(release, moved),
        _placements=lambda: placements(draft),
        _unblocks=lambda: Unblocker(snapshot, waiting, partial(_what_if, memo=memo)).all(),
    )


def unblocks_of(snapshot: Snapshot, waiting: Waiting) -> tuple[Unblock, ...]:
    """Returns the changes that would place one waiting demand. The what-if plans of a plan are shared by all of its
    waiting demand; here they are used for one."""
    return Unblocker(snapshot, (waiting,), partial(_what_if, memo=PlannerMemo())).all()[waiting.demand]


def _decided(snapshot: Snapshot, memo: PlannerMemo, *, search: bool = True) -> PlanDraft:
    """Returns the best draft; for ``search`` see ``best_draft``."""
    return without_queued_surplus(best_draft(snapshot, _served, _opened, memo, search=search), _served)


def _opened(snapshot_tables: SnapshotTables, options: DraftOptions) -> PlanDraft:
    """Returns a draft in which only slices above a limit are decided."""
    draft = PlanDraft(snapshot_tables, options)
    lower_to_limits(draft)
    for position in sorted(options.cancelled):
        if position not in draft.released:
            draft.release(position, surplus_reason(draft, position))
    draft.open()
    return draft


def _served(snapshot_tables: SnapshotTables, options: DraftOptions) -> PlanDraft:
    """Returns a draft with every minimum kept and every demand served or waiting."""
    draft = _opened(snapshot_tables, options)
    raise_to_min(draft, dict(options.fewer_min))
    meet_requests(draft)
    if options.ahead:
        buy_ahead(draft)
    serve(draft)
    draft.limits.closed = False
    hold_spares(draft)
    if options.fewer_min:
        raise_to_min(draft)
    return draft


def _what_if(snapshot: Snapshot, memo: PlannerMemo) -> TrialOutcome:
    """Returns the result of a snapshot, without releases and reasons."""
    draft = _decided(snapshot, memo, search=False)
    limits, names = draft.limits, [group.name for group in draft.groups]
    return TrialOutcome(
        waiting=waiting_counts(draft),
        counted={name: limits.counted[index] + limits.new[index] for index, name in enumerate(names)},
        in_flight={name: limits.in_flight[index] + limits.new[index] for index, name in enumerate(names)},
        nodes=limits.nodes,
        cost=limits.cost,
    )


def _called_back(release: Release) -> dict[int, Reason]:
    """Returns the slices being released that are called back, each with its reason."""
    draft = release.draft
    sentences = {
        Code.MIN: "its group needs it for its min",
        Code.SPARE: "its group needs it as a spare",
        Code.REQUEST: "a standing request needs its room",
    }
    reasons = {position: Reason(code, sentences[code]) for position, code in draft.recalled.items()}
    for position in draft.snapshot_tables.recallable:
        if position in release.placed and position not in reasons:
            reasons[position] = Reason(Code.DEMAND, "demand is placed on it, which is cheaper than a new machine")
    return reasons


def _launches(draft: PlanDraft) -> Iterator[Launch]:
    """Yields the launches of a draft. Adjacent purchases of one group and reason are one launch."""
    by_group_and_code: dict[tuple[int, Code], list[Purchase]] = {}
    for purchase in draft.purchases:
        by_group_and_code.setdefault((purchase.group, purchase.code), []).append(purchase)
    runs = []
    for (group, code), purchases in by_group_and_code.items():
        run: list[Purchase] = []
        for purchase in purchases:
            if run and run[-1].first + run[-1].slices != purchase.first:
                runs.append((group, code, run))
                run = []
            run.append(purchase)
        runs.append((group, code, run))
    runs.sort(key=lambda item: (draft.groups[item[0]].name, item[2][0].first))
    explain, tasks = Explainer(draft), demands_of(draft, [run for _, _, run in runs])
    for (group, _, run), demands in zip(runs, tasks, strict=True):
        slices = sum(purchase.slices for purchase in run)
        yield Launch(
            group=draft.groups[group].name,
            first=run[0].first,
            count=slices,
            reason=launch_reason(draft, run, demands),
            hourly_cost=(draft.groups[group].price or 0) * slices,
            passed_over=ComputedReasons(partial(passed_over, draft, explain, run[0])),
            demands=demands,
        )


def _hourly_cost(draft: PlanDraft) -> HourlyCost:
    now = planned = 0
    for (group, state), count in draft.snapshot_tables.counts.items():
        if group is not None:
            price = draft.groups[group].price or 0
            now += price * count if state in COSTLY else 0
            planned += price * count if state in COSTLY or state == State.QUEUED else 0
    for position in draft.snapshot_tables.slices_without_group:
        item = draft.slices[position]
        now += item.price if item.state in COSTLY else 0
        planned += item.price if item.state in COSTLY or item.state == State.QUEUED else 0
    for position in draft.released:
        group = draft.group_of(position)
        planned -= draft.slices[position].price if group is None else draft.groups[group].price or 0
    for purchase in draft.purchases:
        planned += (draft.groups[purchase.group].price or 0) * purchase.slices
    return HourlyCost(now, planned)


def placements(draft: PlanDraft) -> tuple[Placement, ...]:
    """Returns which tasks of each demand go where, by demand, target and bundle."""
    totals: dict[tuple[str, str, int], int] = {}
    name_of = cache(draft.name_of)  # a slice is named once for all tasks on it

    def assign(members: Iterable[tuple[str, int, int]], runs: Iterable[PlacedRun]) -> None:
        """Assigns the placed tasks to the members (demand, bundle, count), in order."""
        waiting = iter(members)
        name, bundle, left = "", SINGLE, 0
        for target, count in _targets(name_of, runs):
            while count:
                while not left:
                    name, bundle, left = next(waiting)
                some = min(left, count)
                key = (name, target, bundle)
                totals[key] = totals.get(key, 0) + some
                left, count = left - some, count - some

    for gang, served in draft.decisions.served_gangs:
        for index, tasks in enumerate(tasks_of(draft, gang)):
            members = [(gang.id, bundle, count) for bundle, count in tasks.bundles]
            assign(members, [run for run in served.runs if run.tasks == index])
    for shape, served in draft.decisions.served_shapes:
        bundles = shape.bundles or (SINGLE,) * len(shape.members)
        assign([(name, b, n) for (name, n), b in zip(shape.members, bundles, strict=True)], served.runs)
    return tuple(
        Placement(demand, count, on, None if bundle == SINGLE else bundle)
        for (demand, on, bundle), count in sorted(totals.items())
    )


SINGLE: Final = -1
"""In place of a bundle: the task belongs to no gang."""


def _targets(name_of: Callable[[int], str], runs: Iterable[PlacedRun]) -> Iterator[tuple[str, int]]:
    for run in runs:
        for position, count in zip(run.positions.tolist(), run.counts.tolist(), strict=True):
            yield name_of(position), count
