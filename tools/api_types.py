"""Types of the API's documents for the dashboard's JavaScript, written from the OpenAPI document.

python tools/api_types.py            check that the file is current
python tools/api_types.py --write    write it
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from windlass.server.api.openapi import document

TARGET: Final = Path(__file__).resolve().parent.parent / "src" / "windlass" / "server" / "static" / "types.d.ts"
HEAD: Final = """// Types of the documents of the API, written by tools/api_types.py from OpenAPI: do not edit.
"""
ALIASES: Final = {
    "GroupRow": 'Status["groups"][number]',
    "SliceRow": 'Status["slices"][number]',
    "DemandRow": 'Status["demands"][number]',
    "Part": 'DemandRow["parts"][number]',
    "Unblock": 'DemandRow["unblocks"][number]',
    "WindlassEvent": "Event_",
    "Lane": 'Lanes["slices"][number]',
    "Span": 'Lane["spans"][number]',
    "AccountRow": 'Accounts["rows"][number]',
    "SliceWhy": 'NonNullable<Why["slice"]>',
    "DemandWhy": 'NonNullable<Why["demand"]>',
    "GroupWhy": 'NonNullable<Why["group"]>',
}
"""Names for parts that pages use."""
RENAMED: Final = {"Event": "Event_"}
"""Names that browsers have already."""
SIMPLE: Final = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def type_of(schema: Mapping[str, Any], indent: str = "") -> str:
    """A JSON schema as a type."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        return RENAMED.get(name, name)
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(type_of(one, indent) for one in schema["anyOf"]))
    kind = schema.get("type")
    if kind == "array":
        inside = type_of(schema.get("items", {}), indent)
        return f"({inside})[]" if " | " in inside and not inside.startswith("{") else f"{inside}[]"
    if kind == "object":
        return _object(schema, indent)
    return SIMPLE.get(str(kind), "any")


def _object(schema: Mapping[str, Any], indent: str) -> str:
    properties: Mapping[str, Any] = schema.get("properties", {})
    if not properties:
        more = schema.get("additionalProperties")
        return f"Record<string, {type_of(more, indent) if isinstance(more, Mapping) else 'any'}>"
    required, deeper = set(schema.get("required", ())), indent + "  "
    lines = [
        f"{deeper}{_key(name)}{'' if name in required else '?'}: {type_of(one, deeper)};"
        for name, one in properties.items()
    ]
    return "\n".join(["{", *lines, f"{indent}}}"])


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)


def text() -> str:
    parts = [HEAD]
    for name, schema in document()["components"]["schemas"].items():
        parts.append(f"export type {RENAMED.get(name, name)} = {type_of(schema)};\n")
    parts.append("\n".join(f"export type {name} = {value};" for name, value in ALIASES.items()) + "\n")
    parts.append(_documents())
    return "\n".join(parts)


def _documents() -> str:
    """What each path answers."""
    lines = ["/** What GET of each path answers. */", "export interface Documents {"]
    for path, methods in document()["paths"].items():
        answer = methods.get("get", {}).get("responses", {}).get("200", {}).get("content", {}).get("application/json")
        if answer is not None and "$ref" in answer["schema"]:
            key = json.dumps(path)
            if "{" in path:
                key = "[path: `" + re.sub(r"{\w+}", "${string}", path) + "`]"
            lines.append(f"  {key}: {type_of(answer['schema'])};")
    return "\n".join([*lines, "}", ""])


def main() -> int:
    if "--write" in sys.argv[1:]:
        TARGET.write_text(text(), encoding="utf-8")
        return 0
    if not TARGET.is_file() or TARGET.read_text(encoding="utf-8") != text():
        print(f"{TARGET} is not what the API says: run python tools/api_types.py --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
