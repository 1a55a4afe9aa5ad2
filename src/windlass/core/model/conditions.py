"""This module defines where demand may go: conditions on labels, preferences, taints and tolerations.

A condition is one line of text (``zone in (us-1a, us-1b)``), parsed once and evaluated often. A missing label passes
only ``!=``, ``not in`` and ``absent``. Taints work as in Kubernetes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Operator = Literal["==", "!=", "in", "not in", "exists", "absent", ">", ">=", "<", "<="]

_PASS_WHEN_MISSING: Final = frozenset({"!=", "not in", "absent"})
_LIST = re.compile(r"(?P<key>\S+)\s+(?P<op>not\s+in|in)\s*\((?P<values>[^()]*)\)")
_FLAG = re.compile(r"(?P<key>\S+)\s+(?P<op>exists|absent)")
_COMPARE = re.compile(r"(?P<key>[^\s=!<>]+)\s*(?P<op>==|!=|>=|<=|>|<)\s*(?P<value>.+)")


class BadCondition(ValueError):
    """The text is not a condition; the message says what one looks like."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of one label."""

    key: str
    op: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if value is None:
            return self.op in _PASS_WHEN_MISSING
        match self.op:
            case "==" | "in":
                return value in self.values
            case "!=" | "not in":
                return value not in self.values
            case "exists":
                return True
            case "absent":
                return False
        have, limit = _as_number(value), _as_number(self.values[0])
        if have is None or limit is None:
            return False
        match self.op:
            case ">":
                return have > limit
            case ">=":
                return have >= limit
            case "<":
                return have < limit
            case "<=":
                return have <= limit

    def __str__(self) -> str:
        if self.op in ("exists", "absent"):
            return f"{self.key} {self.op}"
        if self.op in ("in", "not in"):
            return f"{self.key} {self.op} ({', '.join(self.values)})"
        return f"{self.key} {self.op} {self.values[0]}"


def parse_condition(text: str) -> Condition:
    """Parses ``gpu-model == A100`` and similar text; raises ``BadCondition`` with the remedy for anything else."""
    text = text.strip()
    if matched := _LIST.fullmatch(text):
        values = tuple(_unquoted(part) for part in matched["values"].split(",") if part.strip())
        if not values:
            raise BadCondition(
                f"has an empty list: {text!r}; name at least one value, such as 'zone in (us-1a, us-1b)'"
            )
        op: Operator = "in" if matched["op"] == "in" else "not in"
        return Condition(matched["key"], op, values)
    if matched := _FLAG.fullmatch(text):
        return Condition(matched["key"], "exists" if matched["op"] == "exists" else "absent")
    if matched := _COMPARE.fullmatch(text):
        value = _unquoted(matched["value"])
        compare: Operator = matched["op"]  # type: ignore[assignment]  # the pattern allows exactly these
        if compare in (">", ">=", "<", "<=") and _as_number(value) is None:
            raise BadCondition(f"compares with {value!r}, which is not a number: {text!r}")
        return Condition(matched["key"], compare, (value,))
    raise BadCondition(
        f"is not a condition: {text!r}; write 'key == v', 'key != v', 'key in (a, b)', 'key not in (a, b)', "
        "'key exists', 'key absent', or compare with >, >=, <, <="
    )


def _unquoted(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" else text


def _as_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number else None


Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
EFFECTS: Final[tuple[Effect, ...]] = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps work off a node unless the work tolerates it."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    def __str__(self) -> str:
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """A toleration of a demand. An empty key with ``Exists`` tolerates everything, an empty effect every effect."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: Effect | Literal[""] = ""

    def tolerates(self, taint: Taint) -> bool:
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        return self.key == taint.key and self.value == taint.value


def untolerated(taints: Iterable[Taint], tolerates: Iterable[Toleration]) -> tuple[Taint, ...]:
    """Returns the taints that nothing in ``tolerates`` tolerates, hard ones first."""
    tolerates = tuple(tolerates)
    found = [taint for taint in taints if not any(one.tolerates(taint) for one in tolerates)]
    return tuple(sorted(found, key=lambda taint: taint.effect == "PreferNoSchedule"))
