"""This module evaluates CEL selectors over one device, as the scheduler does.

The library evaluates the language; Kubernetes adds quantities and versions to it. An expression that the library cannot
parse, or that uses an unknown function, raises ``NotUnderstood``: it never counts as true or false.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import msgspec

from windlass._extras import install_command
from windlass.core.model.quantities import BadQuantity
from windlass.workloads.kubernetes.translate.conditions import NeverMatches
from windlass.workloads.kubernetes.translate.quantities import number

from .partitions import CounterAmounts
from .shares import whole_shares

_DOMAIN: Final = re.compile(r"""(attributes|capacity)\s*\[\s*["']([^"']+)["']\s*\]""")
_SEMVER: Final = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
QUANTITY: Final = "windlass quantity"
SEMVER: Final = "windlass version"


class NotUnderstood(NeverMatches):
    """A device request that cannot be planned for; the text says why."""


@dataclass(frozen=True)
class DeviceFacts:
    """The fields of a device that selectors can read; equal devices are equal values."""

    driver: str
    attributes: str
    """JSON: values by domain and name."""
    capacity: str
    """JSON: quantities by domain and name."""
    multiple: bool = False
    """Whether several claims may share it."""
    is_plain: bool = True
    """Whether it consumes no counters that it shares with other devices, as the partitions of a GPU do."""
    taints: tuple[tuple[str, str, str], ...] = ()
    shares: str = field(default="", compare=False)
    """What claims that share it can take (``shares``)."""
    counters: CounterAmounts = field(default=(), compare=False)
    """The counters that it consumes."""

    def attribute(self, name: str) -> str:
        """Return the value of an attribute as JSON, by its qualified name (``DOMAIN/NAME``); empty if it has none."""
        return _attributes(self.attributes).get(name, "")


@lru_cache(maxsize=10_000)
def _attributes(text: str) -> dict[str, str]:
    values: dict[str, dict[str, Any]] = msgspec.json.decode(text)
    return {
        f"{domain}/{name}": msgspec.json.encode(value, order="sorted").decode()
        for domain, named in values.items()
        for name, value in named.items()
    }


def facts(
    driver: str,
    attributes: Mapping[str, Any] | None,
    capacity: Mapping[str, Any] | None,
    taints: Iterable[tuple[str, str, str]] = (),
    *,
    multiple: bool = False,
    counters: CounterAmounts = (),
) -> DeviceFacts:
    """Return the fields of a device that selectors can read. A name without a domain belongs to the driver's domain. A
    value may be plain, or typed as in a ResourceSlice (``{string: A100}``, ``{value: 40Gi}``).
    """
    return DeviceFacts(
        driver,
        _by_domain(driver, attributes, _attribute),
        _by_domain(driver, capacity, lambda value: value.get("value") if isinstance(value, dict) else value),
        multiple,
        not counters,
        tuple(taints),
        whole_shares(driver, capacity),
        counters,
    )


def _attribute(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for kind in ("string", "int", "bool"):
        if kind in value:
            return value[kind]
    return {SEMVER: str(value["version"])} if "version" in value else value


def _by_domain(driver: str, values: Mapping[str, Any] | None, read: Any) -> str:
    found: dict[str, dict[str, Any]] = {}
    for name, value in (values or {}).items():
        domain, slash, rest = name.rpartition("/")
        found.setdefault(domain if slash else driver, {})[rest] = read(value)
    return msgspec.json.encode(found, order="sorted").decode()


@dataclass
class Expressions:
    """Evaluates expressions, and caches the result of each for each device."""

    _known: dict[tuple[str, DeviceFacts], bool | str] = field(default_factory=dict)

    def holds(self, expression: str, device: DeviceFacts) -> bool:
        """Whether a selector selects a device; ``NotUnderstood`` if that cannot be determined."""
        key = (expression, device)
        found = self._known.get(key)
        if found is None:
            if len(self._known) > 200_000:
                self._known.clear()
            found = self._known[key] = _evaluated(expression, device)
        if isinstance(found, str):
            raise NotUnderstood(found)
        return found


@lru_cache(maxsize=1000)
def _program(expression: str) -> Any:
    try:
        from cel import compile as compiled
    except ImportError:
        raise NotUnderstood(
            f"device selectors need the CEL library, which is not installed: {install_command('kubernetes')}"
        ) from None
    try:
        return compiled(expression)
    except ValueError as error:
        raise NotUnderstood(
            f"the selector {_short(expression)} is not valid CEL: {str(error).splitlines()[0]}"
        ) from None


def _evaluated(expression: str, device: DeviceFacts) -> bool | str:
    try:
        program = _program(expression)
    except NotUnderstood as error:
        return str(error)
    try:
        result = program.execute(_context(expression, device))
    except KeyError:
        return False  # the device does not have the attribute: the scheduler does not select it either
    except (ValueError, RuntimeError, TypeError, ArithmeticError, AttributeError, LookupError) as error:
        return f"the selector {_short(expression)} is not understood: {str(error).splitlines()[0][:150]}"
    if not isinstance(result, bool):
        return f"the selector {_short(expression)} gives {type(result).__name__}, not true or false"
    return result


def _short(expression: str) -> str:
    return repr(" ".join(expression.split())[:80])


def _context(expression: str, device: DeviceFacts) -> Any:
    from cel import Context

    attributes: dict[str, dict[str, Any]] = msgspec.json.decode(device.attributes)
    sizes: dict[str, dict[str, Any]] = msgspec.json.decode(device.capacity)
    capacity = {
        domain: {name: {QUANTITY: str(value)} for name, value in values.items()} for domain, values in sizes.items()
    }
    for kind, domain in _DOMAIN.findall(expression):
        # A domain that the device does not have is an empty map, not an error.
        (attributes if kind == "attributes" else capacity).setdefault(domain, {})
    context = Context()
    context.add_variable(
        "device",
        {
            "driver": device.driver,
            "attributes": attributes,
            "capacity": capacity,
            "allowMultipleAllocations": device.multiple,
        },
    )
    for name, function in FUNCTIONS.items():
        context.add_function(name, function)
    return context


# -- what Kubernetes adds to the language ------------------------------------------------------------------------------


def _comparable(value: Any) -> Any:
    if isinstance(value, dict) and QUANTITY in value:
        return number(value[QUANTITY])
    if isinstance(value, dict) and SEMVER in value:
        return _version_key(value[SEMVER])
    raise TypeError("only quantities and versions can be compared this way")


def _version_key(text: str) -> tuple[Any, ...]:
    match = _SEMVER.fullmatch(text)
    if match is None:
        raise TypeError(f"{text!r} is not a version")
    numbers = tuple(int(part) for part in match.groups()[:3])
    if match[4] is None:
        return (numbers, 1, ())
    parts = tuple((0, int(one), "") if one.isdigit() else (1, 0, one) for one in match[4].split("."))
    return (numbers, 0, parts)


def _compare(one: Any, other: Any) -> int:
    left, right = _comparable(one), _comparable(other)
    return int(left > right) - int(left < right)


def _quantity(text: str) -> dict[str, str]:
    number(text)
    return {QUANTITY: text}


def _is_quantity(text: str) -> bool:
    try:
        number(text)
    except BadQuantity:
        return False
    return True


def _semver(text: str) -> dict[str, str]:
    _version_key(text)
    return {SEMVER: text}


FUNCTIONS: Final[Mapping[str, Any]] = {
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "semver": _semver,
    "isSemver": lambda text: _SEMVER.fullmatch(text) is not None,
    "compareTo": _compare,
    "isGreaterThan": lambda one, other: _compare(one, other) > 0,
    "isLessThan": lambda one, other: _compare(one, other) < 0,
    "asInteger": lambda value: int(_comparable(value)),
    "asApproximateFloat": lambda value: float(_comparable(value)),
    "sign": lambda value: int(_comparable(value) > 0) - int(_comparable(value) < 0),
    "major": lambda value: _comparable(value)[0][0],
    "minor": lambda value: _comparable(value)[0][1],
    "patch": lambda value: _comparable(value)[0][2],
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
}
