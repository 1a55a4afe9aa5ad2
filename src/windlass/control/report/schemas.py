"""This module holds the JSON Schemas of the documents that commands print and the server sends."""

from __future__ import annotations

from typing import Any, Final

from windlass.core.model.lifecycle import State

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "number"}
WHOLE: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
ANY: Final[Schema] = {}


def optional(schema: Schema) -> Schema:
    """Returns the schema of a value or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """Returns the schema of a mapping with names as keys."""
    return {"type": "object", "additionalProperties": schema}


def record(*, may_have: Schema | None = None, **keys: Schema) -> Schema:
    """Returns the schema of an object. All keys are required except those of ``may_have``; more keys are allowed."""
    more = may_have or {}
    names = {name.rstrip("_"): schema for name, schema in {**keys, **more}.items()}
    return {
        "type": "object",
        "properties": names,
        "required": [name.rstrip("_") for name in keys],
    }


def named(schema_name: str, /, *, may_have: Schema | None = None, **keys: Schema) -> Schema:
    """Returns the schema of a document that contains its schema name."""
    return record(may_have=may_have, schema={"type": "string", "const": schema_name}, **keys)


REASON: Final = record(code=optional(TEXT), why=TEXT)
AT_REASON: Final = record(at=NUMBER, code=optional(TEXT), why=optional(TEXT))
LEADER: Final = record(holder=optional(TEXT), epoch=WHOLE, alive=FLAG, seen_at=optional(NUMBER))
AVAILABILITY: Final = record(state=TEXT, until=optional(NUMBER), why=TEXT)
RESOURCES: Final = by_name({"anyOf": [TEXT, NUMBER]})
NEEDS: Final = many(record(count=WHOLE, needs=RESOURCES))
UNBLOCK: Final = record(
    change=TEXT,
    set=many(record(path=many(TEXT), value=ANY)),
    hourly_cost=NUMBER,
    buys=by_name(WHOLE),
    for_=by_name(WHOLE),
    for_demands=WHOLE,
    for_tasks=WHOLE,
)
PART: Final = record(tasks=WHOLE, code=optional(TEXT), why=TEXT, slices=many(TEXT), starts_in=optional(NUMBER))
GROUP: Final = record(
    name=TEXT,
    family=optional(TEXT),
    ready=WHOLE,
    coming=WHOLE,
    leaving=WHOLE,
    busy=WHOLE,
    states=record(**{str(state): WHOLE for state in State}),
    max=optional(WHOLE),
    min=optional(WHOLE),
    spare=optional(WHOLE),
    hosts=WHOLE,
    resources=RESOURCES,
    labels=by_name(TEXT),
    price=optional(NUMBER),
    preemptible=FLAG,
    hourly_cost=NUMBER,
    availability=AVAILABILITY,
    frozen_by=optional(TEXT),
    boot_seconds=optional(NUMBER),
    next=REASON,
)
FAMILY: Final = record(
    name=TEXT,
    min=WHOLE,
    max=WHOLE,
    spare=WHOLE,
    groups=many(TEXT),
    ready=WHOLE,
    coming=WHOLE,
    leaving=WHOLE,
    busy=WHOLE,
    hourly_cost=NUMBER,
    frozen_by=optional(TEXT),
    next=REASON,
)
SLICE: Final = record(
    ray_status=TEXT,
    id=TEXT,
    group=TEXT,
    provider=TEXT,
    state=TEXT,
    since=NUMBER,
    tasks=WHOLE,
    code=optional(TEXT),
    why=TEXT,
    ready_in=optional(NUMBER),
    hourly_cost=NUMBER,
    until=optional(NUMBER),
    then=optional(TEXT),
    use=NUMBER,
    cost=NUMBER,
    zone=optional(TEXT),
    hosts=WHOLE,
    phase=optional(TEXT),
)
DEMAND: Final = record(
    id=TEXT,
    tasks=WHOLE,
    since=optional(NUMBER),
    parts=many(PART),
    needs=NEEDS,
    gang=optional(TEXT),
    groups=by_name(REASON),
    unblocks=many(UNBLOCK),
)
NODE: Final = record(
    id=TEXT,
    slice=TEXT,
    group=optional(TEXT),
    tasks=WHOLE,
    used=RESOURCES,
    labels=by_name(TEXT),
    healthy=FLAG,
    idle_since=optional(NUMBER),
)
SUMMARY: Final = record(
    waiting_tasks=WHOLE,
    waiting_demands=WHOLE,
    impossible_demands=WHOLE,
    oldest_wait_since=optional(NUMBER),
    slices=WHOLE,
    busy=WHOLE,
    idle=WHOLE,
    coming=WHOLE,
    leaving=WHOLE,
    ceiling=optional(NUMBER),
    unknown_sources=many(TEXT),
)
_ACCOUNTS: Final = dict.fromkeys(("work", "booting", "idle", "spare", "draining", "ending", "total"), NUMBER)
BILL: Final = record(**_ACCOUNTS)
DECISION: Final = record(
    at=NUMBER,
    launch=by_name(WHOLE),
    routed=by_name(record(demands=by_name(WHOLE), tasks=WHOLE)),
    pending=by_name(record(slices=WHOLE, remaining=by_name(TEXT), demands=by_name(WHOLE))),
    unmet=many(record(demand=TEXT, tasks=WHOLE, code=TEXT)),
)
STATUS: Final = named(
    "windlass.status/v1",
    seq=WHOLE,
    version=TEXT,
    at=NUMBER,
    as_of=NUMBER,
    headline=TEXT,
    summary=SUMMARY,
    leader=LEADER,
    troubles=by_name(TEXT),
    frozen=by_name(TEXT),
    settings_differ=FLAG,
    groups=many(GROUP),
    families=many(FAMILY),
    slices=many(SLICE),
    demands=many(DEMAND),
    decision=DECISION,
    hourly_cost=record(now=NUMBER, planned=NUMBER),
    bill=BILL,
    spent_since=optional(NUMBER),
    may_have={"jobs": optional(many({"type": "object"}))},
)
WHY_SLICE: Final = record(
    phase=optional(TEXT),
    id=TEXT,
    group=TEXT,
    provider=TEXT,
    state=TEXT,
    since=NUMBER,
    hourly_cost=NUMBER,
    started=record(at=NUMBER, code=TEXT, why=TEXT, passed_over=by_name(REASON), count=optional(WHOLE)),
    life=many(record(at=NUMBER, state=TEXT, code=TEXT, why=TEXT)),
    refused=many(AT_REASON),
    must_go=optional(AT_REASON),
    cordoned=optional(AT_REASON),
    trouble=optional(TEXT),
    now=record(code=optional(TEXT), why=TEXT, until=optional(NUMBER), then=optional(TEXT)),
    certificate=optional(record(at=NUMBER, fence=WHOLE)),
    dead=FLAG,
    dead_hosts=many(record(host=TEXT, exit_code=optional(WHOLE), last_lines=many(TEXT))),
    joined=FLAG,
    leaving=optional(TEXT),
    final=FLAG,
    nodes=WHOLE,
    tasks=WHOLE,
    ready_in=optional(NUMBER),
)
WHY_DEMAND: Final = record(
    id=TEXT,
    waits=FLAG,
    since=NUMBER,
    until=optional(NUMBER),
    tasks=WHOLE,
    needs=NEEDS,
    gang=optional(TEXT),
    parts=many(PART),
    groups=by_name(REASON),
    unblocks=many(UNBLOCK),
    launched=many(record(at=NUMBER, group=TEXT, slices=many(TEXT), why=TEXT)),
    reasons=many(AT_REASON),
)
WHY_GROUP: Final = record(
    name=TEXT,
    provider=optional(TEXT),
    resources=RESOURCES,
    hosts=optional(WHOLE),
    min=optional(WHOLE),
    max=optional(WHOLE),
    spare=optional(WHOLE),
    price=optional(NUMBER),
    scales_down=FLAG,
    idle_timeout=optional(NUMBER),
    release=many(TEXT),
    slices=record(counted=WHOLE, ready=WHOLE, coming=WHOLE, busy=WHOLE),
    hourly_cost=NUMBER,
    frozen_by=optional(TEXT),
    availability=AVAILABILITY,
    next=optional(REASON),
    health=NUMBER,
    failures=many(record(at=NUMBER, code=TEXT)),
    succeeded_at=optional(NUMBER),
    boot_seconds=optional(NUMBER),
    launches=many(record(at=NUMBER, count=WHOLE, code=TEXT, why=TEXT)),
    refusals=many(record(at=NUMBER, slice=TEXT, code=TEXT, why=TEXT)),
)
WHY_FAMILY: Final = record(
    name=TEXT,
    frozen_by=optional(TEXT),
    min=WHOLE,
    max=WHOLE,
    spare=WHOLE,
    groups=many(
        record(
            name=TEXT,
            provider=TEXT,
            price=optional(NUMBER),
            counted=WHOLE,
            busy=WHOLE,
            hourly_cost=NUMBER,
            availability=AVAILABILITY,
            next=REASON,
        )
    ),
)
WHY: Final = named(
    "windlass.why/v1",
    name=TEXT,
    at=NUMBER,
    led=FLAG,
    slice=optional(WHY_SLICE),
    demand=optional(WHY_DEMAND),
    group=optional(WHY_GROUP),
    may_have={"job": optional({"type": "object"}), "family": optional(WHY_FAMILY)},
)
EVENT: Final = named(
    "windlass.event/v1",
    at=NUMBER,
    kind=TEXT,
    code=optional(TEXT),
    text=TEXT,
    subjects=many(TEXT),
    alarm=FLAG,
    seq=WHOLE,
    epoch=WHOLE,
)
EVENTS: Final = named("windlass.events/v1", events=many(EVENT), next=optional(WHOLE), previous=optional(WHOLE))
LIST: Final = named(
    "windlass.list/v1",
    items=many({"anyOf": [GROUP, SLICE, DEMAND, NODE]}),
    total=WHOLE,
    next=optional(TEXT),
)
SPAN: Final = record(from_=NUMBER, to=optional(NUMBER), state=TEXT, code=TEXT, why=TEXT, by=optional(TEXT))
LANE: Final = record(
    id=TEXT,
    group=TEXT,
    price=NUMBER,
    cost=NUMBER,
    started=record(code=TEXT, why=TEXT),
    spans=many(SPAN),
    use=many(record(at=NUMBER, tasks=WHOLE, share=NUMBER)),
)
LANES: Final = named(
    "windlass.lanes/v1", since=NUMBER, until=NUMBER, slices=many(LANE), total=WHOLE, next=optional(TEXT)
)
SERIES: Final = named(
    "windlass.series/v1",
    since=NUMBER,
    until=NUMBER,
    at=many(NUMBER),
    waiting=by_name(many(WHOLE)),
    slices=by_name(many(WHOLE)),
    busy=many(WHOLE),
    hourly_cost=many(NUMBER),
    ceiling=many(optional(NUMBER)),
)
ACCOUNT_ROW: Final = record(name=TEXT, **_ACCOUNTS)
ACCOUNTS: Final = named(
    "windlass.accounts/v1",
    by=TEXT,
    since=NUMBER,
    until=NUMBER,
    rows=many(ACCOUNT_ROW),
    total=ACCOUNT_ROW,
    difference=NUMBER,
)
ORDER: Final = named(
    "windlass.order/v1",
    seq=WHOLE,
    at=NUMBER,
    what=TEXT,
    subject=TEXT,
    by=TEXT,
    comment=optional(TEXT),
    heard=FLAG,
    outcome=TEXT,
)
ORDERS: Final = named("windlass.orders/v1", orders=many(ORDER))
CHECK: Final = {"type": "object"}
DOCTOR: Final = named("windlass.doctor/v1", ok=FLAG, checks=many(CHECK))
PLAN: Final = {"type": "object", "properties": {"schema": {"const": "windlass.plan/v1"}}, "required": ["schema"]}
SETTINGS: Final = named("windlass.settings/v1", seq=WHOLE, settings={"type": "object"})
REPLAY: Final = {"type": "object", "properties": {"schema": {"const": "windlass.replay/v1"}}, "required": ["schema"]}
WHAT_IF: Final = named(
    "windlass.what-if/v1",
    id=TEXT,
    state={"type": "string", "enum": ["waiting", "running", "done", "failed"]},
    progress=NUMBER,
    answer=optional(REPLAY),
    problem=optional(TEXT),
)
PROBLEM: Final = record(
    type=TEXT,
    title=TEXT,
    status=WHOLE,
    detail=TEXT,
    may_have={"did_you_mean": many(TEXT), "mistakes": many(TEXT), "retry_after": NUMBER},
)
