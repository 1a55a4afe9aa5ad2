"""This module imports a RayCluster of KubeRay (``kind: RayCluster``).

Each worker group becomes a group of single-host slices that the provider ``kuberay`` sells. What one worker has is read
as KubeRay reads it: from ``rayStartParams``, else from the limits of the first container.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from windlass.core.model.quantities import parse_quantity
from windlass.scenario.reader import Path, is_name, shown
from windlass.scenario.schema import MOST_SLICES

from .base import ImportDraft, ImportReader
from .ray import GCS_PORT, RESOURCES

IDLE_SECONDS: Final = 60
"""The idle timeout of Ray's autoscaler for a RayCluster without ``idleTimeoutSeconds``."""
DEVICES: Final = {"google.com/tpu": "tpu"}
PROVIDER: Final = "kuberay"


def import_ray_cluster(reader: ImportReader, data: object) -> ImportDraft:
    """Make a draft of a RayCluster."""
    file = reader.mapping((), data)
    draft = ImportDraft("Ray", "a RayCluster")
    metadata = reader.part(("metadata",), file.get("metadata"))
    name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
    if not isinstance(name, str) or not is_name(name):
        reader.wrong(("metadata", "name"), f"must be the name of the RayCluster, is {shown(name)}")
        name = "unnamed"
    spec = reader.part(("spec",), file.get("spec"))
    if spec.get("enableInTreeAutoscaling") is True:
        text = "set it to false in the RayCluster before Windlass runs: two autoscalers would change the same replicas"
        draft.note(("spec", "enableInTreeAutoscaling"), text, "providers")
    options = reader.part(("spec", "autoscalerOptions"), spec.get("autoscalerOptions"))
    at = ("spec", "autoscalerOptions")
    given = reader.span((*at, "idleTimeoutSeconds"), options.get("idleTimeoutSeconds"))
    for key, value in options.items():
        if key != "idleTimeoutSeconds" and value not in (None, "", [], {}):
            draft.note((*at, key), "it configures Ray's own autoscaler, which Windlass replaces")
    draft.providers[PROVIDER] = {"type": "kuberay", "namespace": str(namespace), "cluster": name}
    groups = reader.items(("spec", "workerGroupSpecs"), spec.get("workerGroupSpecs"), "worker groups")
    for index, one in enumerate(groups):
        at_group: Path = ("spec", "workerGroupSpecs", index)
        _group(reader, draft, at_group, reader.mapping(at_group, one), IDLE_SECONDS if given is None else given)
    draft.workload = {"type": "ray", "address": f"{name}-head-svc.{namespace}.svc:{_port(reader, spec)}"}
    return draft


def _port(reader: ImportReader, spec: Mapping[str, Any]) -> int:
    head = reader.part(("spec", "headGroupSpec"), spec.get("headGroupSpec"))
    at = ("spec", "headGroupSpec", "rayStartParams")
    port = reader.part(at, head.get("rayStartParams")).get("port")
    return GCS_PORT if port is None else reader.integer((*at, "port"), _number(port), GCS_PORT, low=1, high=65535)


def _number(value: object) -> object:
    """KubeRay wants the parameters of ``ray start`` as text."""
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value


def _group(reader: ImportReader, draft: ImportDraft, at: Path, given: Mapping[str, Any], idle: int | float) -> None:
    name = reader.name((*at, "groupName"), given.get("groupName"))
    if name in draft.groups:
        reader.wrong((*at, "groupName"), f"{name} is the name of two worker groups")
    above = f"groups.{name}"
    hosts = reader.integer((*at, "numOfHosts"), given.get("numOfHosts"), 1, low=1, high=4096)
    if hosts != 1:
        draft.note(
            (*at, "numOfHosts"), f"{name} has {hosts} hosts per replica, which the provider cannot buy: no group"
        )
        return
    least = reader.integer((*at, "minReplicas"), given.get("minReplicas"), 0, high=MOST_SLICES)
    most = given.get("maxReplicas")
    if most is None or (isinstance(most, int) and most > MOST_SLICES):
        draft.note((*at, "maxReplicas"), f"not limited: max is {MOST_SLICES}; lower it to what you can pay for", above)
        most = MOST_SLICES
    most = reader.integer((*at, "maxReplicas"), most, MOST_SLICES, high=MOST_SLICES)
    if most < least:
        reader.wrong((*at, "maxReplicas"), f"must be at least minReplicas ({least}), is {most}")
    if least or given.get("replicas"):
        text = (
            "Windlass keeps min itself: set replicas and minReplicas to 0 in the RayCluster, or KubeRay keeps so many "
            "workers besides, which Windlass leaves alone"
        )
        draft.note((*at, "minReplicas" if least else "replicas"), text, above)
    group: dict[str, Any] = {"resources": _resources(reader, draft, at, given, above)}
    if labels := reader.labels((*at, "labels"), given.get("labels")):
        group["labels"] = labels
    own = reader.span((*at, "idleTimeoutSeconds"), given.get("idleTimeoutSeconds"))
    group |= {"min": least, "max": most, "scale_down": {"idle_timeout": idle if own is None else own}}
    draft.groups[name] = group


def _resources(
    reader: ImportReader, draft: ImportDraft, at: Path, given: Mapping[str, Any], above: str
) -> dict[str, Any]:
    at_spec = (*at, "template", "spec")
    template = reader.part((*at, "template"), given.get("template"))
    pod = reader.part(at_spec, template.get("spec"))
    containers = reader.items((*at_spec, "containers"), pod.get("containers"), "containers")
    at_container = (*at_spec, "containers", 0)
    first = reader.part(at_container, containers[0] if containers else None)
    at_resources = (*at_container, "resources")
    declared = reader.part(at_resources, first.get("resources"))
    limits = reader.part((*at_resources, "limits"), declared.get("limits"))
    requests = reader.part((*at_resources, "requests"), declared.get("requests"))
    found: dict[str, Any] = {}
    for key, value in {**{key: requests[key] for key in ("cpu",) if key in requests}, **limits}.items():
        ours = DEVICES.get(key, "gpu" if key.endswith("gpu") else key)
        if ours not in ("cpu", "gpu", "tpu", "memory"):
            continue
        amount = reader.amount((*at_resources, "limits", key), value, ours)
        if amount is not None:
            found[ours] = math.ceil(parse_quantity(amount, resource=ours) / 1000) if ours == "cpu" else _number(amount)
    at_start = (*at, "rayStartParams")
    start = reader.part(at_start, given.get("rayStartParams"))
    for key, ours in (("num-cpus", "cpu"), ("num-gpus", "gpu"), ("memory", "memory")):
        if key in start:
            found[ours] = reader.amount((*at_start, key), _number(start[key]), ours)
    for key, amount in _custom(reader, (*at_start, "resources"), start.get("resources")).items():
        found[RESOURCES.get(key, key)] = reader.amount((*at_start, "resources", key), amount, key)
    found = {key: value for key, value in found.items() if value}
    if not found:
        draft.note((*at_resources, "limits"), "not given: write what one worker has, or nothing will fit", above)
    return found


def _custom(reader: ImportReader, at: Path, value: object) -> Mapping[str, Any]:
    """Return custom resources from JSON that is quoted a second time for the shell."""
    if value is None:
        return {}
    try:
        data = json.loads(str(value))
        data = json.loads(data) if isinstance(data, str) else data
    except ValueError:
        try:
            data = json.loads(str(value).strip("'\"").replace('\\"', '"'))
        except ValueError:
            data = None
    if not isinstance(data, Mapping):
        reader.wrong(at, f'must be JSON such as {{"disk": 1}}, is {shown(value)}')
        return {}
    return data
