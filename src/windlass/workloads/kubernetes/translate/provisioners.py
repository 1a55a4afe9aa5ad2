"""This module translates NodeProvisioners into groups, and validates them for servers that ignore CEL rules."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from windlass.core.model.quantities import NANO, BadQuantity
from windlass.core.model.snapshot import Group, ScaleDown, UtilizationTarget, amounts
from windlass.kubernetes_api.names import CLAIM, DELETING, HOSTNAME, MARKED, PROVISIONER
from windlass.kubernetes_api.objects import (
    Budget,
    DaemonSet,
    DeviceTemplate,
    NodeProvisioner,
    PartitionTemplate,
    ProvisionerSpec,
)

from .conditions import NeverMatches, alternatives_of, taints_of, tolerated
from .pods import shape_of
from .quantities import core_name, number, parsed
from .schedules import cron, duration, is_open

DEVICES: Final = "devices"
"""The planner's resource that counts all devices of a node."""
LOWEST_WEIGHT, HIGHEST_WEIGHT = 1, 100
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
RESERVED: Final = frozenset({PROVISIONER, CLAIM, HOSTNAME})
"""Labels that differ from node to node, so a template cannot give them."""
_KEY: Final = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]{0,61})?[A-Za-z0-9]", re.ASCII)
_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A NodeProvisioner in the planner's model."""

    group: Group
    provider: str
    settings: Mapping[str, Any]
    gpu: str | None
    """The planner's name of the resource that counts as use; None: any pod counts."""


Mistakes = Iterator[tuple[str, str]]
"""Fields of a spec, each with what is wrong with it."""


def mistakes_in(provisioner: NodeProvisioner) -> list[str]:
    """Return the mistakes in a NodeProvisioner, each with its field; empty if it is valid."""
    name = provisioner.metadata.name
    wrong = ["metadata.name: must be 63 characters at most: it is the value of a label"] if len(name) > 63 else []
    wrong += [f"spec.{field}: {why}" for check in _CHECKS for field, why in check(provisioner.spec)]
    for place, budget in enumerate(provisioner.spec.budgets or ()):
        if why := _mistake_in_budget(budget):
            wrong.append(f"spec.budgets[{place}]: {why}")
    return wrong


def _wrong_resources(spec: ProvisionerSpec) -> Mistakes:
    if not spec.template.resources:
        yield "template.resources", "is required: what one node offers to pods"
    for name, text in (spec.template.resources or {}).items():
        try:
            if number(str(text)) < 0:
                yield f"template.resources.{name}", f"must not be negative, is {text}"
        except BadQuantity as error:
            yield f"template.resources.{name}", str(error)
    known = spec.gpu_resource == ProvisionerSpec().gpu_resource or spec.gpu_resource in (spec.template.resources or {})
    if not known and not spec.template.devices:
        yield "gpuResource", f"must be one of template.resources, is {spec.gpu_resource!r}"


def _wrong_devices(spec: ProvisionerSpec) -> Mistakes:
    for place, device in enumerate(spec.template.devices or ()):
        at = f"template.devices[{place}]"
        if not device.driver:
            yield f"{at}.driver", "is required: the name of the DRA driver"
        if device.count < 1:
            yield f"{at}.count", f"must be at least 1, is {device.count}"
        for field, why in _mistakes_in_device(device):
            yield f"{at}.{field}", why


def _wrong_labels(spec: ProvisionerSpec) -> Mistakes:
    for key, value in (spec.template.labels or {}).items():
        if not _is_key(key):
            yield f"template.labels.{key}", "is not the name of a label"
        elif not _is_value(value):
            yield f"template.labels.{key}", f"is not the value of a label: {value!r}"
        elif key in RESERVED:
            yield f"template.labels.{key}", "is set on each node by its controller or kubelet; remove it"


def _wrong_taints(spec: ProvisionerSpec) -> Mistakes:
    for field, taints in (("taints", spec.template.taints), ("startupTaints", spec.template.startup_taints)):
        seen: set[tuple[str, str]] = set()
        for place, taint in enumerate(taints or ()):
            at = f"template.{field}[{place}]"
            if taint.effect not in EFFECTS:
                yield f"{at}.effect", f"must be one of {', '.join(EFFECTS)}, is {taint.effect!r}"
            if not _is_key(taint.key):
                yield f"{at}.key", f"is not the key of a taint: {taint.key!r}"
            elif taint.key in (MARKED, DELETING):
                yield f"{at}.key", f"{taint.key} is set by the controller; remove it"
            if not _is_value(taint.value):
                yield f"{at}.value", f"is not the value of a taint: {taint.value!r}"
            if (taint.key, taint.effect) in seen:
                yield at, f"{taint.key}:{taint.effect} is there twice"
            seen.add((taint.key, taint.effect))


def _is_key(text: str) -> bool:
    """Whether the API server takes a text as the key of a label or taint."""
    return _KEY.fullmatch(text) is not None and len(text.rpartition("/")[0]) <= 253


def _is_value(text: str) -> bool:
    """Whether the API server takes a text as the value of a label or taint."""
    return _VALUE.fullmatch(text) is not None and len(text) <= 63


def _wrong_numbers(spec: ProvisionerSpec) -> Mistakes:
    if spec.min_gpu_utilization_percent is not None and not 1 <= spec.min_gpu_utilization_percent <= 100:
        yield "minGPUUtilizationPercent", f"must be between 1 and 100, is {spec.min_gpu_utilization_percent}"
    for field, value in (
        ("minUnutilizedGPUNodes", spec.min_unutilized_gpu_nodes),
        ("minNodes", spec.min_nodes),
        ("maxNodes", spec.max_nodes),
        ("actionsPerLoop", spec.actions_per_loop),
    ):
        if value < 0:
            yield field, f"must not be negative, is {value}"
    if spec.max_nodes < spec.min_nodes:
        yield "maxNodes", f"must be at least minNodes ({spec.min_nodes}), is {spec.max_nodes}"
    if not LOWEST_WEIGHT <= spec.weight <= HIGHEST_WEIGHT:
        yield "weight", f"must be between {LOWEST_WEIGHT} and {HIGHEST_WEIGHT}, is {spec.weight}"


def _wrong_words(spec: ProvisionerSpec) -> Mistakes:
    if spec.deletion_policy not in ("Drain", "Orphan"):
        yield "deletionPolicy", f"must be Drain or Orphan, is {spec.deletion_policy!r}"
    if why := _mistake_in_duration(spec.scale_down_delay):
        yield "scaleDownDelay", why
    if spec.price is not None and _dollars(spec.price) is None:
        yield "price", f"must be dollars per hour such as '2.50', is {spec.price!r}"


def _wrong_repair(spec: ProvisionerSpec) -> Mistakes:
    for place, rule in enumerate(spec.repair or ()):
        if rule.status not in ("True", "False", "Unknown"):
            yield f"repair[{place}].status", f"must be True, False or Unknown, is {rule.status!r}"
        if why := _mistake_in_duration(rule.after):
            yield f"repair[{place}].after", why


_CHECKS: Final = (
    _wrong_resources,
    _wrong_devices,
    _wrong_labels,
    _wrong_taints,
    _wrong_numbers,
    _wrong_words,
    _wrong_repair,
)


def _mistake_in_duration(text: str) -> str:
    try:
        duration(text)
    except ValueError as error:
        return str(error)
    return ""


def _mistakes_in_device(device: DeviceTemplate) -> Mistakes:
    """Return the mistakes in the amounts of a device and its partitions: field and text."""
    partitions = [(f"partitions[{place}].", one) for place, one in enumerate(device.partitions or ())]
    every: list[tuple[str, DeviceTemplate | PartitionTemplate]] = [("", device), *partitions]
    for prefix, one in every:
        for field in ("capacity", "counters"):
            for name, text in (getattr(one, field) or {}).items():
                try:
                    if number(str(text.get("value") if isinstance(text, dict) else text)) < 0:
                        yield f"{prefix}{field}.{name}", "must not be negative"
                except BadQuantity as error:
                    yield f"{prefix}{field}.{name}", str(error)
    for prefix, part in partitions:
        if part.count < 1:
            yield f"{prefix}count", f"must be at least 1, is {part.count}"
        if not part.counters:
            yield f"{prefix}counters", "is required: what the partition takes of its device's counters"
        for name in sorted(set(part.counters or {}) - set(device.counters or {})):
            yield f"{prefix}counters.{name}", "must be one of the device's own counters"
    if device.partitions and device.allow_multiple_allocations:
        yield "partitions", "cannot be combined with allowMultipleAllocations"


def _dollars(text: str) -> int | None:
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    return int(value * NANO) if value.is_finite() and 0 <= value <= 10**9 else None


def _mistake_in_budget(budget: Budget) -> str:
    text = str(budget.nodes)
    digits = text.removesuffix("%")
    if not digits.isdigit() or (text.endswith("%") and int(digits) > 100):
        return f"nodes must be a number such as 5 or a share such as 10%, is {text!r}"
    if (budget.schedule is None) != (budget.duration is None):
        return "schedule and duration go together"
    try:
        if budget.schedule is not None and budget.duration is not None:
            cron(budget.schedule)
            duration(budget.duration)
    except ValueError as error:
        return str(error)
    return ""


def allowed_to_leave(budgets: Iterable[Budget], nodes: int, now: float) -> int | None:
    """Return how many nodes may be leaving at once by the strictest budget that is in force; None: any number.

    A share is rounded up, so that a small provisioner can shrink at all.
    """
    limits = []
    for budget in budgets:
        if budget.schedule is not None and not is_open(budget.schedule, duration(budget.duration or "0s"), now):
            continue
        text = str(budget.nodes)
        share = text.endswith("%")
        limits.append(-(-nodes * int(text[:-1]) // 100) if share else int(text))
    return min(limits, default=None)


def group_of(
    provisioner: NodeProvisioner, daemons: Iterable[DaemonSet] = (), devices: Mapping[str, int] | None = None
) -> Provisioned:
    """Return the group of a valid NodeProvisioner. The requests of DaemonSets that will run on its nodes are
    subtracted.

    ``devices``: what its nodes offer besides the resources of its template.
    """
    spec, name = provisioner.spec, provisioner.metadata.name
    labels = {**(spec.template.labels or {}), PROVISIONER: name}
    room = parsed(spec.template.resources)
    for needs in daemon_needs(spec, labels, daemons):
        for resource, amount in needs:
            if resource in room:
                room[resource] = max(0, room[resource] - amount)
    room = {**(devices or {}), **room}
    gpu: str | None = core_name(spec.gpu_resource)
    if gpu not in room:
        gpu = DEVICES if DEVICES in room else None  # its GPUs are allocated by claims only, or it has none
    group = Group(
        name=name,
        resources=amounts(room),
        max=spec.max_nodes,
        labels=labels,
        taints=taints_of(spec.template.taints),
        min=spec.min_nodes,
        spare=spec.min_unutilized_gpu_nodes if spec.buy_buffer else 0,
        # The planner takes the lowest rank first, Kubernetes the highest weight.
        rank=HIGHEST_WEIGHT + 1 - spec.weight,
        price=_dollars(spec.price) if spec.price is not None else None,
        scale_down=_scale_down(spec, gpu),
        frozen=spec.paused,
    )
    return Provisioned(group, spec.provider, spec.template.settings or {}, gpu)


def held_group(provisioner: NodeProvisioner) -> Group:
    """The frozen group of a NodeProvisioner that has mistakes: nothing is bought, and nothing of it is released.

    Without a group its machines would be drained, as those of a deleted provisioner are.
    """
    spec, name = provisioner.spec, provisioner.metadata.name
    room: dict[str, int] = {}
    for resource, text in (spec.template.resources or {}).items():
        with suppress(BadQuantity):
            room |= parsed({resource: text})
    return Group(
        name=name,
        resources=amounts({resource: amount for resource, amount in room.items() if amount > 0}),
        max=max(0, spec.max_nodes),
        labels={**(spec.template.labels or {}), PROVISIONER: name},
        taints=taints_of(spec.template.taints),
        frozen=True,
    )


def _scale_down(spec: ProvisionerSpec, gpu: str | None) -> ScaleDown | None:
    if spec.min_gpu_utilization_percent is None:
        return None
    rule = UtilizationTarget(
        percent=spec.min_gpu_utilization_percent,
        delay=duration(spec.scale_down_delay),
        spare_nodes=spec.min_unutilized_gpu_nodes,
        resource=gpu,
    )
    return ScaleDown(utilization=rule)


def daemon_needs(
    spec: ProvisionerSpec, labels: Mapping[str, str], daemons: Iterable[DaemonSet]
) -> list[tuple[tuple[str, int], ...]]:
    """Return the requests of each DaemonSet that will run on a provisioner's nodes."""
    found = []
    for daemon in daemons:
        template = daemon.spec.template.spec
        shape = shape_of(template)
        if any(labels.get(key) != value for key, value in shape.selector):
            continue
        try:
            terms = alternatives_of(shape.affinity)
        except NeverMatches:
            continue
        if terms and not any(all(one.holds(labels) for one in term) for term in terms):
            continue
        hard = [taint for taint in spec.template.taints or () if taint.effect != "PreferNoSchedule"]
        if all(tolerated(taint, template.tolerations or ()) for taint in hard):
            found.append(shape.needs)
    return found
