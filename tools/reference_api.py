"""The page about the HTTP API, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from windlass.server.api.openapi import document
from windlass.server.problems import TITLES

STREAM = """\
`GET /api/v1/stream` sends server-sent events. `hello` comes first. A `pass` has all of one or more whole passes; its id
is the number of the last journal record in them, and a reader that comes back with `Last-Event-ID` (or `after`) goes on
there.
`status.set` has what changed: `headline`, `summary`, `hourly_cost`, `bill`, `leader`, `troubles`, `frozen`, and rows of
`groups`, `slices` and `demands` whole and by name; `status.gone` has the names of rows that are gone. `resync` asks a
reader to load the status again: it was away for too long, or too slow. There are at most five messages a second."""


def api_page() -> Iterator[str]:
    made = document()
    yield "# HTTP API"
    yield ""
    yield "All paths begin with `/api/v1`. The OpenAPI 3.1 document is at `/api/v1/openapi.json`. Send a token as"
    yield "`Authorization: Bearer TOKEN`, or log in. Times are seconds since 1970, money is dollars."
    for path, methods in made["paths"].items():
        for method, one in methods.items():
            yield ""
            yield f"## `{method.upper()} {path}`"
            yield ""
            yield one["summary"]
            if one.get("parameters"):
                yield ""
                yield "| parameter | in | meaning |"
                yield "|---|---|---|"
                for parameter in one["parameters"]:
                    required = ", required" if parameter.get("required") else ""
                    meaning = parameter.get("description", "")
                    yield f"| `{parameter['name']}` | {parameter['in']}{required} | {meaning} |"
            yield ""
            yield "| status | answer |"
            yield "|---|---|"
            for status, answer in sorted(one["responses"].items()):
                yield f"| {status} | {answer['description'].replace('|', '/')}{_schema(answer)} |"
    yield ""
    yield "## The stream"
    yield ""
    yield STREAM
    yield ""
    yield "## Errors"
    yield ""
    yield "Errors are `application/problem+json` (RFC 9457): `type` is `urn:windlass:problem:NAME`, and `detail` says"
    yield "what to do."
    yield ""
    yield "| status | name | title |"
    yield "|---|---|---|"
    for name, (status, title) in sorted(TITLES.items(), key=lambda item: (item[1][0], item[0])):
        yield f"| {status} | `{name}` | {title} |"


def _schema(answer: dict[str, Any]) -> str:
    content = answer.get("content", {}).get("application/json", {}).get("schema", {})
    name = content.get("$ref", "").rpartition("/")[2]
    const = document()["components"]["schemas"].get(name, {}).get("properties", {}).get("schema", {}).get("const")
    return f" (`{const}`)" if const else ""
