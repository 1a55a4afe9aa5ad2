"""Recorded messages of real Ray heads, and functions that make small ones."""

from __future__ import annotations

from pathlib import Path

from windlass.workloads.ray import wire_pb2 as wire

RECORDED = Path(__file__).parent / "ray_recorded"
VERSIONS = ("2.48", "2.60")

_KINDS = {
    "state": wire.ClusterResourceState,
    "nodes": wire.GetAllNodeInfoReply,
    "actors": wire.GetAllActorInfoReply,
    "load": wire.ResourceLoad,
}


def recorded(version, name):
    """One recorded message: ``busy_state``, ``dead_nodes`` and so on."""
    message = _KINDS[name.rpartition("_")[2]]()
    message.ParseFromString((RECORDED / version / f"{name}.binpb").read_bytes())
    return message


def node(number, *, status=wire.NODE_IDLE, cpu=2, free=None, idle=0.0, kind="worker", labels=None, dynamic=None):
    """One node of slice ``worker-NUMBER``."""
    return wire.NodeState(
        node_id=f"node-{number}".encode(),
        instance_id=f"worker-{number}/0",
        ray_node_type_name=kind,
        total_resources={"CPU": cpu, "node:127.0.0.2": 1, "object_store_memory": 1e8},
        available_resources={"CPU": cpu if free is None else free, "node:127.0.0.2": 1, "object_store_memory": 1e8},
        status=status,
        idle_duration_ms=int(1000 * idle),
        labels=labels or {},
        dynamic_labels=dynamic or {},
    )


def actor(number, state=1):
    return wire.ActorTableData(state=state, address=wire.Address(node_id=f"node-{number}".encode()))


def cluster(*nodes, tasks=None, widgets=0):
    """A state with these nodes and so many tasks of 1 CPU that wait."""
    state = wire.ClusterResourceState(node_states=nodes)
    if tasks:
        state.pending_resource_requests.append(request({"CPU": 1}, tasks))
    if widgets:
        state.pending_resource_requests.append(request({"CPU": 1, "widget": 1}, widgets))
    return state


def request(resources, count, *selectors):
    return wire.ResourceRequestByCount(
        request=wire.ResourceRequest(resources_bundle=resources, label_selectors=selectors), count=count
    )


def load(tasks):
    return wire.ResourceLoad(
        resource_demands=[wire.ResourceDemand(shape={"CPU": 1}, num_infeasible_requests_queued=tasks)] if tasks else []
    )
