"""This module imports an Iris configuration with ``scale_groups`` and ``tpu_pools``, each of which defines many
groups.

A scale group over several zones becomes one group per zone, named as Iris names them. Its priority is our rank: the
lower, the earlier. Sizes such as ``16GB`` are powers of 1024 there, and are written so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from windlass.scenario.reader import Path, is_name, shown
from windlass.scenario.schema import MOST, MOST_HOSTS, MOST_SLICES

from .base import ImportDraft, ImportReader, stand_in

CARRIED: Final = {"scale_groups", "tpu_pools", "platform", "defaults"}
CARRIED_OF_GROUP: Final = {
    *("name", "resources", "num_vms", "slice_size", "min_slices", "max_slices", "buffer_slices", "priority"),
    *("zone", "zones", "preemptible", "accelerator_type", "accelerator_variant", "slice_template", "worker"),
    *("scale_down_delay",),
}
WHY_OF_GROUP: Final = {
    "quota_pool": "a quota error counts for its own group only",
    "allocation_tier": "demand of a refused group goes to other groups, whatever its size",
    "scale_up_delay": "Windlass never waits before it grows",
}
PREEMPTIBLE: Final = ("preemptible", "spot")
FAMILIES: Final = {"v4": ("v4", 2), "v5p": ("v5p", 2), "v5e": ("v5litepod", 1), "v6e": ("v6e", 1)}
"""By TPU family: the name of its sizes, and how many cores of that name make a chip."""

_SIZE = re.compile(r"([\d.]+)\s*([KMGT]?)(i?B)?", re.IGNORECASE)


def import_iris(reader: ImportReader, data: object) -> ImportDraft:
    """Make a draft of an Iris configuration."""
    file = reader.mapping((), data)
    draft = ImportDraft("Iris", "an Iris configuration")
    draft.cluster["choose"] = "rank"
    draft.note(
        ("scale_groups",), "Iris takes groups in the order of their priority, and so does choose: rank", "cluster"
    )
    for key, value in file.items():
        if key not in CARRIED and value not in (None, "", [], {}):
            draft.note((key,), "is not part of an autoscaler's configuration in Windlass")
    platform = reader.part(("platform",), file.get("platform"))
    names = [key for key in platform if key != "label_prefix" and is_name(key)]
    seller = names[0] if names else "iris"
    stand_in(draft, ("platform",), seller)
    if rest := platform.get(seller):
        text = (
            ", ".join(f"{key} {shown(one)}" for key, one in rest.items()) if isinstance(rest, Mapping) else shown(rest)
        )
        draft.note(("platform", seller), f"not carried over: {text}", "providers")
    idle = _defaults(reader, draft, file)
    for at, name, kind, zone in _scale_groups(reader, draft, file):
        _group(reader, draft, at, name, kind, zone, idle)
    return draft


def _defaults(reader: ImportReader, draft: ImportDraft, file: Mapping[str, Any]) -> int | float | None:
    """Return the idle timeout of all groups; set the interval in the policy."""
    defaults = reader.part(("defaults",), file.get("defaults"))
    at = ("defaults", "autoscaler")
    scaler = reader.part(at, defaults.get("autoscaler"))
    for key in defaults:
        if key != "autoscaler":
            draft.note(("defaults", key), "setting up workers is left to the workload")
    interval = _span(reader, (*at, "evaluation_interval"), scaler.get("evaluation_interval"))
    if interval:
        draft.policy["evaluation_interval"] = {"min": min(interval, 0.2), "max": interval}
    if scaler.get("scale_up_delay") is not None:
        draft.note((*at, "scale_up_delay"), WHY_OF_GROUP["scale_up_delay"])
    for key in scaler:
        if key not in ("evaluation_interval", "scale_up_delay", "scale_down_delay"):
            draft.note((*at, key), "has no counterpart")
    idle = _span(reader, (*at, "scale_down_delay"), scaler.get("scale_down_delay"))
    if idle is None:
        draft.note((*at, "scale_down_delay"), "not given: groups without scale_down never shrink", "cluster")
    return idle


def _span(reader: ImportReader, at: Path, value: object) -> int | float | None:
    """Return seconds. Iris writes ``{milliseconds: 300000}``; plain numbers are seconds."""
    if not isinstance(value, Mapping):
        return None if value is None else reader.span(at, value)
    milliseconds = reader.span((*at, "milliseconds"), value.get("milliseconds")) or 0
    seconds = (reader.span((*at, "seconds"), value.get("seconds")) or 0) + milliseconds / 1000
    return int(seconds) if seconds == int(seconds) else seconds


def _scale_groups(
    reader: ImportReader, draft: ImportDraft, file: Mapping[str, Any]
) -> Iterator[tuple[Path, str, Mapping[str, Any], str | None]]:
    at: Path = ("scale_groups",)
    for name, value in reader.part(at, file.get("scale_groups")).items():
        kind = reader.part((*at, name), value)
        zones = _zones(reader, (*at, name), kind)
        for zone in zones or (None,):
            yield (*at, name), f"{name}-{zone}" if len(zones) > 1 else name, kind, zone
    at = ("tpu_pools",)
    for name, value in reader.part(at, file.get("tpu_pools")).items():
        yield from _pool(reader, draft, (*at, name), name, reader.part((*at, name), value))


def _zones(reader: ImportReader, at: Path, kind: Mapping[str, Any]) -> list[str]:
    if kind.get("zone") is not None:
        return [reader.name((*at, "zone"), kind["zone"])]
    entries = reader.items((*at, "zones"), kind.get("zones"), "zones")
    return [reader.name((*at, "zones", index), zone) for index, zone in enumerate(entries)]


def _pool(
    reader: ImportReader, draft: ImportDraft, at: Path, name: str, pool: Mapping[str, Any]
) -> Iterator[tuple[Path, str, Mapping[str, Any], str | None]]:
    """Expand a pool into one scale group per size and zone."""
    family = pool.get("family")
    if not isinstance(family, str) or family not in FAMILIES:
        reader.wrong((*at, "family"), f"must be one of {', '.join(FAMILIES)}, is {shown(family)}")
        return
    prefix, cores = FAMILIES[family]
    first = reader.integer((*at, "base_priority"), pool.get("base_priority"), 100, high=MOST)
    sizes = reader.part((*at, "sizes"), pool.get("sizes"))
    good = [size for size in sizes if size.isascii() and size.isdigit() and 0 < int(size[:9]) <= 100_000]
    for size in sizes:
        if size not in good:
            reader.wrong((*at, "sizes"), f"has the size {shown(size)}, which must be a whole number")
    draft.note(
        at,
        "in Iris, each size waits for the smaller ones; in Windlass, demand of a refused size goes to other groups",
        "cluster",
    )
    for tier, size in enumerate(sorted(good, key=int)):
        chips = max(1, int(size) // cores)
        hosts = 1 if chips <= (4 if cores == 2 else 8) else -(-chips // 4)
        device = {
            "device_type": "tpu",
            "device_variant": f"{prefix}-{size}",
            "device_count": chips if hosts == 1 else 4,
        }
        kind = {
            **{key: one for key, one in pool.items() if key not in ("family", "base_priority", "sizes", "zones")},
            **reader.part((*at, "sizes", size), sizes[size]),
            "resources": {**reader.part((*at, "resources"), pool.get("resources")), **device},
            "num_vms": hosts,
            "priority": first + 10 * tier,
        }
        for zone in _zones(reader, at, pool) or (None,):
            yield at, f"tpu_{name}_{size}" + (f"-{zone}" if zone else ""), kind, zone


def _group(
    reader: ImportReader,
    draft: ImportDraft,
    at: Path,
    name: str,
    kind: Mapping[str, Any],
    zone: str | None,
    idle: int | float | None,
) -> None:
    above = f"groups.{name}"
    for key in kind:
        if key not in CARRIED_OF_GROUP:
            draft.note((*at, key), WHY_OF_GROUP.get(key, "has no counterpart"), above)
    template = reader.part((*at, "slice_template"), kind.get("slice_template"))
    declared = reader.part((*at, "resources"), kind.get("resources"))
    device = {"type": kind.get("accelerator_type"), "variant": kind.get("accelerator_variant")} | {
        key.removeprefix("device_"): value for key, value in declared.items() if key.startswith("device_")
    }
    capacity = declared.get("capacity_type")
    preemptible = declared.get("preemptible", kind.get("preemptible"))
    spot = capacity in PREEMPTIBLE or reader.boolean((*at, "preemptible"), preemptible, False)

    worker = reader.part((*at, "worker"), kind.get("worker"))
    labels = reader.labels((*at, "worker", "attributes"), worker.get("attributes"))
    labels.pop("preemptible", None)  # the group sets it
    if zone:
        labels.setdefault("zone", zone)
    for key, value in (("device-variant", device.get("variant")), ("capacity-type", capacity)):
        if value is not None:
            labels.setdefault(key, reader.text(at, value))
    for key in worker:
        if key != "attributes":
            draft.note((*at, "worker", key), "setting up workers is left to the workload", above)

    hosts = next((kind[key] for key in ("num_vms", "slice_size") if kind.get(key) is not None), template.get("num_vms"))
    most = reader.integer((*at, "max_slices"), kind.get("max_slices"), None, high=MOST_SLICES)
    if kind.get("max_slices") is None:
        reader.wrong((*at, "max_slices"), "is required in a scale group, and is missing")
    least = reader.integer((*at, "min_slices"), kind.get("min_slices"), 0, high=MOST_SLICES)
    if most is not None and most < least:
        reader.wrong((*at, "max_slices"), f"must be at least min_slices ({least}), is {most}")
    group: dict[str, Any] = {"resources": _resources(reader, draft, at, declared, device, above)}
    if labels:
        group["labels"] = labels
    group |= {
        "hosts": reader.integer((*at, "num_vms"), hosts, 1, low=1, high=MOST_HOSTS),
        "min": least,
        "max": most,
        "spare": reader.integer((*at, "buffer_slices"), kind.get("buffer_slices"), 0, high=MOST_SLICES),
        "rank": reader.integer((*at, "priority"), kind.get("priority"), 100, high=MOST),
    }
    if spot:
        group["preemptible"] = True
    own = _span(reader, (*at, "scale_down_delay"), kind.get("scale_down_delay"))
    timeout = idle if own is None else own
    if timeout is not None:
        group["scale_down"] = {"idle_timeout": timeout}
    if settings := {**template, **({"zone": zone} if zone else {})}:
        group["settings"] = settings
    draft.groups[name] = group


def _resources(
    reader: ImportReader,
    draft: ImportDraft,
    at: Path,
    declared: Mapping[str, Any],
    device: Mapping[str, Any],
    above: str,
) -> dict[str, Any]:
    at = (*at, "resources")
    found: dict[str, Any] = {}
    for key, value in declared.items():
        if key == "cpu":
            found["cpu"] = reader.amount((*at, key), value, "cpu")
        elif key in ("ram", "memory", "disk"):
            ours = "disk" if key == "disk" else "memory"
            found[ours] = reader.amount((*at, key), _size(value), ours)
        elif key in ("gpu", "tpu", "gpu_count", "tpu_count"):
            ours = key.removesuffix("_count")
            found[ours] = reader.amount((*at, key), value, ours)
        elif not key.startswith("device_") and key not in ("capacity_type", "preemptible"):
            draft.note((*at, key), "has no counterpart", above)
    if device.get("type") in ("gpu", "tpu"):
        count = device.get("count")
        if count is None:
            draft.note((*at, "device_count"), "not given: 1 device is taken, correct it", above)
            count = 1
        found[str(device["type"])] = reader.integer((*at, "device_count"), count, 1, high=1024)
    found = {key: value for key, value in found.items() if value}
    if not found:
        draft.note(at, "not given: write what one node has, or nothing will fit", above)
    return found


def _size(value: object) -> object:
    """Return ``16GB`` as ``16Gi``."""
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        return value
    unit = match[2].upper()
    return match[1] + (f"{unit}i" if unit else "")
