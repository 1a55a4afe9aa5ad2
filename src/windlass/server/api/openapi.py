"""This module builds the OpenAPI 3.1 document of the API from the schemas of the documents."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from windlass._version import __version__
from windlass.control.report import schemas
from windlass.control.report.schemas import NUMBER, TEXT, WHOLE, record
from windlass.server.problems import MEDIA_TYPE, TITLES

_DOCUMENTS: Final = (
    "status why event events list lanes series plan accounts order orders doctor settings replay what-if hello pass"
)
SCHEMA_VERSIONS: Final = dict.fromkeys(_DOCUMENTS.split(), 1)
COMPONENTS: Final = {
    "Status": schemas.STATUS,
    "Why": schemas.WHY,
    "Event": schemas.EVENT,
    "Events": schemas.EVENTS,
    "List": schemas.LIST,
    "Lanes": schemas.LANES,
    "Series": schemas.SERIES,
    "Plan": schemas.PLAN,
    "Accounts": schemas.ACCOUNTS,
    "Order": schemas.ORDER,
    "Orders": schemas.ORDERS,
    "Doctor": schemas.DOCTOR,
    "Settings": schemas.SETTINGS,
    "WhatIf": schemas.WHAT_IF,
    "Problem": schemas.PROBLEM,
    "Who": record(name=TEXT, role={"type": "string", "enum": ["viewer", "operator"]}),
    "Version": record(version=TEXT, schema_versions=schemas.by_name(WHOLE)),
    "Started": record(id=TEXT),
}
TIME: Final = {"type": "number", "minimum": 0, "exclusiveMaximum": 1e11}
SEQ: Final = {"type": "integer", "minimum": 0, "maximum": 2**62}
_AT: Final = ("at", TIME, "The time that the answer describes, in seconds since 1970; without it, now.")
_FILTERS: Final = (
    ("group", TEXT, "Only those of this group."),
    ("state", TEXT, "Only those in this state."),
    ("code", TEXT, "Only those with this reason code."),
    ("q", TEXT, "Only those whose name contains this text."),
    ("sort", TEXT, "The key to sort by; with a leading - in descending order."),
    ("limit", {"type": "integer", "minimum": 1, "maximum": 5000}, "Rows of a page."),
    ("cursor", TEXT, "next of the page before."),
    _AT,
)
_SPAN: Final = (
    ("since", TIME, "The start of the period, in seconds since 1970."),
    ("until", TIME, "The end of the period, in seconds since 1970."),
)
_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": 5000}

Parameter = tuple[str, dict[str, Any], str]
READ: Final[dict[str, tuple[str, str, tuple[Parameter, ...]]]] = {
    "/status": ("Status", "The status of the cluster.", (_AT,)),
    "/groups": ("List", "The groups of the status.", _FILTERS),
    "/slices": ("List", "The slices of the status.", _FILTERS),
    "/demands": ("List", "What waits.", _FILTERS),
    "/nodes": ("List", "The nodes that have joined.", _FILTERS),
    "/why": (
        "Why",
        "Explains the state of a slice, a demand or a group.",
        (("name", {"type": "string", "minLength": 1, "maxLength": 500}, "The slice, demand or group."), _AT),
    ),
    "/events": (
        "Events",
        "Events, oldest first; without after, the last ones.",
        (
            ("after", SEQ, "Only those after this record."),
            ("before", SEQ, "Only those before this record."),
            *_SPAN,
            ("subject", TEXT, "Only those about this slice, demand or group."),
            ("kind", TEXT, "Only those of this kind."),
            ("code", TEXT, "Only those with this reason code."),
            ("alarm", {"type": "string", "enum": ["true", "false", "1", "0"]}, "Only alarms, or only others."),
            ("limit", _LIMIT, "The number of events of a page; whole passes may make it a few more."),
        ),
    ),
    "/lanes": (
        "Lanes",
        "Every slice over time.",
        (
            *_SPAN,
            ("group", TEXT, "Only those of this group."),
            ("q", TEXT, "Only those with this text in the name."),
            ("limit", _LIMIT, "Slices of a page."),
            ("cursor", TEXT, "next of the page before."),
        ),
    ),
    "/series": (
        "Series",
        "Counts over time, as steps.",
        (*_SPAN, ("points", {"type": "integer", "minimum": 2, "maximum": 10000}, "The largest number of instants.")),
    ),
    "/plan": ("Plan", "The last plan of the controller.", ()),
    "/accounts": (
        "Accounts",
        "What was spent in a period; the rows add up to the bill.",
        (("by", {"type": "string", "enum": ["group", "job", "account"]}, "What each row stands for."), *_SPAN),
    ),
    "/settings": ("Settings", "The settings that the controller uses, without secrets.", ()),
    "/doctor": ("Doctor", "Checks everything that the cluster needs; at most once in 10 s.", ()),
    "/orders": (
        "Orders",
        "The orders of operators, the newest first.",
        (("limit", {"type": "integer", "minimum": 1, "maximum": 1000}, "The largest number of orders."),),
    ),
    "/whoami": ("Who", "The name and role of the token.", ()),
}
OF_NOW: Final = ("/status", "/groups", "/slices", "/demands", "/nodes", "/plan")
"""Documents that carry the number of the last record as their ETag."""
ORDER_BODY: Final = record(
    what={"type": "string", "enum": ["drain", "undrain", "freeze", "resume"]},
    subject={"type": "string", "minLength": 1, "maxLength": 500},
    may_have={"comment": {"type": "string", "maxLength": 500}},
)
WHAT_IF_BODY: Final = record(
    may_have={
        "set": {"type": "array", "items": {"type": "string"}, "maxItems": 50},
        "policy": {"type": "object"},
        "since": schemas.optional(NUMBER),
        "seed": {"type": "integer"},
    }
)


def _json(name: str, text: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    headers = {"Windlass-Seq": {"description": "The last journal record that the server has read.", "schema": TEXT}}
    return {"description": text, "headers": headers, "content": {"application/json": {"schema": schema}}}


def _problems(*names: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        status, title = TITLES[name]
        entry = found.setdefault(str(status), {"description": "", "content": {MEDIA_TYPE: {"schema": _PROBLEM}}})
        entry["description"] += f"{'; ' if entry['description'] else ''}`{name}`: {title.lower()}"
    return found


_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_GUARD: Final = ("unauthenticated", "host-refused", "rate-limited", "journal-unavailable", "invalid", "not-found")
_CHANGE: Final = (*_GUARD, "forbidden", "origin-refused", "too-large", "not-json")


def _parameters(found: tuple[Parameter, ...], required: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "query", "required": name in required, "description": text, "schema": schema}
        for name, schema, text in found
    ]


def _body(schema: dict[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _in_path(name: str, schema: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "in": "path", "required": True, "schema": schema}]


@cache
def document() -> dict[str, Any]:
    """Returns the document, with every route, answer and problem."""
    paths: dict[str, Any] = {}
    for part in (_reading(), _orders(), _what_ifs(), _sessions(), _without_token()):
        for path, methods in part.items():
            paths.setdefault(path, {}).update(methods)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": __version__,
            "summary": "What waits, why, and which machines can be launched.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}, {"session": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "windlass_session"},
            },
        },
    }


def _reading() -> dict[str, Any]:
    """Returns the routes that show the cluster, now and in the past."""
    paths: dict[str, Any] = {}
    for path, (name, text, parameters) in READ.items():
        extra = ("unknown-name",) if path == "/why" else ()
        answers = {"200": _json(name, text), **_problems(*_GUARD, "bad-time", "bad-cursor", "too-old", *extra)}
        if path in OF_NOW:
            answers["304"] = {"description": "Nothing changed since the ETag."}
        paths[path] = {
            "get": {
                "operationId": path.strip("/"),
                "summary": text,
                "parameters": _parameters(parameters, ("name",) if path == "/why" else ()),
                "responses": answers,
            }
        }
    paths["/stream"] = {
        "get": {
            "operationId": "stream",
            "summary": "Streams passes as server-sent events: hello, pass, resync.",
            "parameters": _parameters(
                (
                    ("topics", TEXT, "status, events, or both with a comma."),
                    ("after", SEQ, "Continue after this record; the header Last-Event-ID has the same meaning."),
                )
            ),
            "responses": {
                "200": {"description": "The stream.", "content": {"text/event-stream": {"schema": TEXT}}},
                **_problems(*_GUARD, "too-many-streams"),
            },
        }
    }
    return paths


def _orders() -> dict[str, Any]:
    """Returns the routes that take orders of operators."""
    key = {"name": "Idempotency-Key", "in": "header", "required": False, "schema": TEXT}
    return {
        "/orders": {
            "post": {
                "operationId": "give-order",
                "summary": "Drains or undrains a slice, freezes or resumes a group. For operators.",
                "parameters": [key],
                "requestBody": _body(ORDER_BODY),
                "responses": {
                    "202": _json("Order", "The order is in the journal."),
                    **_problems(*_CHANGE, "unknown-name", "already-ending", "not-frozen"),
                },
            }
        },
        "/orders/{seq}": {
            "get": {
                "operationId": "order",
                "summary": "An order and its outcome.",
                "parameters": _in_path("seq", SEQ),
                "responses": {"200": _json("Order", "The order."), **_problems(*_GUARD, "unknown-order")},
            }
        },
    }


def _what_ifs() -> dict[str, Any]:
    """Returns the routes that start, show and end replays."""
    return {
        "/what-if": {
            "post": {
                "operationId": "start-what-if",
                "summary": "Replays the recorded time under other settings.",
                "requestBody": _body(WHAT_IF_BODY),
                "responses": {"202": _json("Started", "The replay is queued."), **_problems(*_CHANGE)},
            }
        },
        "/what-if/{id}": {
            "get": {
                "operationId": "what-if",
                "summary": "The progress of a replay, and its answer.",
                "parameters": _in_path("id", TEXT),
                "responses": {"200": _json("WhatIf", "The replay."), **_problems(*_GUARD)},
            },
            "delete": {
                "operationId": "end-what-if",
                "summary": "Ends and deletes a replay.",
                "parameters": _in_path("id", TEXT),
                "responses": {"204": {"description": "The replay is deleted."}, **_problems(*_CHANGE)},
            },
        },
    }


def _sessions() -> dict[str, Any]:
    """Returns the routes that log in and out."""
    return {
        "/session": {
            "post": {
                "operationId": "log-in",
                "summary": "Exchanges a token for a session cookie.",
                "security": [],
                "requestBody": _body(record(token={"type": "string", "minLength": 1})),
                "responses": {"204": {"description": "The cookie is set."}, **_problems(*_CHANGE)},
            },
            "delete": {
                "operationId": "log-out",
                "summary": "Ends the session of this browser.",
                "security": [],
                "responses": {"204": {"description": "The cookie is gone."}, **_problems(*_CHANGE)},
            },
        }
    }


def _without_token() -> dict[str, Any]:
    """Returns the routes that need no token."""
    this = {"description": "This document.", "content": {"application/json": {"schema": {"type": "object"}}}}
    answers = {"/version": _json("Version", "The version."), "/openapi.json": this}
    return {
        path: {
            "get": {
                "operationId": path.strip("/").replace(".", "-"),
                "summary": answer["description"],
                "security": [],
                "responses": {"200": answer, **_problems("host-refused", "rate-limited", "unauthenticated")},
            }
        }
        for path, answer in answers.items()
    }
