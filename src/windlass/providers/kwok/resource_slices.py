"""This module makes the ResourceSlices that a DRA driver would publish for the devices of a template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

PATH: Final = "/apis/resource.k8s.io/v1/resourceslices"
MOST_DEVICES: Final = 128
"""Devices of one ResourceSlice; the API server refuses more."""
MOST_PARTITIONS: Final = 64
"""Devices of one ResourceSlice if some of them consume counters."""
MOST_COUNTER_SETS: Final = 8


def resource_slices(node: str, uid: str, devices: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the ResourceSlices of a node, one pool for each driver. Counters are in ResourceSlices of their own."""
    drivers: dict[str, list[dict[str, Any]]] = {}
    counters: dict[str, list[dict[str, Any]]] = {}
    for template in devices:
        here, sets = (known.setdefault(template["driver"], []) for known in (drivers, counters))
        for _ in range(int(template.get("count") or 1)):
            name = ""
            if template.get("counters"):
                name = f"counters-{len(sets)}"
                sets.append({"name": name, "counters": _values(template["counters"])})
            here.append(_device(len(here), template, name))
            for part in template.get("partitions") or ():
                for _ in range(int(part.get("count") or 1)):
                    here.append(_device(len(here), part, name))
    found = []
    for driver, here in sorted(drivers.items()):
        sets = counters[driver]
        parts = [{"devices": part} for part in _chunks(here, MOST_PARTITIONS if sets else MOST_DEVICES)]
        parts += [{"sharedCounters": part} for part in _chunks(sets, MOST_COUNTER_SETS)]
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
                        **part,
                    },
                }
            )
    return found


def _device(number: int, template: Mapping[str, Any], counter_set: str) -> dict[str, Any]:
    consumed = [{"counterSet": counter_set, "counters": _values(template["counters"])}] if counter_set else []
    return {
        "name": f"device-{number}",
        "attributes": {name: _typed(value) for name, value in (template.get("attributes") or {}).items()},
        "capacity": _values(template.get("capacity") or {}),
        **({"consumesCounters": consumed} if consumed else {}),
        **({"allowMultipleAllocations": True} if template.get("allowMultipleAllocations") else {}),
    }


def _values(amounts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one if isinstance(one, dict) else {"value": str(one)} for name, one in amounts.items()}


def _chunks(items: list[dict[str, Any]], size: int) -> list[list[dict[str, Any]]]:
    return [items[start : start + size] for start in range(0, len(items), size)]


def _typed(value: Any) -> Any:
    """Return an attribute as the API wants it: its value under the name of its type."""
    if isinstance(value, dict):
        return value
    if isinstance(value, bool):
        return {"bool": value}
    return {"int": value} if isinstance(value, int) else {"string": str(value)}
