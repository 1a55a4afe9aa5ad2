"""This module generates the JSON Schema of the configuration from the tables that the reader uses.

Editors use it to complete keys, show their meaning and mark mistakes. Rules between keys (``max`` at least
``min``) are checked by ``windlass config check`` only.
"""

from __future__ import annotations

from windlass.scenario.declarations import REQUIRED, Key
from windlass.scenario.schema import FAMILY
from windlass.scenario.value_types import DURATION, Schema, described, object_schema
from windlass.setting_types import (
    Data,
    Duration,
    Flag,
    Kind,
    MachineImage,
    Number,
    OneOf,
    Prices,
    Section,
    Setting,
    Share,
    Whole,
    Words,
)

from .groups.images import IMAGE
from .groups.offers import OFFERS
from .registry import PROVIDERS, WORKLOADS, Types
from .schema import CONFIG, CONFIGURED_CLUSTER, CONFIGURED_GROUP, JOURNAL, LEADER, POLICY
from .server import NOTIFY, SERVER


def config_schema() -> Schema:
    """Return the whole schema."""
    group = object_schema(CONFIGURED_GROUP)
    group["properties"]["offers"] |= _section(OFFERS)
    group["properties"]["image"] |= object_schema(IMAGE)
    group["required"] = [name for name in group["required"] if name != "resources"]
    group["oneOf"] = [{"required": ["resources"]}, {"required": ["offers"]}]
    groups = {"type": "object", "additionalProperties": group}
    providers = {"type": "object", "additionalProperties": _typed(PROVIDERS), "minProperties": 1}
    properties = {
        "cluster": object_schema(CONFIGURED_CLUSTER),
        "families": {"type": "object", "additionalProperties": object_schema(FAMILY)},
        "groups": groups,
        "providers": providers,
        "workload": _typed(WORKLOADS),
        "journal": {"anyOf": [{"type": "string"}, _section(JOURNAL)]},
        "policy": _section(POLICY),
        "leader": _section(LEADER),
        "server": _section(SERVER),
        "notify": {"type": "array", "items": _section(NOTIFY)},
    }
    whole = object_schema(CONFIG)
    for name, schema in properties.items():
        whole["properties"][name] = {**schema, **whole["properties"][name]}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Windlass configuration",
        **whole,
    }


# -- sections of typed settings ------------------------------------------------------------------------------------


def _typed(types: Types) -> Schema:
    """Return the schema of a provider or a workload, whose keys depend on its type."""
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


def _words(key: Key) -> Schema:
    return {"description": described(key.meaning, key.default)}


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
            return {"type": "boolean"}
        case OneOf():
            return {"enum": list(kind.choices)}
        case Number():
            return {"type": "number", "minimum": kind.low, "maximum": kind.high}
        case Words():
            return {"type": "array", "items": {"type": "string"}}
        case Data():
            return {}
        case MachineImage():
            return object_schema(IMAGE)
        case Prices():
            return {"type": "object", "additionalProperties": {"type": "number", "minimum": 0}}
        case _:
            return {"type": "string"}
