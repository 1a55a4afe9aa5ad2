"""This module turns the messages of a Ray cluster into demands and one standing request. Pure.

Tasks and actors become shapes with a count, placement groups become gangs, ``request_resources`` becomes one standing
request. Room on nodes that Windlass has not bought is subtracted from the standing request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from windlass.core.model.conditions import Condition
from windlass.core.model.constraints import Apart
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, Group

from . import wire_pb2 as wire
from .shapes import Selector, is_in_group, needs_of, per_node, selectors_of, shape_id

REQUEST: Final = "request_resources"
GROUP: Final = "pg:"
_STRICT: Final = {"STRICT_SPREAD": Gang.SPREAD, "STRICT_PACK": Gang.SAME_NODE}
"""Strategies that are mandatory; with all others the bundles may lie anywhere."""
_PREFERRED: Final = {"SPREAD": Gang.SPREAD, "PACK": Gang.SAME_NODE}
"""Strategies that are preferences: requested like this until a plan finds that impossible."""


@dataclass(frozen=True, slots=True)
class PendingShape:
    """Waiting tasks and actors with equal needs and selectors."""

    id: str
    resources: Mapping[str, float]
    """In Ray's names and units."""
    selectors: tuple[Selector, ...]
    count: int
    message: wire.ResourceRequest = field(compare=False)

    def demand(self, count: int, since: float) -> Demand:
        """Return ``count`` of these tasks as a demand."""
        needs, where = needs_of(self.resources)
        limits = per_node(self.resources)
        return Demand(
            self.id,
            (Bundle(needs, count),),
            since=since,
            classes=tuple(sorted(limits)),
            apart=tuple(Apart(name, "node", most) for name, most in sorted(limits.items())),
            **_places(where, self.selectors),
        )


@dataclass(frozen=True, slots=True)
class PlacementGroup:
    """A waiting placement group, or those of its bundles that have lost their node."""

    id: str
    gang: Gang
    bundles: tuple[tuple[Amounts, Selector, tuple[Selector, ...], int], ...]
    """(needs, conditions that follow from the needs, label selectors, count)."""
    shunned: tuple[str, ...]
    """Labels of nodes that have other bundles of a STRICT_SPREAD group: the rest may not go there."""
    message: wire.GangResourceRequest = field(compare=False)
    preferred: Gang | None = None
    """The placement that it prefers but does not need: SPREAD many nodes, PACK one."""

    def demand(self, since: float, *, as_preferred: bool = False) -> Demand:
        """Return the gang, with the preferred placement or with any that its strategy allows."""
        gang = self.preferred if as_preferred and self.preferred is not None else self.gang
        where = tuple(Condition(label, "absent") for label in self.shunned)
        bundles = tuple(_bundle(needs, own, selectors, count) for needs, own, selectors, count in self.bundles)
        return Demand(self.id, bundles, gang=gang, where=where, since=since)

    def can_be_preferred(self, groups: Iterable[Group]) -> bool:
        """Return whether nodes of these groups, as large and as many as there may ever be, allow the preferred
        placement. If not, it is not requested: a plan would report that the placement group waits, which is wrong."""
        count = sum(many for *_, many in self.bundles)
        if self.preferred is Gang.SPREAD:
            return count <= sum(group.max * group.hosts for group in groups)
        whole: dict[str, int] = {}
        for needs, _, _, many in self.bundles:
            for name, amount in needs:
                whole[name] = whole.get(name, 0) + many * amount
        return any(
            all(has.get(name, 0) >= amount for name, amount in whole.items())
            for has in (dict(group.resources) for group in groups)
        )


def shapes_of(state: wire.ClusterResourceState) -> dict[str, PendingShape]:
    """Return the tasks and actors that wait according to the GCS, by id."""
    found: dict[str, PendingShape] = {}
    for one in state.pending_resource_requests:
        _add(found, one.request.resources_bundle, one.request.label_selectors, one.count, one.request)
    return found


def load_of(load: wire.ResourceLoad) -> dict[str, PendingShape]:
    """Return the tasks and actors that wait according to one raylet, by id."""
    found: dict[str, PendingShape] = {}
    for one in load.resource_demands:
        count = one.num_ready_requests_queued + one.num_infeasible_requests_queued + one.backlog_size
        request = wire.ResourceRequest(resources_bundle=one.shape, label_selectors=one.label_selectors)
        _add(found, one.shape, one.label_selectors, count, request)
    return found


def _add(
    found: dict[str, PendingShape],
    bundle: Mapping[str, float],
    label_selectors: Iterable[wire.LabelSelector],
    count: int,
    message: wire.ResourceRequest,
) -> None:
    resources = dict(bundle)
    if count <= 0 or is_in_group(resources):
        return
    selectors = selectors_of(label_selectors)
    name = shape_id(resources, selectors)
    before = found[name].count if name in found else 0
    found[name] = PendingShape(name, resources, selectors, before + count, message)


def groups_of(state: wire.ClusterResourceState) -> dict[str, PlacementGroup]:
    """Return the placement groups that wait, by id."""
    found: dict[str, PlacementGroup] = {}
    for number, gang in enumerate(state.pending_gang_resource_requests):
        name, _, rest = gang.details.partition(":")
        strategy, _, _ = rest.partition("|")
        requests = gang.bundle_selectors[0].resource_requests if gang.bundle_selectors else gang.requests
        bundles: dict[tuple[Amounts, Selector, tuple[Selector, ...]], int] = {}
        for request in requests:
            needs, own = needs_of(request.resources_bundle)
            kind = needs, own, selectors_of(request.label_selectors)
            bundles[kind] = bundles.get(kind, 0) + 1
        if not bundles:
            continue
        shunned = {
            constraint.anti_affinity.label_name
            for request in (*gang.requests, *requests)
            for constraint in request.placement_constraints
            if constraint.anti_affinity.label_name
        }
        key = f"{GROUP}{name or number}"
        found[key] = PlacementGroup(
            key,
            _STRICT.get(strategy, Gang.ANY),
            tuple((*kind, count) for kind, count in bundles.items()),
            tuple(sorted(shunned)),
            gang,
            _PREFERRED.get(strategy),
        )
    return found


def request_of(
    state: wire.ClusterResourceState, others: Sequence[tuple[Mapping[str, int], Mapping[str, str]]] = ()
) -> Demand | None:
    """Return the standing request of ``request_resources``; None: there is none, or ``others`` have room for all of it.

    ``others``: the total resources and the labels of nodes that Windlass has not bought.
    """
    room = [(dict(has), labels) for has, labels in others]
    bundles: dict[tuple[Amounts, Selector, tuple[Selector, ...]], int] = {}
    for constraint in state.cluster_resource_constraints:
        for one in constraint.resource_requests:
            needs, own = needs_of(one.request.resources_bundle)
            selectors = selectors_of(one.request.label_selectors)
            left = one.count - sum(1 for _ in range(one.count) if take(room, needs, own, selectors))
            if left > 0:
                bundles[needs, own, selectors] = bundles.get((needs, own, selectors), 0) + left
    if not bundles:
        return None
    wanted = tuple(_bundle(needs, own, many, count) for (needs, own, many), count in bundles.items())
    return Demand(REQUEST, wanted)


def take(
    room: list[tuple[dict[str, int], Mapping[str, str]]],
    needs: Amounts,
    own: Selector,
    selectors: Sequence[Selector],
) -> bool:
    """Take the room for one task from one of these nodes; return False if none has enough."""
    for has, labels in room:
        if matches(own, selectors, labels) and all(has.get(name, 0) >= amount for name, amount in needs):
            for name, amount in needs:
                has[name] -= amount
            return True
    return False


def matches(own: Selector, selectors: Sequence[Selector], labels: Mapping[str, str]) -> bool:
    """Return whether a task may run on a node with these labels."""
    if not all(condition.holds(labels) for condition in own):
        return False
    return not selectors or any(all(condition.holds(labels) for condition in one) for one in selectors)


def _places(own: Selector, selectors: tuple[Selector, ...]) -> dict[str, Any]:
    """Return the conditions as fields of a demand or a bundle."""
    if len(selectors) == 1:
        where = tuple(dict.fromkeys((*own, *selectors[0])))
        return {"where": where} if where else {}
    return ({"where": own} if own else {}) | ({"any_of": selectors} if selectors else {})


def _bundle(needs: Amounts, own: Selector, selectors: tuple[Selector, ...], count: int) -> Bundle:
    return Bundle(needs, count, **_places(own, selectors))


def fingerprint(state: wire.ClusterResourceState, load: wire.ResourceLoad | None) -> object:
    """Return the parts of the answers on which an observation depends, without clocks."""
    return (
        sorted((one.id, one.count) for one in shapes_of(state).values()),
        None if load is None else sorted((one.id, one.count) for one in load_of(load).values()),
        sorted(_bytes(one) for one in state.pending_gang_resource_requests),
        [_bytes(one) for one in state.cluster_resource_constraints],
        sorted((one.node_id, one.status, sorted(one.available_resources.items())) for one in state.node_states),
    )


def _bytes(one: Any) -> bytes:
    return bytes(one.SerializeToString(deterministic=True))
