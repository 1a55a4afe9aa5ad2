"""This module serves ProvisioningRequests: room for a whole set of pods or for none, booked for some minutes.

``check-capacity`` checks whether existing nodes have the room. ``best-effort-atomic-scale-up`` also buys machines. The
room is then booked: placeholder pods keep it until the pods that consume the request exist, or until the booking
expires. All state is in the conditions of the object, so it survives a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from windlass.core.model.conditions import Condition
from windlass.core.model.lifecycle import State
from windlass.core.model.plan import Plan
from windlass.core.model.reasons import IMPOSSIBLE, Code, seconds
from windlass.kubernetes_api.autoscaling_objects import PodTemplateObject, ProvisioningRequest
from windlass.kubernetes_api.names import NODE_NAME
from windlass.kubernetes_api.objects import Owner, condition_of, is_true, unix
from windlass.workloads.kubernetes.translate.pods import MirroredPod
from windlass.workloads.protocol import DecisionReport

from .placeholders import BadRequest, Placeholders

KIND: Final = "ProvisioningRequest"
CHECK: Final = "check-capacity.autoscaling.x-k8s.io"
BUY: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
BOOKING: Final = 600.0
"""Seconds for which room is booked."""
BOOKED: Final = 2**31
"""The priority of booked room: above that of any pod."""
ON_A_NODE: Final = Condition(NODE_NAME, "exists", ())
"""A condition that existing nodes meet, and no machine that would have to be bought."""

NEVER: Final = IMPOSSIBLE | {Code.NO_SHAPE_FITS}

WantedCondition = tuple[bool, str, str]


@dataclass(frozen=True, slots=True)
class OpenRequest:
    """A request that is neither failed nor expired."""

    key: str
    item: ProvisioningRequest
    provisioned_at: float | None
    held: int
    """Placeholders that it still needs."""
    wrong: str = ""

    @property
    def demand(self) -> str:
        return f"{self.item.metadata.namespace}/{KIND}/{self.item.metadata.name}"

    @property
    def buys(self) -> bool:
        return self.provisioned_at is None and self.item.spec.provisioning_class_name == BUY


class ProvisioningRequests:
    """The ProvisioningRequests of one cluster."""

    def __init__(self, requests: Callable[[], Mapping[str, ProvisioningRequest]], now: Callable[[], float]) -> None:
        self._requests, self._now = requests, now
        self._placeholders = Placeholders()
        self.open: dict[str, OpenRequest] = {}
        """By the key of the object."""

    def placeholders(
        self, templates: Mapping[str, PodTemplateObject], consumers: Iterable[MirroredPod]
    ) -> list[MirroredPod]:
        """Return the placeholder pods of all open requests. ``consumers``: pods that consume one, waiting or bound."""
        using: dict[str, list[MirroredPod]] = {}
        for pod in consumers:
            using.setdefault(f"{pod.namespace}/{pod.consumes}", []).append(pod)
        self.open = {}
        found: list[MirroredPod] = []
        for key, item in sorted(self._requests().items()):
            conditions = item.status.conditions
            if item.spec.provisioning_class_name not in (CHECK, BUY):
                continue  # another controller's
            if is_true(conditions, "Failed") or is_true(conditions, "BookingExpired"):
                continue
            at = None
            if is_true(conditions, "Provisioned"):
                provisioned = condition_of(conditions, "Provisioned")
                at = unix(provisioned.last_transition_time if provisioned is not None else None) or self._now()
            try:
                made = self._pods(item, templates, using.get(key, []), is_booked=at is not None)
            except BadRequest as error:
                self.open[key] = OpenRequest(key, item, at, 0, str(error))
                continue
            self.open[key] = OpenRequest(key, item, at, len(made))
            if at is None or self._now() - at < BOOKING:
                found += made
        return found

    def _pods(
        self,
        item: ProvisioningRequest,
        templates: Mapping[str, PodTemplateObject],
        using: list[MirroredPod],
        *,
        is_booked: bool,
    ) -> list[MirroredPod]:
        meta = item.metadata
        owner = Owner(KIND, meta.name, meta.uid)
        found: list[MirroredPod] = []
        for number, one in enumerate(item.spec.pod_sets or ()):
            name = f"{meta.namespace}/{one.pod_template_ref.name}"
            template = templates.get(name)
            if template is None:
                raise BadRequest(f"spec.podSets[{number}]: the PodTemplate {name} does not exist")
            owner = Owner(KIND, meta.name, meta.uid)
            found += self._placeholders.of(
                owner,
                meta.namespace,
                template.template,
                one.count,
                meta.creation_timestamp,
                BOOKED if is_booked else None,
            )
        for pod in using if is_booked else ():
            # A pod replaces an equal placeholder, or any other if there is no equal one.
            if found:
                equal = next((one for one in found if one.shape.needs == pod.shape.needs), found[0])
                found.remove(equal)
        return found

    def size(self, pod: MirroredPod) -> int | None:
        """Return how many placeholders of a request must be served together; None if the pod is not such a
        placeholder.
        """
        kind, _, name = pod.owner.partition("/")
        known = self.open.get(f"{pod.namespace}/{name}") if kind == KIND else None
        return known.held if known is not None else None

    def where(self, pod: MirroredPod) -> tuple[Condition, ...]:
        """Return where a placeholder may be placed: a check, or booked room, never buys a machine."""
        kind, _, name = pod.owner.partition("/")
        known = self.open.get(f"{pod.namespace}/{name}") if kind == KIND else None
        return (ON_A_NODE,) if known is not None and not known.buys else ()

    def withholds(self, pod: MirroredPod) -> bool:
        """Whether a waiting pod must not cause a purchase, because the request that it consumes is not served yet."""
        known = self.open.get(f"{pod.namespace}/{pod.consumes}") if pod.consumes else None
        return known is not None and known.provisioned_at is None

    def statuses(
        self, decision: DecisionReport, not_understood: Mapping[str, str]
    ) -> dict[str, dict[str, WantedCondition]]:
        """Return the wanted conditions of each open request."""
        if decision.plan is None:
            return {}
        found = {}
        for key, one in self.open.items():
            namespace, _, name = key.partition("/")
            wrong = one.wrong or not_understood.get(f"{namespace}/{name} 0", "")
            found[key] = self._conditions(one, decision, decision.plan, wrong)
        return found

    def _conditions(
        self, one: OpenRequest, decision: DecisionReport, plan: Plan, wrong: str
    ) -> dict[str, WantedCondition]:
        if one.provisioned_at is not None:
            age = self._now() - one.provisioned_at
            if age < BOOKING:
                return {}
            return {"BookingExpired": (True, "BookingExpired", f"the room was booked for {seconds(BOOKING)}")}
        if wrong:
            return {"Accepted": (False, "UNKNOWN_INPUT", wrong)}
        conditions: dict[str, WantedCondition] = {"Accepted": (True, "Accepted", "Windlass plans for it")}
        placed = [item for item in plan.placements if item.demand == one.demand]
        waiting = next((item for item in plan.waiting if item.demand == one.demand), None)
        ready = sum(
            item.count
            for item in placed
            if (decided := decision.slices.get(item.on)) is not None and decided.state == State.READY
        )
        if one.held and ready == one.held:
            return conditions | {"Provisioned": (True, "CapacityIsFound", f"there is room for all {one.held} pods")}
        if not placed and waiting is None:
            return conditions  # it came after this plan was made
        age = self._now() - (unix(one.item.metadata.creation_timestamp) or self._now())
        parameters = one.item.spec.parameters or {}
        limit = parameters.get("ValidUntilSeconds", "")
        why = f"{ready} of {one.held} pods have room"
        code = "Provisioning"
        if waiting is not None:
            code, why = str(waiting.reason.code), waiting.reason.why
        checks = one.item.spec.provisioning_class_name == CHECK
        if waiting is not None and checks:
            code, why = "CapacityIsNotFound", f"the nodes that are there have no room for all {one.held} pods"
        impossible = waiting is not None and not checks and waiting.reason.code in NEVER
        given_up = limit.isdigit() and age >= int(limit)
        once = checks and waiting is not None and parameters.get("noRetry", "").lower() == "true"
        if impossible or given_up or once:
            if given_up and not impossible:
                why = f"not served within {limit} s: {why}"
            return conditions | {"Failed": (True, code, why), "Provisioned": (False, code, why)}
        return conditions | {"Provisioned": (False, code, why)}
