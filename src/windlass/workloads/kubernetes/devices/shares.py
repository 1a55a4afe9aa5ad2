"""This module computes shares of devices that several claims may use at once (``allowMultipleAllocations``).

A claim takes the capacity that it requests, rounded up as the device's ``requestPolicy`` says. Without a request it
takes the policy's default, or the whole capacity if there is no default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Any, Final

import msgspec

from windlass.workloads.kubernetes.translate.quantities import number

CapacityRequests = tuple[tuple[str, str], ...]
"""Names of capacities, qualified or in the domain of the device's driver, and quantities."""
UNLIMITED: Final = 1 << 20
"""How many claims a device serves that take none of its capacity."""


def qualified(driver: str, name: str) -> str:
    return name if "/" in name else f"{driver}/{name}"


def whole_shares(driver: str, capacity: Mapping[str, Any] | None) -> str:
    """Return the capacity of a device, as JSON by qualified names: total, left and policy."""
    found = {}
    for name, given in (capacity or {}).items():
        typed = given if isinstance(given, dict) else {"value": given}
        total = str(typed.get("value", "0"))
        found[qualified(driver, name)] = {"total": total, "left": total, "policy": typed.get("requestPolicy") or {}}
    return msgspec.json.encode(found, order="sorted").decode()


def shares_without(shares: str, taken: Iterable[tuple[str, str]]) -> str:
    """Return the capacity that is left after some was taken; names are qualified."""
    found: dict[str, dict[str, Any]] = msgspec.json.decode(shares)
    for name, quantity in taken:
        if name in found:
            found[name]["left"] = str(number(found[name]["left"]) - number(quantity))
    return msgspec.json.encode(found, order="sorted").decode()


@lru_cache(maxsize=10_000)
def totals_of(shares: str, which: str) -> Mapping[str, Decimal]:
    """Return the capacity of a device by qualified names. ``which``: total or left."""
    offered: dict[str, dict[str, Any]] = msgspec.json.decode(shares)
    return {name: number(one[which]) for name, one in offered.items()}


@lru_cache(maxsize=10_000)
def share_of(driver: str, shares: str, asked: CapacityRequests) -> Mapping[str, Decimal]:
    """Return the capacity of a device that one claim takes, by qualified names."""
    offered: dict[str, dict[str, Any]] = msgspec.json.decode(shares)
    wanted = {qualified(driver, name): quantity for name, quantity in asked}
    parts = {name: _taken(wanted.get(name), one["policy"], number(one["total"])) for name, one in offered.items()}
    return {name: part for name, part in parts.items() if part is not None}


@lru_cache(maxsize=10_000)
def claims_served(driver: str, shares: str, asked: CapacityRequests) -> int:
    """Return how many equal claims a device can serve with what is left of it."""
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
    """Return the amount of a capacity that a claim takes; None if the device does not have so much."""
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
