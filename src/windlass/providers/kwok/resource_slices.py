"""This module makes the ResourceSlices that a DRA driver would publish for the devices of a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
MOST_DEVICES: Final = 128
"""Devices of one ResourceSlice; the API server refuses more."""


def resource_slices(node: str, uid: str, devices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The ResourceSlices of a node, one pool for each driver."""
    drivers: dict[str, list[dict[str, Any]]] = {}
    for template in devices:
        here = drivers.setdefault(template["driver"], [])
        for _ in range(int(template.get("count") or 1)):
            here.append(
                {
                    "name": f"device-{len(here)}",
                    "attributes": {name: _typed(value) for name, value in (template.get("attributes") or {}).items()},
                    "capacity": {
                        name: value if isinstance(value, dict) else {"value": str(value)}
                        for name, value in (template.get("capacity") or {}).items()
                    },
                    **({"allowMultipleAllocations": True} if template.get("allowMultipleAllocations") else {}),
                }
            )
    found = []
    for driver, here in sorted(drivers.items()):
        parts = [here[start : start + MOST_DEVICES] for start in range(0, len(here), MOST_DEVICES)]
        for number, part in enumerate(parts):
            owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}
            found.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"{node}-{driver}-{number}", "ownerReferences": [owner]},
                    "spec": {
                        "driver": driver,
                        "nodeName": node,
                        "pool": {"name": node, "generation": 1, "resourceSliceCount": len(parts)},
                        "devices": part,
                    },
                }
            )
    return found


def _typed(value: Any) -> Any:
    """An attribute as the API wants it: its value under the name of its type."""
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": str(value)}
