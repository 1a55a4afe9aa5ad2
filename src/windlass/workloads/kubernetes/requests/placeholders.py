"""This module makes placeholder pods: the pods that a request for room stands for."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from windlass.kubernetes_api.objects import Meta, ObjectCondition, Owner, Pod, PodStatus, PodTemplate
from windlass.workloads.kubernetes.translate.pods import MirroredPod, PodMirror

MOST: Final = 10_000
"""Placeholders of one object."""
_WAITING: Final = ObjectCondition("PodScheduled", "False", "Unschedulable")


class BadRequest(Exception):
    """A request that cannot be served; the text says why."""


class Placeholders:
    """Makes placeholder pods, and one shape object for all that are equal."""

    def __init__(self) -> None:
        self._mirror = PodMirror()

    def of(
        self, owner: Owner, namespace: str, template: PodTemplate, count: int, since: str | None, priority: int | None
    ) -> list[MirroredPod]:
        """``count`` equal pods. ``priority``: None for the template's own."""
        if count > MOST:
            raise BadRequest(f"asks for {count} pods; at most {MOST} are planned for")
        spec = template.spec if priority is None else msgspec.structs.replace(template.spec, priority=priority)
        meta = Meta(
            name=owner.name,
            namespace=namespace,
            creation_timestamp=since,
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(Owner(owner.kind, owner.name, owner.uid, True),),
        )
        first = self._mirror(Pod(meta, spec, PodStatus(conditions=(_WAITING,))))
        return [replace(first, name=f"{owner.name} {number}") for number in range(count)]
