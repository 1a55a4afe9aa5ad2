"""This module imports a Ray cluster file (``ray up``).

Each node type becomes a group of single-host slices. Windlass does not buy the head; it is
started as before; its node type becomes a group only if Ray may start workers of it (``max_workers`` above 0).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from windlass.scenario.reader import Path, is_name, shown
from windlass.scenario.schema import MOST_SLICES

from .base import ImportDraft, ImportReader, stand_in

RESOURCES: Final = {"CPU": "cpu", "GPU": "gpu", "TPU": "tpu"}
"""Ray's own names; all others are kept."""

MAX_WORKERS: Final = 2
IDLE_MINUTES: Final = 5
CONCURRENT: Final = 10
"""The number of nodes that Ray's own autoscaler launches at once, over all types."""
GCS_PORT: Final = 6379
_PORT: Final = re.compile(r"--port[= ](\d+)")
_ADDRESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

LEGACY_TYPE: Final = "ray.worker.default"
CARRIED: Final = {
    *("available_node_types", "cluster_name", "head_node_type", "idle_timeout_minutes", "max_workers", "min_workers"),
    *("provider", "upscaling_speed", "worker_nodes"),
}
CARRIED_OF_TYPE: Final = {"node_config", "resources", "labels", "min_workers", "max_workers", "idle_timeout_s"}
OWN: Final = {"target_utilization_fraction": "Windlass fills running machines first and buys for the rest"}
WHY: Final = "setting up nodes is left to the provider and the workload"


def import_ray(reader: ImportReader, data: object) -> ImportDraft:
    """Make a draft of a Ray cluster file."""
    file = reader.mapping((), data)
    draft = ImportDraft("Ray", "a Ray cluster file")
    for key, value in file.items():
        if key not in CARRIED and value not in (None, "", [], {}) and not (key == "auth" and _login(file)):
            draft.note((key,), OWN.get(key, WHY))
    most = reader.integer(("max_workers",), file.get("max_workers"), MAX_WORKERS, high=MOST_SLICES)
    draft.cluster["max_nodes"] = most
    draft.note(("max_workers",), "Ray does not count the head, and neither does max_nodes", "cluster")
    speed = file.get("upscaling_speed")
    if speed is not None:
        factor = _speed(reader, speed)
        draft.cluster["max_concurrent_launches"] = CONCURRENT
        text = (
            f"as in Ray, at most max(1, {factor:g} x running) of a group and {CONCURRENT} over all come up at once; "
            "without upscaling_speed and max_concurrent_launches it is faster"
        )
        draft.note(("upscaling_speed",), text, "cluster")
    provider = reader.part(("provider",), file.get("provider"))
    seller = provider.get("type")
    seller = seller if isinstance(seller, str) and is_name(seller) else "ray"
    machines = _machines(provider)
    if machines:
        draft.providers[seller] = {"type": "ssh", "hosts": machines, **_login(file), "connect": "direct"}
    else:
        stand_in(draft, ("provider", "type"), seller)
    carried = {"type", "head_ip", "worker_ips"} if machines else {"type"}
    rest = {key: value for key, value in provider.items() if key not in carried and value is not None}
    if rest:
        text = ", ".join(f"{key} {shown(value)}" for key, value in rest.items())
        draft.note(("provider",), f"not carried over: {text}", "providers")

    minutes = reader.number(("idle_timeout_minutes",), file.get("idle_timeout_minutes"), IDLE_MINUTES, low=0, high=1e7)
    for at, name, kind in _node_types(reader, draft, file):
        head = name == file.get("head_node_type")
        _group(reader, draft, at, name, kind, most=0 if head else most, idle=minutes * 60, head=head)
    if speed is not None:
        for group in draft.groups.values():
            group["upscaling_speed"] = _speed(reader, speed)
    draft.workload = {"type": "ray", "address": _head(draft, file, provider)}
    return draft


def _machines(provider: Mapping[str, Any]) -> list[str]:
    """Return the machines of an on-premise file; none: it is another file, or its list is wrong."""
    found = provider.get("worker_ips")
    known = isinstance(found, list) and all(isinstance(one, str) and _ADDRESS.fullmatch(one) for one in found)
    return list(dict.fromkeys(found)) if known and isinstance(found, list) else []


def _login(file: Mapping[str, Any]) -> dict[str, str]:
    """Return how the machines of an on-premise file are reached with SSH; nothing for other files."""
    provider, auth = file.get("provider"), file.get("auth")
    if not isinstance(provider, Mapping) or not _machines(provider) or not isinstance(auth, Mapping):
        return {}
    names = {"user": auth.get("ssh_user"), "key_file": auth.get("ssh_private_key")}
    return {key: value for key, value in names.items() if isinstance(value, str) and is_name(value)}


def _speed(reader: ImportReader, speed: object) -> float:
    factor = reader.parsed(("upscaling_speed",), speed, float, "a number") or 0.0
    if not 0 <= factor <= MOST_SLICES:
        reader.wrong(("upscaling_speed",), f"must be a number from 0 on, is {shown(speed)}")
        factor = 0.0
    return factor


def _head(draft: ImportDraft, file: Mapping[str, Any], provider: Mapping[str, Any]) -> str:
    """Return the address of the GCS. Only a file of on-premise machines has its host."""
    commands = file.get("head_start_ray_commands")
    port = _PORT.search(" ".join(map(str, commands)) if isinstance(commands, list) else "")
    host = provider.get("head_ip")
    if not isinstance(host, str) or not is_name(host):
        host = "127.0.0.1"
        draft.note(("workload",), "the head's host is not in the file: write it in place of 127.0.0.1", "workload")
    return f"{host}:{port[1] if port else GCS_PORT}"


def _node_types(
    reader: ImportReader, draft: ImportDraft, file: Mapping[str, Any]
) -> list[tuple[Path, str, Mapping[str, Any]]]:
    named = file.get("available_node_types")
    if named is None:  # the old format without node types: one kind of worker
        text = f"none are given: the workers become the group {LEGACY_TYPE}"
        draft.note(("available_node_types",), text, f"groups.{LEGACY_TYPE}")
        kind = {"node_config": file.get("worker_nodes"), "min_workers": file.get("min_workers")}
        return [((), LEGACY_TYPE, kind)]
    if file.get("min_workers") is not None:
        draft.note(("min_workers",), "Ray ignores it in a file with node types; it has no effect", "cluster")
    at = ("available_node_types",)
    return [((*at, name), name, reader.part((*at, name), kind)) for name, kind in reader.mapping(at, named).items()]


def _group(
    reader: ImportReader,
    draft: ImportDraft,
    at: Path,
    name: str,
    kind: Mapping[str, Any],
    *,
    most: int,
    idle: float,
    head: bool,
) -> None:
    above = f"groups.{name}"
    least = reader.integer((*at, "min_workers"), kind.get("min_workers"), 0, high=MOST_SLICES)
    limit = reader.integer((*at, "max_workers"), kind.get("max_workers"), max(most, least), high=MOST_SLICES)
    if limit < least:
        reader.wrong((*at, "max_workers"), f"must be at least min_workers ({least}), is {limit}")
    if head:
        text = "the head is not bought by Windlass: start it as before"
        if not limit:
            draft.note((*at,), text + "; Ray starts no workers of this type, so there is no group for it")
            return
        draft.note((*at,), text + "; this group is for workers of the same type", above)
    for key, value in kind.items():
        if key not in CARRIED_OF_TYPE and value not in (None, "", [], {}):
            draft.note((*at, key), WHY, above)
    group: dict[str, Any] = {"resources": _resources(reader, draft, (*at, "resources"), kind.get("resources"), above)}
    if labels := reader.labels((*at, "labels"), kind.get("labels")):
        group["labels"] = labels
    group |= {"min": least, "max": limit}
    config = reader.part((*at, "node_config"), kind.get("node_config"))
    if _is_spot(config):
        group["preemptible"] = True
    if any(key in config for key in ("acceleratorType", "acceleratorConfig")):
        draft.note((*at, "node_config"), "a TPU slice: give hosts if it has more than one", above)
    own = reader.span((*at, "idle_timeout_s"), kind.get("idle_timeout_s"))
    timeout = idle if own is None else own
    group["scale_down"] = {"idle_timeout": int(timeout) if timeout == int(timeout) else timeout}
    if config:
        group["settings"] = dict(config)
    draft.groups[name] = group


def _resources(reader: ImportReader, draft: ImportDraft, at: Path, value: object, above: str) -> dict[str, Any]:
    found = {}
    for name, amount in reader.part(at, value).items():
        ours = RESOURCES.get(name, name)
        if (given := reader.amount((*at, name), amount, ours)) is not None:
            found[ours] = given
    if not found:
        draft.note(at, "not given (Ray asks the provider): write what one machine has, or nothing will fit", above)
    return found


def _is_spot(config: Mapping[str, Any]) -> bool:
    """Return whether the cloud may preempt the machine, in the words of AWS, GCP and Azure."""
    market = config.get("InstanceMarketOptions")
    if isinstance(market, Mapping) and market.get("MarketType") == "spot":
        return True
    scheduling = config.get("scheduling") or config.get("schedulingConfig")
    for one in scheduling if isinstance(scheduling, list) else [scheduling]:
        if isinstance(one, Mapping) and (one.get("preemptible") is True or one.get("provisioningModel") == "SPOT"):
            return True
    azure = config.get("azure_arm_parameters")
    return isinstance(azure, Mapping) and azure.get("priority") in ("Spot", "Low")
