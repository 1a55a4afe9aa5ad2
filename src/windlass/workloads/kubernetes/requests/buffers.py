"""This module turns CapacityBuffers into placeholder pods: free room for later pods.

Every real pod has precedence over a placeholder. A placeholder is placed on free room like a waiting pod, so its node
is kept. When real pods take the room, the placeholder waits again and a machine is bought for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from windlass.core.model.lifecycle import State
from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.autoscaling_objects import CapacityBuffer, PodTemplateObject, Scalable, ScalableReference
from windlass.kubernetes_api.objects import Owner, PodTemplate
from windlass.workloads.kubernetes.translate.pods import MirroredPod, needs_of
from windlass.workloads.kubernetes.translate.quantities import core_name, parsed
from windlass.workloads.protocol import DecisionReport

from .placeholders import MOST, BadRequest, Placeholders

KIND: Final = "CapacityBuffer"
ACTIVE: Final = "buffer.x-k8s.io/active-capacity"
PRIORITY: Final = -(2**31) - 1
"""A priority below that of any pod."""
SCALABLES: Final = {
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "ReplicaSet": "replicasets",
}
REFRESH: Final = 15.0
"""Seconds after which the object of a buffer's scalableRef is read again."""


def chunks(buffer: CapacityBuffer, template: PodTemplate, replicas: int | None) -> int:
    """Return how many placeholders a buffer stands for. ``replicas``: of the object that it follows, if it follows
    one.
    """
    spec = buffer.spec
    wanted = []
    if spec.replicas is not None:
        wanted.append(spec.replicas)
    if spec.percentage is not None and replicas is not None:
        wanted.append(max(1, -(-replicas * spec.percentage // 100)) if replicas and spec.percentage else 0)
    most = MOST
    if spec.limits:
        needs = needs_of(template.spec)
        for name, limit in parsed(spec.limits).items():
            if need := needs.get(core_name(name)):
                most = min(most, limit // need)
    elif not wanted:
        raise BadRequest("has neither replicas nor percentage nor limits")
    return min(max(wanted, default=most), most)


class CapacityBuffers:
    """The buffers of one cluster."""

    def __init__(self, api: Api, buffers: Callable[[], Mapping[str, CapacityBuffer]], now: Callable[[], float]) -> None:
        self._api, self._buffers, self._now = api, buffers, now
        self._placeholders = Placeholders()
        self._scalables: dict[ScalableKey, tuple[float, Scalable | str]] = {}
        self._wanted: dict[str, tuple[int, str]] = {}
        """The placeholders of each buffer, and its error."""

    async def refresh(self) -> None:
        """Read the objects of scalableRefs that were not read for a while."""
        wanted = {}
        for buffer in self._buffers().values():
            reference = buffer.spec.scalable_ref
            if reference is not None:
                wanted[(buffer.metadata.namespace, reference)] = reference
        self._scalables = {key: one for key, one in self._scalables.items() if key in wanted}
        for key, reference in wanted.items():
            known = self._scalables.get(key)
            if known is None or self._now() - known[0] >= REFRESH:
                self._scalables[key] = (self._now(), await self._read(key[0], reference))

    async def _read(self, namespace: str, reference: ScalableReference) -> Scalable | str:
        plural = SCALABLES.get(reference.kind)
        if plural is None or reference.api_group not in ("", "apps"):
            return f"spec.scalableRef.kind {reference.kind} is not known; known are {', '.join(SCALABLES)}"
        try:
            return await self._api.get(f"/apis/apps/v1/namespaces/{namespace}/{plural}/{reference.name}", Scalable)
        except ApiError as error:
            return f"the {reference.kind} {namespace}/{reference.name} cannot be read: {error}"

    def placeholders(self, templates: Mapping[str, PodTemplateObject]) -> list[MirroredPod]:
        """Return the placeholder pods of all buffers."""
        found: list[MirroredPod] = []
        self._wanted = {}
        for key, buffer in sorted(self._buffers().items()):
            if buffer.spec.provisioning_strategy not in (None, "", ACTIVE):
                continue  # another controller's
            try:
                template, replicas = self._shape(buffer, templates)
                count = chunks(buffer, template, replicas)
                meta = buffer.metadata
                owner = Owner(KIND, meta.name, meta.uid)
                made = self._placeholders.of(owner, meta.namespace, template, count, meta.creation_timestamp, PRIORITY)
                self._wanted[key] = (count, "")
                found += made
            except BadRequest as error:
                self._wanted[key] = (0, str(error))
        return found

    def _shape(
        self, buffer: CapacityBuffer, templates: Mapping[str, PodTemplateObject]
    ) -> tuple[PodTemplate, int | None]:
        spec, namespace = buffer.spec, buffer.metadata.namespace
        if spec.scalable_ref is not None:
            known = self._scalables.get((namespace, spec.scalable_ref), (0.0, "was not read yet"))[1]
            if isinstance(known, str):
                raise BadRequest(known)
            return known.spec.template, known.spec.replicas
        name = spec.pod_template_ref.name if spec.pod_template_ref is not None else ""
        template = templates.get(f"{namespace}/{name}")
        if template is None:
            raise BadRequest(f"the PodTemplate {namespace}/{name} does not exist")
        return template.template, None

    def statuses(self, decision: DecisionReport, not_understood: Mapping[str, str]) -> dict[str, dict[str, Any]]:
        """Return the wanted status of each buffer: replicas, and the conditions as (holds, reason, message)."""
        if decision.plan is None:
            return {}
        there: dict[str, int] = {}
        for one in decision.plan.placements:
            decided = decision.slices.get(one.on)
            if decided is not None and decided.state == State.READY:
                owner = one.demand.partition("#")[0]
                there[owner] = there.get(owner, 0) + one.count
        waiting = {one.demand.partition("#")[0]: one.reason for one in decision.plan.waiting}
        found = {}
        for key, (count, wrong) in self._wanted.items():
            namespace, _, name = key.partition("/")
            demand = f"{namespace}/{KIND}/{name}"
            wrong = wrong or not_understood.get(f"{namespace}/{name} 0", "")
            has = there.get(demand, 0)
            why = waiting.get(demand)
            text = f"{has} of {count} placeholders have room" + (f": {why.why}" if why is not None else "")
            ready = (not wrong, "Ready" if not wrong else "Invalid", wrong)
            code = "Provisioned" if has >= count else str(why.code) if why is not None else "Provisioning"
            found[key] = {
                "replicas": has,
                "conditions": {
                    "ReadyForProvisioning": ready,
                    "Provisioned": (not wrong and has >= count, code, text),
                },
            }
        return found


ScalableKey = tuple[str, ScalableReference]
