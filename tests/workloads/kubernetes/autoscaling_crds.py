"""Small definitions of CapacityBuffer and ProvisioningRequest with the fields and names of the published ones."""

from __future__ import annotations

from typing import Any

ANY = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
REFERENCE = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}, "required": ["name"]}
CONDITION = {
    "type": "object",
    "properties": {
        "type": {"type": "string"},
        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
        "reason": {
            "type": "string",
            "minLength": 1,
            "maxLength": 1024,
            "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        },
        "message": {"type": "string", "maxLength": 32768},
        "lastTransitionTime": {"type": "string", "format": "date-time"},
        "observedGeneration": {"type": "integer"},
    },
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
}
CONDITIONS = {
    "type": "array",
    "items": CONDITION,
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["type"],
}


IMMUTABLE = [{"rule": "self == oldSelf", "message": "cannot be changed"}]


def definition(
    kind: str, version: str, spec: dict[str, Any], status: dict[str, Any], group: str = "autoscaling.x-k8s.io"
) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": spec},
            "status": {"type": "object", "properties": {"conditions": CONDITIONS, **status}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/autoscaler/pull/5848"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}},
                }
            ],
        },
    }


BUFFER = definition(
    "CapacityBuffer",
    "v1beta1",
    {
        "provisioningStrategy": {"type": "string"},
        "podTemplateRef": REFERENCE,
        "scalableRef": ANY,
        "replicas": {"type": "integer", "minimum": 0},
        "percentage": {"type": "integer", "minimum": 0},
        "limits": ANY,
    },
    {"replicas": {"type": "integer"}},
)
POD_SET = {
    "type": "object",
    "properties": {"podTemplateRef": REFERENCE, "count": {"type": "integer", "minimum": 1}},
    "required": ["podTemplateRef", "count"],
}
REQUEST = definition(
    "ProvisioningRequest",
    "v1",
    {
        "provisioningClassName": {"type": "string", "maxLength": 253, "x-kubernetes-validations": IMMUTABLE},
        "podSets": {
            "type": "array",
            "items": POD_SET,
            "minItems": 1,
            "maxItems": 32,
            "x-kubernetes-validations": IMMUTABLE,
        },
        "parameters": {
            "type": "object",
            "additionalProperties": {"type": "string", "maxLength": 255},
            "maxProperties": 100,
            "x-kubernetes-validations": IMMUTABLE,
        },
    },
    {"provisioningClassDetails": ANY},
)
