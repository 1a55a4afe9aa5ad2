"""The page about the HTTP API, from its OpenAPI document."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from windlass.server.api.openapi import document
from windlass.server.problems import TITLES

STREAM = """\
`GET /api/v1/stream` sends server-sent events, at most five messages per second:

- `hello` is the first message.
- `pass` contains the changes of one or more whole passes. Its id is the number of their last journal record. A reader
  that reconnects with `Last-Event-ID` (or `after`) continues there. `status.set` contains the changed parts:
  `headline`, `summary`, `hourly_cost`, `bill`, `leader`, `troubles`, `frozen`, and whole rows of `groups`, `slices` and
  `demands` by name. `status.gone` contains the names of removed rows.
- `resync` tells a reader to load the status again, because it was disconnected for too long, or reads too slowly."""


def api_page() -> Iterator[str]:
    made = document()
    common = _common_errors(made)
    yield "# HTTP API"
    yield ""
    yield "All paths begin with `/api/v1`. The OpenAPI 3.1 document is at `/api/v1/openapi.json`. Send a token as"
    yield "`Authorization: Bearer TOKEN`, or log in. Times are seconds since 1970, money is in dollars. See also"
    yield "[the stream](#the-stream) and [errors](#errors)."
    yield ""
    yield "| request | what it does |"
    yield "|---|---|"
    for path, methods in made["paths"].items():
        for method, one in methods.items():
            yield f"| [`{method.upper()} {path}`](#{_anchor(f'{method} {path}')}) | {one['summary']} |"
    yield ""
    yield "Most requests can get one of these errors. The tables below list only other answers; the OpenAPI document"
    yield "lists all of them."
    yield ""
    yield "| status | error |"
    yield "|---|---|"
    for number, description in sorted(common):
        yield f"| {number} | {description.replace('|', '/')} |"
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
                if (status, answer["description"]) in common:
                    continue
                yield f"| {status} | {answer['description'].replace('|', '/')}{_schema(answer)} |"
    yield ""
    yield "## The stream"
    yield ""
    yield STREAM
    yield ""
    yield "## Errors"
    yield ""
    yield "Errors are `application/problem+json` (RFC 9457): `type` is `urn:windlass:problem:NAME`, and `detail`"
    yield "describes the problem and the remedy."
    yield ""
    yield "| status | name | title |"
    yield "|---|---|---|"
    for name, (status, title) in sorted(TITLES.items(), key=lambda item: (item[1][0], item[0])):
        yield f"| {status} | `{name}` | {title} |"


def _anchor(heading: str) -> str:
    """Return the anchor that GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _common_errors(made: dict[str, Any]) -> set[tuple[str, str]]:
    """Return the errors that more than half of all requests can get, as (status, description)."""
    requests = [one for methods in made["paths"].values() for one in methods.values()]
    counts = Counter(
        (status, answer["description"])
        for one in requests
        for status, answer in one["responses"].items()
        if int(status) >= 400
    )
    return {error for error, count in counts.items() if 2 * count > len(requests)}


def _schema(answer: dict[str, Any]) -> str:
    content = answer.get("content", {}).get("application/json", {}).get("schema", {})
    name = content.get("$ref", "").rpartition("/")[2]
    const = document()["components"]["schemas"].get(name, {}).get("properties", {}).get("schema", {}).get("const")
    return f" (`{const}`)" if const else ""
