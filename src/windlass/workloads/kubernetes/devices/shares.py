"""Devices that several claims share, each with a part of their capacity (``allowMultipleAllocations``).

A claim takes what it asks for, rounded up to an amount that the device gives (``requestPolicy``). Where it asks for
nothing it takes the policy's default, else all of that capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec

from windlass.workloads.kubernetes.translate.quantities import number

CapacityRequests = tuple[tuple[str, str], ...]
"""Names of capacities, qualified or of the device's own driver, and quantities."""
UNLIMITED: Final = 1 << 20
"""Claims that a device serves which take nothing of it."""


def qualified(driver: str, name: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def whole_shares(driver: str, capacity: Mapping[str, Any] | None) -> str:
    """What a device offers to claims that share it, as JSON by qualified names: total, left and policy."""
    found = {}
    for name, given in (capacity or {}).items():
        typed = given if isinstance(given, dict) else {"value": given}
        total = str(typed.get("value", "0"))
        found[qualified(driver, name)] = {"total": total, "left": total, "policy": typed.get("requestPolicy") or {}}
    return msgspec.json.encode(found, order="sorted").decode()


def shares_without(shares: str, taken: Iterable[tuple[str, str]]) -> str:
    """What is left after others have taken some of it; names are qualified."""
    found: dict[str, dict[str, Any]] = msgspec.json.decode(shares)
    for name, quantity in taken:
        if name in found:
            found[name]["left"] = str(number(found[name]["left"]) - number(quantity))
    return msgspec.json.encode(found, order="sorted").decode()


@lru_cache(maxsize=10_000)
def claims_served(driver: str, shares: str, asked: CapacityRequests) -> int:
    """How many equal claims a device can serve with what is left of it."""
    offered: dict[str, dict[str, Any]] = msgspec.json.decode(shares)
    wanted = {qualified(driver, name): quantity for name, quantity in asked}
    if not wanted.keys() <= offered.keys():
        return 0
    served = UNLIMITED
    for name, one in offered.items():
        part = _taken(wanted.get(name), one["policy"], number(one["total"]))
        if part is None:
            return 0
        if part > 0:
            served = min(served, int(number(one["left"]) / part))
    return max(0, served)


def _taken(asked: str | None, policy: Mapping[str, Any], total: Decimal) -> Decimal | None:
    """What a claim takes of a capacity; None: the device does not give so much."""
    if asked is None:
        return number(str(policy["default"])) if policy.get("default") is not None else total
    part = number(asked)
    if values := policy.get("validValues"):
        part = min((one for one in (number(str(value)) for value in values) if one >= part), default=total + 1)
    elif valid := policy.get("validRange"):
        least = number(str(valid["min"]))
        part = max(part, least)
        if valid.get("step") is not None:
            step = number(str(valid["step"]))
            part = least + ((part - least) / step).to_integral_value(ROUND_CEILING) * step
        if valid.get("max") is not None and part > number(str(valid["max"])):
            return None
    return part if part <= total else None
