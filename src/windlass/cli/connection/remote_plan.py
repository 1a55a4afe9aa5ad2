"""This module rebuilds the plan of a remote controller from its document, so that the same page is printed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Change, HourlyCost, Launch, Placement, Plan, Unblock, Waiting
from windlass.core.model.quantities import NANO
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Cluster, Group, Slice, Snapshot

Document = Mapping[str, Any]


def plan_in(document: Document) -> Plan:
    """Return the plan of a `windlass.plan/v1` document."""
    waiting = document["waiting"]
    ways = {one["demand"]: tuple(_way(way) for way in one["unblocks"]) for one in waiting}
    cost = document["hourly_cost"]
    return Plan(
        now=document["now"],
        strategy=document["strategy"],
        launches=tuple(_launch(one) for one in document["launches"]),
        cancel=_changes(document["cancel"]),
        drain=_changes(document["drain"]),
        uncordon=_changes(document["uncordon"]),
        mark=_changes(document["mark"]),
        unmark=_changes(document["unmark"]),
        stays=_changes(document["keep"]),
        waiting=tuple(Waiting(one["demand"], one["count"], _reason(one), _reasons(one["groups"])) for one in waiting),
        hourly_cost=HourlyCost(_nano(cost["now"]), _nano(cost["planned"])),
        mistakes=tuple(document["mistakes"]),
        _busy=tuple,
        _placements=lambda: tuple(
            Placement(one["demand"], one["count"], one["on"], one.get("bundle")) for one in document["placements"]
        ),
        _unblocks=lambda: ways,
    )


def snapshot_in(status: Document) -> Snapshot:
    """Return a snapshot with what the page shows besides the plan: prices, the machines' groups, the cost ceiling."""
    ceiling = status["summary"]["ceiling"]
    return Snapshot(
        groups=tuple(
            Group(one["name"], (), one["max"] or 0, price=None if one["price"] is None else _nano(one["price"]))
            for one in status["groups"]
        ),
        slices=tuple(Slice(one["id"], one["group"], State(one["state"])) for one in status["slices"]),
        cluster=Cluster(max_hourly_cost=None if ceiling is None else _nano(ceiling)),
        now=status["at"],
    )


def _nano(amount: float) -> int:
    return round(amount * NANO)


def _reason(one: Document) -> Reason:
    return Reason(Code(one["code"]), one["why"])


def _reasons(found: Mapping[str, Document]) -> dict[str, Reason]:
    return {name: _reason(one) for name, one in found.items()}


def _changes(rows: list[Document]) -> tuple[Change, ...]:
    return tuple(Change(one["slice"], _reason(one), one.get("until")) for one in rows)


def _launch(one: Document) -> Launch:
    cost, passed_over = _nano(one["hourly_cost"]), _reasons(one["passed_over"])
    return Launch(one["group"], one["first"], one["count"], _reason(one), cost, passed_over)


def _way(one: Document) -> Unblock:
    places = tuple((tuple(part["path"]), part["value"]) for part in one["set"])
    return Unblock(one["change"], places, _nano(one["hourly_cost"]))
