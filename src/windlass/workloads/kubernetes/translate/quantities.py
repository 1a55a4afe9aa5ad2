"""This module reads Kubernetes quantities as whole numbers, rounded up as the scheduler rounds them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Final

from windlass.core.model.quantities import BadQuantity

_TEXT: Final = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([eE][+-]?\d+)|(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]))?", re.ASCII)
_SCALE: Final = {
    **{f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", 1)},
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    **{letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", 1)},
}
_MEBIBYTE: Final = 2**20

EPHEMERAL: Final = "ephemeral-storage"
RENAMED: Final = {EPHEMERAL: "disk"}
"""Resources that have another name in the planner, which counts disk in bytes."""


@lru_cache(maxsize=8192)
def number(text: str) -> Decimal:
    """Return the exact value of a quantity; ``BadQuantity`` if it is not valid."""
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise BadQuantity(f"must be a quantity such as 4, 500m or 16Gi, is {text[:40]!r}")
    digits, exponent, suffix = match.groups()
    value = Decimal(digits + (exponent or ""))
    return value * _SCALE[suffix] if suffix else value


def core_name(resource: str) -> str:
    """Return the planner's name of a Kubernetes resource."""
    return RENAMED.get(resource, resource)


@lru_cache(maxsize=8192)
def amount(resource: str, text: str) -> int:
    """Return an amount in the planner's unit of that resource, rounded up.

    The scheduler counts cpu in thousandths, and everything else in whole units: bytes of memory and storage, devices.
    """
    value = number(text)
    if resource == "cpu":
        return _ceil(value * 1000)
    whole = _ceil(value)
    if resource in ("memory", EPHEMERAL):
        return whole
    if resource.startswith("hugepages-"):
        # In thousandths of a mebibyte: bytes times a thousand would overflow the planner's sums.
        return -(-whole * 1000 // _MEBIBYTE)
    return whole * 1000


def parsed(resources: Mapping[str, str | int | float] | None) -> dict[str, int]:
    """Return amounts by the planner's names, without zero amounts."""
    found: dict[str, int] = {}
    for resource, text in (resources or {}).items():
        value = amount(resource, str(text))
        if value:
            found[core_name(resource)] = value
    return found


def _ceil(value: Decimal) -> int:
    whole = int(value)
    return whole + 1 if value > whole else whole
