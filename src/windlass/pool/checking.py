"""Whether what a user gave is what it should be. Types are promises that nobody keeps at a prompt."""

from __future__ import annotations

from typing import TypeGuard


def is_whole(value: object, least: int, most: int) -> TypeGuard[int]:
    """Whether it is a whole number between the two."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, least: float, most: float = 1e9) -> TypeGuard[float]:
    """Whether it is a number between the two."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
