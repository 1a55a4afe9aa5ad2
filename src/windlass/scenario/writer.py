"""The writer writes a snapshot as plain data in the form of a scenario file; ``read_plain`` reads it back.

Only values that differ from their default are written. Amounts and prices are written so that reading gives the same
whole numbers.
"""

from __future__ import annotations

from typing import Any

from windlass.core.model.snapshot import Bundle, Demand, Group, Node, Slice, Snapshot, rules_of, selector_of

from .schema import BUNDLE, CLUSTER, DEMAND, FAMILY, GROUP, NODE, SCENARIO, SLICE


def write_scenario(snapshot: Snapshot) -> dict[str, Any]:
    """Returns the scenario as plain data, ready for a JSON or YAML writer."""
    written = {
        **SCENARIO.write(snapshot),
        "cluster": CLUSTER.write(snapshot.cluster),
        "families": {family.name: FAMILY.write(family) for family in snapshot.cluster.families},
        "groups": {group.name: _group(group) for group in snapshot.groups},
        "slices": [_slice(one) for one in snapshot.slices],
        "demands": [_demand(one) for one in snapshot.demands],
        "requests": [_demand(one) for one in snapshot.requests],
    }
    return {key: one for key, one in written.items() if one or key == "groups"}


def _group(group: Group) -> dict[str, Any]:
    return GROUP.write(group, without=("max",) if group.max_of_family else ())


def _slice(one: Slice) -> dict[str, Any]:
    return SLICE.write(one) | {"state": str(one.state), "nodes": [_node(node) for node in one.nodes]}


def _node(node: Node) -> dict[str, Any]:
    tasks = {} if node.tasks == (1 if node.used else 0) else {"tasks": node.tasks}
    return NODE.write(node, without=("tasks",)) | tasks


def _demand(demand: Demand) -> dict[str, Any]:
    if demand.gang is None and len(demand.bundles) == 1:
        whole = _with_all(demand)
        return DEMAND.write(demand, without=BUNDLE.keys) | BUNDLE.write(whole)
    gang = {} if demand.gang is None else {"gang": str(demand.gang)}
    return DEMAND.write(demand) | gang | {"bundles": [BUNDLE.write(bundle) for bundle in demand.bundles]}


def _with_all(demand: Demand) -> Bundle:
    """Returns the one bundle of a single demand, with everything that the demand says about where it goes."""
    bundle = demand.bundles[0]
    rules = rules_of(demand, bundle)
    where, prefer, tolerates, any_of = selector_of(demand, bundle)
    return Bundle(
        bundle.needs,
        bundle.count,
        where,
        prefer,
        tolerates,
        any_of[0] if any_of else (),
        rules.classes,
        rules.apart,
        rules.spread,
        rules.together,
    )
