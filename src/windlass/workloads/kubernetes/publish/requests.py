"""This module writes the status of CapacityBuffers and ProvisioningRequests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from windlass.kubernetes_api.api import patched
from windlass.kubernetes_api.autoscaling_objects import CapacityBuffer, ProvisioningRequest
from windlass.workloads.kubernetes.mirror import CAPACITY_BUFFERS, PROVISIONING_REQUESTS
from windlass.workloads.kubernetes.translate.demand import WaitingPods
from windlass.workloads.kubernetes.workload import KubernetesWorkload
from windlass.workloads.protocol import DecisionReport

from .status import merged
from .work_queue import WorkQueue

WantedConditions = Mapping[str, tuple[bool, str, str]]


class RequestStatuses:
    """Writes statuses that differ from the mirror."""

    def __init__(self, workload: KubernetesWorkload, queue: WorkQueue, now: Callable[[], float]) -> None:
        self._workload, self._api, self._queue, self._now = workload, workload.api, queue, now

    def show(self, decision: DecisionReport, waiting: WaitingPods) -> None:
        """Queue the writes that a decision makes necessary."""
        mirror, wrong = self._workload.mirror, waiting.not_understood
        for key, wanted in self._workload.buffers.statuses(decision, wrong).items():
            buffer = mirror.buffers.store.get(key)
            more = {"replicas": wanted["replicas"]}
            if buffer is not None and (
                merged(buffer.status.conditions, wanted["conditions"], self._now()) is not None
                or buffer.status.replicas != more["replicas"]
            ):
                self._put(CapacityBuffer, CAPACITY_BUFFERS, key, wanted["conditions"], more)
        for key, conditions in self._workload.room_requests.statuses(decision, wrong).items():
            request = mirror.room_requests.store.get(key)
            if request is not None and merged(request.status.conditions, conditions, self._now()):
                self._put(ProvisioningRequest, PROVISIONING_REQUESTS, key, conditions, {})

    def _put(
        self,
        kind: type[CapacityBuffer | ProvisioningRequest],
        path: str,
        key: str,
        wanted: WantedConditions,
        more: Mapping[str, Any],
    ) -> None:
        namespace, _, name = key.partition("/")
        group, _, plural = path.rpartition("/")
        place = f"{group}/namespaces/{namespace}/{plural}/{name}"

        async def write() -> None:
            def change(current: CapacityBuffer | ProvisioningRequest) -> dict[str, Any] | None:
                status: dict[str, Any] = dict(more)
                conditions = merged(current.status.conditions, wanted, self._now())
                if conditions is not None:
                    status["conditions"] = conditions
                return {"status": status} if status else None

            await patched(self._api, place, kind, change, subresource="/status")

        self._queue.put(f"{kind.__name__} {key}", write)
