"""This module translates NodeProvisioners into groups, and checks them again for servers that do not check them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from windlass.core.model.quantities import NANO, BadQuantity
from windlass.core.model.snapshot import Group, ScaleDown, UtilizationTarget, amounts
from windlass.kubernetes_api.names import PROVISIONER
from windlass.kubernetes_api.objects import Budget, DaemonSet, NodeProvisioner, ProvisionerSpec

from .conditions import NeverMatches, alternatives_of, taints_of, tolerated
from .pods import shape_of
from .quantities import core_name, number, parsed
from .schedules import cron, duration, is_open

DEVICES: Final = "devices"
"""The planner's resource that counts all devices of a node."""
LOWEST_WEIGHT, HIGHEST_WEIGHT = 1, 100
EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Provisioned:
    """A NodeProvisioner in the planner's words."""

    group: Group
    provider: str
    settings: Mapping[str, Any]
    gpu: str
    """The planner's name of the resource that counts as use."""


def mistakes_in(provisioner: NodeProvisioner) -> list[str]:
    """What is wrong with a NodeProvisioner, field by field; empty if nothing is."""
    spec, wrong = provisioner.spec, []

    def refuse(field: str, why: str) -> None:
        wrong.append(f"spec.{field}: {why}")

    if len(provisioner.metadata.name) > 63:
        wrong.append("metadata.name: must be 63 characters at most: it is the value of a label")
    if not spec.template.resources:
        refuse("template.resources", "is required: what one node offers to pods")
    else:
        for name, text in spec.template.resources.items():
            try:
                parsed({name: text})
            except BadQuantity as error:
                refuse(f"template.resources.{name}", str(error))
    for place, device in enumerate(spec.template.devices or ()):
        if not device.driver:
            refuse(f"template.devices[{place}].driver", "is required: the name of the DRA driver")
        if device.count < 1:
            refuse(f"template.devices[{place}].count", f"must be at least 1, is {device.count}")
        for name, text in (device.capacity or {}).items():
            try:
                number(str(text.get("value") if isinstance(text, dict) else text))
            except BadQuantity as error:
                refuse(f"template.devices[{place}].capacity.{name}", str(error))
    for field in ("taints", "startup_taints"):
        for place, taint in enumerate(getattr(spec.template, field) or ()):
            if taint.effect not in EFFECTS:
                refuse(f"template.{field}[{place}].effect", f"must be one of {', '.join(EFFECTS)}, is {taint.effect!r}")
    if spec.min_gpu_utilization_percent is not None and not 1 <= spec.min_gpu_utilization_percent <= 100:
        refuse("minGPUUtilizationPercent", f"must be between 1 and 100, is {spec.min_gpu_utilization_percent}")
    for field, value in (
        ("minUnutilizedGPUNodes", spec.min_unutilized_gpu_nodes),
        ("minNodes", spec.min_nodes),
        ("maxNodes", spec.max_nodes),
        ("actionsPerLoop", spec.actions_per_loop),
    ):
        if value < 0:
            refuse(field, f"must not be negative, is {value}")
    if spec.max_nodes < spec.min_nodes:
        refuse("maxNodes", f"must be at least minNodes ({spec.min_nodes}), is {spec.max_nodes}")
    if not LOWEST_WEIGHT <= spec.weight <= HIGHEST_WEIGHT:
        refuse("weight", f"must be between {LOWEST_WEIGHT} and {HIGHEST_WEIGHT}, is {spec.weight}")
    if spec.deletion_policy not in ("Drain", "Orphan"):
        refuse("deletionPolicy", f"must be Drain or Orphan, is {spec.deletion_policy!r}")
    try:
        duration(spec.scale_down_delay)
    except ValueError as error:
        refuse("scaleDownDelay", str(error))
    if spec.price is not None and _dollars(spec.price) is None:
        refuse("price", f"must be dollars per hour such as '2.50', is {spec.price!r}")
    for place, rule in enumerate(spec.repair or ()):
        if rule.status not in ("True", "False", "Unknown"):
            refuse(f"repair[{place}].status", f"must be True, False or Unknown, is {rule.status!r}")
        try:
            duration(rule.after)
        except ValueError as error:
            refuse(f"repair[{place}].after", str(error))
    for place, budget in enumerate(spec.budgets or ()):
        if why := _mistake_in_budget(budget):
            refuse(f"budgets[{place}]", why)
    return wrong


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
    """How many nodes may be leaving at once by the strictest budget that is in force; None: any number.

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
    """A NodeProvisioner without mistakes as a group. DaemonSets that will land on its nodes take their room first.

    ``devices``: what its nodes offer besides the resources of its template.
    """
    spec, name = provisioner.spec, provisioner.metadata.name
    labels = {**(spec.template.labels or {}), PROVISIONER: name}
    room = parsed(spec.template.resources)
    for needs in daemon_needs(spec, labels, daemons):
        for resource, amount in needs:
            if resource in room:
                room[resource] = max(0, room[resource] - amount)
    gpu = core_name(spec.gpu_resource)
    if devices:
        room = {**devices, **room}
        if gpu not in room and DEVICES in room:
            gpu = DEVICES  # its GPUs are had by claims only
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


def _scale_down(spec: ProvisionerSpec, gpu: str) -> ScaleDown | None:
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
    """What each DaemonSet that will run on a provisioner's nodes takes of one."""
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
