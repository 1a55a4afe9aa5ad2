"""This module represents amounts of resources as whole numbers, and money as whole nanodollars.

No float decides whether something fits or whether a limit is reached: an amount is held in thousandths (bytes for
``memory`` and ``disk``), a price in billionths of a dollar per hour. Input text is converted once, and numbers are
converted back to text only in messages.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Final

BYTES: Final = frozenset({"memory", "disk"})
"""Resources counted in bytes; everything else is counted in thousandths."""

ACCELERATORS: Final = ("gpu", "tpu")
"""Resources that are devices: a need below one is a share of ONE device, a need of one or more is whole devices."""

DEVICE: Final = 1000
"""One whole device, in thousandths."""

LARGEST: Final = 2**48
"""Larger amounts are refused: 256 terabytes of memory on one node is a typing error, and sums must fit 64 bits."""

NANO: Final = 10**9

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_ONE_OF_MANY = re.compile(r"^1 (pod|slot|device|share|partition|set)s\b")
_TEXT = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(m|k|M|G|T|Ki|Mi|Gi|Ti)?", re.ASCII)


class BadQuantity(ValueError):
    """The text is not an amount; the message says what is wrong with it."""


def parse_quantity(value: object, resource: str) -> int:
    """Parses the amount as a whole number of the resource's unit; raises ``BadQuantity`` with the cause."""
    number = _number(value)
    unit = 1 if resource in BYTES else 1000
    if number < 0:
        raise BadQuantity(f"must not be negative, is {value}")
    amount = number * unit
    if amount > LARGEST:
        raise BadQuantity(f"is too large: {value}")
    # A third of a device is 333 thousandths, so that three of them share one; an amount above 0 is never rounded to 0.
    return max(int(amount.to_integral_value()), 1 if amount else 0)


def _number(value: object) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadQuantity(f"must be a number such as 4, 500m or 16Gi, is {_shown(value)}")
    match = _TEXT.fullmatch(str(value).strip())
    if match is None or len(str(value)) > 64:
        raise BadQuantity(f"must be a number such as 4, 500m or 16Gi, is {_shown(value)}")
    digits, suffix = match.groups(default="")
    try:
        number = Decimal(digits)
    except InvalidOperation as error:
        raise BadQuantity(f"must be a number, is {_shown(value)}") from error
    if abs(number.adjusted()) > 30:
        raise BadQuantity(f"is {'too large' if number.adjusted() > 0 else 'too small'}: {_shown(value)}")
    if suffix == "m":
        return number / 1000
    return number * (_BINARY.get(suffix) or _DECIMAL[suffix])


def _shown(value: object) -> str:
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 40 else text[:37] + "..."


def format_quantity(amount: int, resource: str) -> str:
    """Formats the amount as a person would write it: ``4``, ``0.5``, ``128Gi``."""
    if resource in BYTES:
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            if amount and amount % _BINARY[suffix] == 0:
                return f"{amount // _BINARY[suffix]}{suffix}"
        for suffix in ("T", "G", "M", "k"):
            if amount and amount % _DECIMAL[suffix] == 0:
                return f"{amount // _DECIMAL[suffix]}{suffix}"
        if amount >= 2**30:
            return f"{amount / 2**30:.2f}Gi"
        return str(amount)
    whole, rest = divmod(amount, 1000)
    return str(whole) if not rest else f"{whole}.{rest:03}".rstrip("0")


def exact_quantity(amount: int, resource: str) -> str:
    """Formats the amount as text that parses to the same number, as short as ``format_quantity`` where possible."""
    text = format_quantity(amount, resource)
    return str(amount) if resource in BYTES and "." in text else text


def format_amount(amount: int, resource: str) -> str:
    """Formats the amount with the name of its resource: ``16Gi memory``, ``1 pod``, ``2 devices of h100``."""
    return singular(f"{format_quantity(amount, resource)} {resource}")


def singular(text: str) -> str:
    """Writes the name of a resource in the singular after the amount 1: ``1 pods`` becomes ``1 pod``."""
    return _ONE_OF_MANY.sub(r"1 \1", text)


def format_needs(needs: dict[str, int] | tuple[tuple[str, int], ...]) -> str:
    """Formats needs as ``4 cpu, 16Gi memory``; ``nothing`` for a need of nothing."""
    pairs = needs.items() if isinstance(needs, dict) else needs
    return ", ".join(format_amount(amount, name) for name, amount in pairs) or "nothing"


def parse_money(value: object) -> int:
    """Parses dollars as whole nanodollars; raises ``BadQuantity`` with the cause."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise BadQuantity(f"must be dollars per hour such as 1.25, is {_shown(value)}")
    try:
        dollars = Decimal(str(value).strip().removeprefix("$"))
    except InvalidOperation as error:
        raise BadQuantity(f"must be dollars per hour such as 1.25, is {_shown(value)}") from error
    if not dollars.is_finite():
        raise BadQuantity(f"must be a finite number of dollars per hour, is {_shown(value)}")
    if dollars < 0:
        raise BadQuantity(f"must not be negative, is {_shown(value)}")
    if dollars > 10**9:
        raise BadQuantity(f"is too large: {_shown(value)}")
    return int((dollars * NANO).to_integral_value())


def dollars(nanodollars: int) -> float:
    """Converts money to a float of dollars, for people and JSON only."""
    return nanodollars / NANO


def format_money(nanodollars: int) -> str:
    """Formats money as ``$12.00``; a price below one cent keeps more digits."""
    value = nanodollars / NANO
    return f"${value:,.2f}" if value == 0 or abs(value) >= 0.1 else f"${value:.4f}"
