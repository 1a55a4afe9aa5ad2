"""This module defines the types of values in a scenario: amounts, prices, times, conditions, and nested forms.

Methods of the reader do the reading; a configuration extends them (``10m`` as a duration).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, Final

from windlass.core.model.conditions import Condition
from windlass.core.model.quantities import BYTES, NANO, parse_money

from .declarations import WRONG, Form, ValueType

Schema = dict[str, Any]

DURATION: Final[Schema] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\d{1,12}(\.\d{1,6})?\s?[smhd]?\s*$"},
    ]
}
TEXT: Final[Schema] = {"type": ["string", "number", "boolean"]}


# -- single values -------------------------------------------------------------------------------------------------


def whole(high: int, low: int = 0) -> ValueType:
    """A whole number between the bounds."""
    return ValueType(
        lambda reader, at, value: reader.integer(at, value, WRONG, low=low, high=high),
        {"type": "integer", "minimum": low, "maximum": high},
        "int",
    )


def one_of(options: Sequence[str]) -> ValueType:
    """One of a few words."""
    return ValueType(
        lambda reader, at, value: reader.choice(at, value, options, WRONG), {"enum": [*map(str, options)]}, "str", str
    )


def share(low: float, high: float, *, above: bool = False) -> ValueType:
    """A number between the bounds, held exactly; with ``above``, the lower bound itself is too small."""
    least = f"above {low:g} and up to {high:g}, such as 0.3" if above else f"from {low:g} to {high:g}, such as 0.4"
    return ValueType(
        lambda reader, at, value: reader.share(at, value, least, low, high, above=above),
        {"type": "number", "exclusiveMinimum" if above else "minimum": low, "maximum": high},
        "float",
        _number,
    )


FLAG: Final = ValueType(lambda reader, at, value: reader.boolean(at, value, False), {"type": "boolean"}, "bool")
SPAN: Final = ValueType(lambda reader, at, value: reader.seconds(at, value, WRONG), DURATION, "float | str")
INSTANT: Final = ValueType(lambda reader, at, value: reader.number(at, value, WRONG), {"type": "number"}, "float")
NAME: Final = ValueType(lambda reader, at, value: reader.name(at, value), {"type": ["string", "integer"]}, "str")
TEXT_VALUE: Final = ValueType(lambda reader, at, value: reader.text(at, value), TEXT, "str")


def _number(value: Fraction) -> float:
    return float(value)


def _write_money(nanodollars: int) -> float | str:
    """Writes dollars as a number; as text where a float would not be read as the same sum."""
    number = nanodollars / NANO
    dollars, rest = divmod(nanodollars, NANO)
    return number if parse_money(number) == nanodollars else f"{dollars}.{rest:09d}"


MONEY: Final = ValueType(
    lambda reader, at, value: reader.money(at, value),
    {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]},
    "Quantity",
    _write_money,
)


# -- collections ---------------------------------------------------------------------------------------------------


def write_amounts(pairs: Iterable[tuple[str, int]]) -> dict[str, int | str]:
    """Writes amounts by resource, each so that it is read as the same whole number."""
    return {
        name: amount if name in BYTES else amount // 1000 if amount % 1000 == 0 else f"{amount}m"
        for name, amount in pairs
    }


def write_conditions(conditions: Iterable[Condition]) -> list[str]:
    return [_condition(one) for one in conditions]


def _condition(condition: Condition) -> str:
    """Writes a condition as ``str`` does, with quotes around a value that is empty, has quotes, or begins or ends with
    a blank."""
    values = tuple(
        f'"{value}"' if not value or value != value.strip() or value[0] == value[-1] in "'\"" else value
        for value in condition.values
    )
    return str(Condition(condition.key, condition.op, values))


def _amounts(method: str) -> ValueType:
    return ValueType(
        lambda reader, at, value: getattr(reader, method)(at, value),
        {"type": "object", "additionalProperties": {"type": ["number", "string"]}},
        "Needs",
        write_amounts,
    )


RESOURCES: Final = _amounts("resources")
USED: Final = _amounts("used")
NEEDS: Final = _amounts("needs")
LABELS: Final = ValueType(
    lambda reader, at, value: reader.labels(at, value),
    {"type": "object", "additionalProperties": TEXT},
    "Mapping[str, object]",
    dict,
)
SLICE_IDS: Final = ValueType(
    lambda reader, at, value: reader.slice_ids(at, value),
    {"type": "array", "items": {"type": ["string", "integer"]}},
    "Iterable[str]",
    sorted,
)
CLASSES: Final = ValueType(
    lambda reader, at, value: reader.classes(at, value),
    {"type": "array", "items": {"type": ["string", "integer"]}},
    "Sequence[str]",
    list,
)
CLASS_COUNTS: Final = ValueType(
    lambda reader, at, value: reader.class_counts(at, value),
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    "Mapping[str, int]",
    dict,
)
DOMAIN_COUNTS: Final = ValueType(
    lambda reader, at, value: reader.domain_counts(at, value),
    {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}},
    "Mapping[str, int]",
    dict,
)
CONDITIONS: Final = ValueType(
    lambda reader, at, value: reader.remembered_conditions(at, value),
    {"type": "array", "items": {"type": "string"}},
    "Sequence[str]",
    write_conditions,
)
ALTERNATIVES: Final = ValueType(
    lambda reader, at, value: reader.alternatives(at, value),
    {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
    "Sequence[Sequence[str]]",
    lambda lists: [write_conditions(one) for one in lists],
)


# -- forms inside forms --------------------------------------------------------------------------------------------


def object_schema(form: Form) -> Schema:
    """A mapping with the keys of a form."""
    properties = {
        name: {**(key.type.schema if key.type else {}), "description": described(key.meaning, key.default)}
        for name, key in form.keys.items()
    }
    required = {"required": list(form.required)} if form.required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **required}


def described(meaning: str, default: str) -> str:
    """Returns the meaning of a key with its default, for editors."""
    more = "" if default == "required" else f" Default: {default}."
    return f"{meaning}{more}".replace("`", "")


def section(method: str, form: Form) -> ValueType:
    """A mapping with keys of its own, read by a method of the reader."""
    return ValueType(
        lambda reader, at, value: getattr(reader, method)(at, value),
        object_schema(form),
        "Mapping[str, Any]",
        form.write,
    )


def list_of(method: str, form: Form) -> ValueType:
    """A list of mappings, read by a method of the reader."""
    return ValueType(
        lambda reader, at, value: getattr(reader, method)(at, value),
        {"type": "array", "items": object_schema(form)},
        "Sequence[Mapping[str, Any]]",
        lambda values: [form.write(one) for one in values],
    )
