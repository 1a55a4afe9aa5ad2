"""This module defines the objects of ``autoscaling.x-k8s.io`` and those that they refer to."""

from __future__ import annotations

from .objects import Meta, ObjectCondition, PodTemplate, Quantities, Struct


class PodTemplateObject(Struct, frozen=True):
    """A PodTemplate of the core API."""

    metadata: Meta
    template: PodTemplate = PodTemplate()


class NameReference(Struct, frozen=True):
    name: str = ""


class ScalableReference(Struct, frozen=True):
    kind: str = ""
    name: str = ""
    api_group: str = ""


class ScalableSpec(Struct, frozen=True):
    replicas: int = 1
    template: PodTemplate = PodTemplate()


class Scalable(Struct, frozen=True):
    """A Deployment, StatefulSet or ReplicaSet."""

    metadata: Meta
    spec: ScalableSpec = ScalableSpec()


class CapacityBufferSpec(Struct, frozen=True):
    provisioning_strategy: str | None = None
    pod_template_ref: NameReference | None = None
    scalable_ref: ScalableReference | None = None
    replicas: int | None = None
    percentage: int | None = None
    limits: Quantities | None = None


class RequestStatus(Struct, frozen=True):
    conditions: tuple[ObjectCondition, ...] | None = None
    replicas: int | None = None


class CapacityBuffer(Struct, frozen=True):
    metadata: Meta
    spec: CapacityBufferSpec = CapacityBufferSpec()
    status: RequestStatus = RequestStatus()


class PodSet(Struct, frozen=True):
    pod_template_ref: NameReference = NameReference()
    count: int = 1


class ProvisioningRequestSpec(Struct, frozen=True):
    provisioning_class_name: str = ""
    pod_sets: tuple[PodSet, ...] | None = None
    parameters: dict[str, str] | None = None


class ProvisioningRequest(Struct, frozen=True):
    metadata: Meta
    spec: ProvisioningRequestSpec = ProvisioningRequestSpec()
    status: RequestStatus = RequestStatus()
