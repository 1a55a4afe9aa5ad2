"""This module defines named fault sets, each of a strength that a controller must survive without breaking an
invariant.

The strengths stay within the assumptions of a controller. A list may lag, but not longer than ``vanish_timeout``; a
node may be invisible, but not longer than ``unhealthy_timeout``. Beyond those no controller could distinguish a live
machine from a dead one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from windlass.scenario.reader import shown

from .catalogue import KINDS, Fault

_LAUNCH: Final = (
    Fault("stock-out", 0.3),
    Fault("quota", 0.05),
    Fault("throttled", 0.2, seconds=20),
    Fault("launch-lost", 0.1),
    Fault("launch-hangs", 0.1),
    Fault("created-fewer", 0.1),
    Fault("created-twice", 0.1),
    Fault("wrong-type", 0.05),
    Fault("price-changed", 0.5),
)
_LIST: Final = (
    Fault("list-fails", 0.2),
    Fault("list-hangs", 0.05),
    Fault("list-stale", 0.2),
    Fault("page-lost", 0.1, seconds=10),
    Fault("new-missing", 0.3, seconds=60),
    Fault("ended-shown", 0.3, seconds=120),
)
_BOOT: Final = (
    Fault("boot-never", 0.1),
    Fault("boot-slow", 0.2),
    Fault("never-joins", 0.1),
    Fault("host-missing", 0.1),
    Fault("no-accelerator", 0.1),
    Fault("joins-twice", 0.2),
    Fault("restarts", 0.2, seconds=90),
)
_RUN: Final = (
    Fault("preempted", 0.3, seconds=1800, notice=120),
    Fault("preempted", 0.3, seconds=1800, notice=30),
    Fault("preempted", 0.3, seconds=1800),
    Fault("zone-preempted", 0.3),
    Fault("heartbeat-lost", 0.3, seconds=120),
    Fault("unwell", 0.2, seconds=600),
    Fault("slow-node", 0.2),
)
_DRAIN: Final = (
    Fault("work-lands", 0.3, seconds=120),
    Fault("ack-late", 0.3, seconds=45),
    Fault("ack-lost", 0.2),
    Fault("ack-doubled", 0.3),
    Fault("drain-hangs", 0.2),
    Fault("cordon-hangs", 0.2),
    Fault("work-never-ends", 0.05, seconds=14_400),
)
_TERMINATE: Final = (
    Fault("terminate-fails", 0.3),
    Fault("terminate-slow", 0.1, seconds=7200),
    Fault("terminate-hangs", 0.1),
    Fault("hand-deleted", 1.0),
    Fault("hand-created", 1.0),
)
_CONTROLLER: Final = (
    Fault("killed", 0.003),
    Fault("two-leaders", 1.0),
    Fault("clock-jumps", 0.5, seconds=600),
    Fault("journal-full", 1.0, seconds=120),
    Fault("journal-lost", 0.02),
    Fault("reconfigured", 1.0),
)
_INPUT: Final = (
    Fault("observe-fails", 0.2),
    Fault("observe-hangs", 0.05),
    Fault("demand-absent", 0.1),
    Fault("demand-doubled", 0.1),
    Fault("demand-reordered", 0.2),
    Fault("demand-negative", 0.1),
    Fault("demand-nan", 0.1),
    Fault("demand-poisoned", 0.1),
    Fault("demand-burst", 0.02),
    Fault("demand-impossible", 0.1),
)

JOURNAL: Final = (
    Fault("torn-record", 0.01),
    Fault("newer-version", 0.3),
    Fault("older-version", 0.5),
    Fault("stopped", 0.3, seconds=1200),
)
"""Further faults of the controller. They stay at the end of the catalogue: random draws depend on the position of a
fault, and old seeds must stay reproducible.
"""

OVERTAKEN: Final = (Fault("overtaken", 1.0),)
"""Stands after ``JOURNAL`` for the same reason."""

FAULT_SETS: Final[Mapping[str, tuple[Fault, ...]]] = {
    "calm": (),
    "launch": _LAUNCH,
    "list": _LIST,
    "boot": _BOOT,
    "run": _RUN,
    "drain": _DRAIN,
    "terminate": _TERMINATE,
    "controller": (*_CONTROLLER, *JOURNAL, *OVERTAKEN),
    "input": _INPUT,
    "all": (*_LAUNCH, *_LIST, *_BOOT, *_RUN, *_DRAIN, *_TERMINATE, *_CONTROLLER, *_INPUT, *JOURNAL, *OVERTAKEN),
}


class BadFaultSet(ValueError):
    """A fault set cannot be read; the message says what to change."""


def fault_set_from(data: Any) -> tuple[Fault, ...]:
    """Return the faults of a file: a list of mappings with ``kind`` and the other keys of a fault, or names of fault
    sets.
    """
    if not isinstance(data, list):
        raise BadFaultSet("the file must be a list of faults; begin each with '- kind: ...'")
    found: list[Fault] = []
    for index, one in enumerate(data):
        if isinstance(one, str):
            if one not in FAULT_SETS:
                raise BadFaultSet(
                    f"[{index}]: there is no set of faults {shown(one)}; choose from {', '.join(FAULT_SETS)}"
                )
            found += FAULT_SETS[one]
        elif not isinstance(one, dict) or str(one.get("kind")) not in KINDS:
            raise BadFaultSet(f"[{index}].kind: choose one of {', '.join(sorted(KINDS))}")
        else:
            found.append(_fault(index, one))
    return tuple(found)


def _fault(index: int, data: Mapping[str, Any]) -> Fault:
    fault = Fault(data["kind"])
    for key, value in data.items():
        if key in ("rate", "start", "end", "seconds", "notice"):
            if not isinstance(value, int | float) or not 0 <= value < float("inf"):
                raise BadFaultSet(f"[{index}].{key}: must be a number from 0, is {shown(value)}")
            fault = replace(fault, **{key: float(value)})  # type: ignore[arg-type]  # a field of numbers
        elif key in ("groups", "zones"):
            if not isinstance(value, list):
                raise BadFaultSet(f"[{index}].{key}: must be a list of names, is {shown(value)}")
            fault = replace(fault, **{key: frozenset(map(str, value))})  # type: ignore[arg-type]  # a field of names
        elif key != "kind":
            raise BadFaultSet(
                f"[{index}].{key}: unknown key; a fault has kind, rate, start, end, groups, zones, seconds and notice"
            )
    return fault
