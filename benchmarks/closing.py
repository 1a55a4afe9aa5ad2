"""Closing dear machines: a rule that the planner does not have yet, measured here as a proposal.

Where jobs cannot be moved, most of what a cluster costs above the bound is not idle time and not boots: it is small
jobs that found room on a dear machine, and hold it long after the work that it was bought for has ended. No rule for
giving back can mend that. Closing prevents it:

- A machine with work, of a group that costs more than twice the cheapest group with the same kinds of resource, is
  cordoned: it takes no more work, and goes when what it has is done.
- It is called back for demand that deserves it: for which a machine of its own would cost at least half as much.

So a job shares a machine that costs at most about twice its own, and otherwise waits for one of its own to boot.
Nothing that runs is touched. The rule is a function of the snapshot alone, around the planner as it is: what is closed
is shown to it as ending, so that it plans as if that were not there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from windlass.core.eligibility import Eligibility
from windlass.core.lifecycle import RECALLABLE, State
from windlass.core.plan import Change, Plan
from windlass.core.planner import plan
from windlass.core.quantities import format_money
from windlass.core.reasons import Code, Reason
from windlass.core.room import Kinds, Need, Room, amounts_matrix
from windlass.core.shapes import selector_of
from windlass.core.snapshot import Demand, Group, Slice, Snapshot

from .peers.peer import Peer

DEAR = 1.5
"""A job shares a machine of at most so many times the price of its own."""


class Closing(Peer):
    """The planner, with dear machines closed to small work."""

    def __call__(self, snapshot: Snapshot) -> Plan:
        dear = _dear(snapshot)
        wanted = {item.id for item in dear if _deserved(snapshot, item)}
        shut = {item.id for item in dear if item.state in RECALLABLE and item.id not in wanted}
        slices = (replace(item, state=State.TERMINATING) if item.id in shut else item for item in snapshot.slices)
        made = plan(replace(snapshot, slices=tuple(slices)))
        taken = {placement.on for placement in made.placements} if wanted or snapshot.demands else set[str]()
        moved = {change.slice for change in (*made.cancel, *made.drain, *made.mark, *made.unmark)}
        close = {
            item.id: _why(snapshot, item)
            for item in dear
            if item.state == State.READY and item.id not in taken and item.id not in moved
        }
        stays = Reason(Code.DRAINING, "it is closed: it goes when its work is done")
        return replace(
            made,
            drain=_sorted((*made.drain, *(Change(name, reason) for name, reason in close.items()))),
            keep=tuple(
                replace(change, reason=stays) if change.slice in shut else change
                for change in made.keep
                if change.slice not in close
            ),
        )


def _dear(snapshot: Snapshot) -> list[Slice]:
    """Slices with work whose price is more than ``DEAR`` times that of the cheapest group of their kind."""
    cheapest: dict[tuple[str, ...], int] = {}
    for group in snapshot.groups:
        if group.price is not None:
            cheapest[_kinds(group)] = min(group.price, cheapest.get(_kinds(group), group.price))
    dear = {
        group.name
        for group in snapshot.groups
        if group.price is not None and group.price > DEAR * cheapest[_kinds(group)] and not group.frozen
    }
    return [
        item
        for item in snapshot.slices
        if item.group in dear and item.busy and (item.state == State.READY or item.state in RECALLABLE)
    ]


def _kinds(group: Group) -> tuple[str, ...]:
    return tuple(name for name, _ in group.resources)


def _deserved(snapshot: Snapshot, item: Slice) -> bool:
    """Whether something waits that fits there, and whose own machine would be about as dear."""
    group = next(one for one in snapshot.groups if one.name == item.group)
    return any(
        DEAR * own >= (group.price or 0) and _fits(group, item, demand)
        for demand in snapshot.demands
        if (own := _own_price(snapshot.groups, demand)) is not None
    )


def _own_price(groups: Iterable[Group], demand: Demand) -> int | None:
    """The price of the cheapest slice that holds one task of a demand."""
    prices = [group.price for group in groups if group.price is not None and _fits(group, None, demand)]
    return min(prices, default=None)


def _fits(group: Group, item: Slice | None, demand: Demand) -> bool:
    """Whether a task of a demand fits on a slice, or on a new one of the group."""
    eligibility = Eligibility((demand,))
    profile = eligibility.group_profile(group)
    allowed, _ = eligibility.answers(selector_of(demand))
    if not allowed[profile]:
        return False
    kinds = Kinds.of(name for name, _ in group.resources)
    total = amounts_matrix([dict(group.resources)] * max(1, len(item.nodes) if item else 1), kinds)
    used = amounts_matrix([dict(node.used) for node in item.nodes], kinds) if item and item.nodes else 0 * total
    room = Room(kinds, total, (total - used).clip(0))
    return any(bool(room.capacity(Need.of(dict(bundle.needs), kinds)).any()) for bundle in demand.bundles)


def _why(snapshot: Snapshot, item: Slice) -> Reason:
    price = next(group.price or 0 for group in snapshot.groups if group.name == item.group)
    return Reason(Code.CONSOLIDATE, f"at {format_money(price)}/h it is too dear for small work: it takes no more")


def _sorted(changes: Iterable[Change]) -> tuple[Change, ...]:
    return tuple(sorted(changes, key=lambda change: change.slice))
