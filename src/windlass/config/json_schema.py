"""The configuration as a JSON Schema, made from the tables that the reader goes by.

Editors use it to complete keys, to show what they mean and to mark mistakes. Rules between keys (``max`` at least
``min``) are checked by ``windlass config check`` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from windlass.core.model.conditions import EFFECTS
from windlass.scenario.reader import REQUIRED, Form, Key
from windlass.scenario.schema import LOW_UTILIZATION, SCALE_DOWN, STRATEGIES, TAINT, UTILIZATION
from windlass.setting_types import Data, Duration, Flag, Kind, Number, OneOf, Section, Setting, Share, Whole, Words

from .registry import PROVIDERS, WORKLOADS, Types
from .schema import CONFIG, CONFIGURED_CLUSTER, CONFIGURED_GROUP, JOURNAL, LEADER, POLICY
from .server import NOTIFY, SERVER

Schema = dict[str, Any]

DURATION: Final[Schema] = {
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^\s*\d{1,12}(\.\d{1,6})?\s?[smhd]?\s*$"},
    ]
}
MONEY: Final[Schema] = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TEXT: Final[Schema] = {"type": ["string", "number", "boolean"]}
NAMES: Final[Schema] = {"type": "array", "items": {"type": ["string", "integer"]}}
AMOUNTS: Final[Schema] = {"type": "object", "additionalProperties": {"type": ["number", "string"]}}
LABELS: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
YES_OR_NO: Final[Schema] = {"type": "boolean"}
ANYTHING: Final[Schema] = {}

BY_UNIT: Final[Mapping[str, Schema]] = {
    "s": DURATION,
    "$/h": MONEY,
    "slices": COUNT,
    "nodes": COUNT,
    "rounds": {"type": "integer", "minimum": 1},
    "%": {"type": "integer", "minimum": 1, "maximum": 100},
}
"""What a key of the cluster or of a group holds, by its unit."""


def config_schema() -> Schema:
    """The whole schema."""
    groups = {"type": "object", "additionalProperties": _object(CONFIGURED_GROUP, _group_keys())}
    providers = {"type": "object", "additionalProperties": _typed(PROVIDERS), "minProperties": 1}
    properties = {
        "cluster": _object(CONFIGURED_CLUSTER, _cluster_keys()),
        "groups": groups,
        "providers": providers,
        "workload": _typed(WORKLOADS),
        "journal": {"anyOf": [{"type": "string"}, _section(JOURNAL)]},
        "policy": _section(POLICY),
        "leader": _section(LEADER),
        "server": _section(SERVER),
        "notify": {"type": "array", "items": _section(NOTIFY)},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Windlass configuration",
        **_object(CONFIG, properties),
    }


def _object(form: Form, special: Mapping[str, Schema]) -> Schema:
    """A mapping with the keys of a form; the type of a key is ``special``, or follows from its unit."""
    properties = {}
    for name, key in form.keys.items():
        found = special[name] if name in special else BY_UNIT.get(key.unit, ANYTHING)
        properties[name] = {**found, **_words(key)}
    required = [name for name in form.required if name in properties]
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _words(key: Key) -> Schema:
    default = "" if key.default == REQUIRED else f" Default: {key.default}."
    return {"description": f"{key.meaning}{default}".replace("`", "")}


def _cluster_keys() -> dict[str, Schema]:
    return {
        "name": {"type": "string"},
        "choose": {"enum": list(STRATEGIES)},
        "own_machine_premium": {"type": "number", "minimum": 0},
    }


def _group_keys() -> dict[str, Schema]:
    taint = _object(TAINT, {"key": {"type": "string"}, "value": TEXT, "effect": {"enum": list(EFFECTS)}})
    low = _object(LOW_UTILIZATION, {"below": {"type": "number", "exclusiveMinimum": 0, "maximum": 1}})
    use = _object(UTILIZATION, {"resource": {"type": "string"}})
    rules = _object(SCALE_DOWN, {"low_utilization": low, "utilization": use, "consolidate": YES_OR_NO})
    return {
        "resources": AMOUNTS,
        "labels": LABELS,
        "taints": {"type": "array", "items": taint},
        "rank": COUNT,
        "preemptible": YES_OR_NO,
        "scale_down": rules,
        "protected": NAMES,
        "provider": {"type": "string"},
        "upscaling_speed": {"type": "number", "minimum": 0},
        "settings": {"type": "object"},
    }


# -- sections of typed settings ------------------------------------------------------------------------------------


def _typed(types: Types) -> Schema:
    """A provider or a workload: which keys it has depends on its type."""
    options = []
    for name in types.known:
        one = _section(types.section(name))
        one["properties"] = {"type": {"const": name, "description": types.known[name].summary}, **one["properties"]}
        one["required"] = ["type", *one.get("required", [])]
        options.append(one)
    return {"type": "object", "oneOf": options}


def _section(section: Section) -> Schema:
    properties: dict[str, Schema] = {}
    required = []
    for one in section.settings:
        if isinstance(one, Setting):
            properties[one.name] = {**_kind(one.kind), **_words(one.key())}
            if one.default == REQUIRED:
                required.append(one.name)
        else:
            properties[one.name] = {**_section(one.section), **_words(one.key())}
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _kind(kind: Kind) -> Schema:
    match kind:
        case Duration():
            return DURATION
        case Whole():
            return {"type": "integer", "minimum": kind.low, "maximum": kind.high}
        case Share():
            most = "exclusiveMaximum" if kind.below_one else "maximum"
            return {"type": "number", "exclusiveMinimum": 0, most: 1}
        case Flag():
            return YES_OR_NO
        case OneOf():
            return {"enum": list(kind.choices)}
        case Number():
            return {"type": "number", "minimum": kind.low, "maximum": kind.high}
        case Words():
            return {"type": "array", "items": {"type": "string"}}
        case Data():
            return {}
        case _:
            return {"type": "string"}
