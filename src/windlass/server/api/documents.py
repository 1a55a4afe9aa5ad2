"""This module makes the documents of the API besides status and why: lists, events, lanes, settings."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from windlass.control.record.controller_state import SETTINGS
from windlass.control.report.events import EventLine, earlier_events, later_events
from windlass.control.report.timeline import LANES
from windlass.control.state.codec import to_plain
from windlass.core.model.quantities import dollars, exact_quantity
from windlass.server.live.feed import Current, Feed
from windlass.server.problems import Problem

MOST: Final = 5000
"""The largest number of rows of a page."""
SECRET: Final = re.compile(r"(?i)(pass(word|wd|phrase)?|secret|token|credential|api_?key|private|auth)")
"""The values of these keys of the settings are left out."""


# -- lists ---------------------------------------------------------------------------------------------------------


def rows_of(table: str, current: Current) -> list[dict[str, Any]]:
    if table != "nodes":
        found: list[dict[str, Any]] = current.document[table]
        return found
    slices = current.planned.controller_state.fleet.slices
    return [
        {
            "id": node.id,
            "slice": node.slice_id,
            "group": slices[node.slice_id].group if node.slice_id in slices else None,
            "tasks": node.tasks,
            "used": {kind: exact_quantity(amount, kind) for kind, amount in node.used},
            "labels": dict(sorted(node.labels.items())),
            "healthy": node.healthy,
            "idle_since": node.idle_since,
        }
        for _, node in sorted(current.planned.controller_state.observed.node.items())
    ]


def listed(
    rows: Iterable[Mapping[str, Any]],
    *,
    group: str | None,
    state: str | None,
    code: str | None,
    text: str | None,
    sort: str | None,
    limit: int,
    cursor: str | None,
) -> dict[str, Any]:
    """Returns a page of the rows that match the filters."""
    found = [
        row
        for row in rows
        if (group is None or row.get("group", row.get("name")) == group or group in row.get("groups", ()))
        and (state is None or row.get("state") == state)
        and (code is None or code in _codes(row))
        and (text is None or text.lower() in str(row.get("id", row.get("name"))).lower())
    ]
    if sort:
        key, down = sort.removeprefix("-"), sort.startswith("-")
        if found and key not in found[0]:
            raise Problem("invalid", f"sort: {key} is not a key of a row.", mistakes=[f"sort: {key} is not known"])
        found.sort(key=lambda row: _sortable(row[key]), reverse=down)
    start = _offset(cursor, {"group": group, "state": state, "code": code, "q": text, "sort": sort})
    page = found[start : start + limit]
    more = start + limit < len(found)
    scope = {"group": group, "state": state, "code": code, "q": text, "sort": sort}
    return {
        "schema": "windlass.list/v1",
        "items": page,
        "total": len(found),
        "next": _cursor(start + limit, scope) if more else None,
    }


def _codes(row: Mapping[str, Any]) -> set[str | None]:
    next_code = row["next"]["code"] if isinstance(row.get("next"), Mapping) else None
    return {row.get("code"), next_code, *(part["code"] for part in row.get("parts", ()))}


def _sortable(value: Any) -> tuple[int, Any]:
    if value is None:
        return (0, 0)
    return (1, value) if isinstance(value, int | float) else (2, str(value))


def _cursor(start: int, scope: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps([start, _scope(scope)]).encode()).decode().rstrip("=")


def _scope(scope: Mapping[str, Any]) -> list[Any]:
    return [value for _, value in sorted(scope.items())]


def _offset(cursor: str | None, scope: Mapping[str, Any]) -> int:
    if cursor is None:
        return 0
    try:
        start, given = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(start, int) or isinstance(start, bool) or start < 0 or given != _scope(scope):
            raise ValueError
    except (ValueError, TypeError, RecursionError) as error:
        raise Problem("bad-cursor", "Take the cursor from next of the page before, with the same filters.") from error
    return start


# -- events --------------------------------------------------------------------------------------------------------


def events(
    feed: Feed,
    *,
    after: int | None,
    before: int | None,
    since: float | None,
    until: float | None,
    subject: str | None,
    wanted: Callable[[EventLine], bool],
    limit: int,
) -> dict[str, Any]:
    """Returns a page of events, oldest first; it ends with a whole pass."""
    found: list[EventLine] = []
    upto = feed.seq
    if after is not None:
        done = True
        scope: dict[str, Any] = {"since": since, "until": until, "subject": subject, "wanted": wanted}
        last = upto if before is None else min(upto, before - 1)
        for together in later_events(feed.journal, after, last, **scope):
            if len(found) >= limit:
                done = False
                break
            found += together
        following = max(upto, after) if done else found[-1].seq
        return _events(found, following, found[0].seq if found else None)
    last = upto if before is None else max(0, before - 1)
    done, first = True, None
    for begins, together in earlier_events(
        feed.journal, last, since=since, until=until, subject=subject, wanted=wanted
    ):
        if len(found) >= limit:
            done = False
            break
        found, first = [*together, *found], begins
    following = upto if before is None else (found[-1].seq if found else last)
    return _events(found, following, None if done else first)


def _events(found: list[EventLine], following: int | None, previous: int | None) -> dict[str, Any]:
    return {
        "schema": "windlass.events/v1",
        "events": [one.document() for one in found],
        "next": following,
        "previous": previous,
    }


# -- lanes ---------------------------------------------------------------------------------------------------------


def lanes(
    feed: Feed, since: float, until: float, group: str | None, text: str | None, limit: int, cursor: str | None
) -> dict[str, Any]:
    scope = {"group": group, "q": text}
    start = _offset(cursor, scope)
    found = feed.timeline().lanes_between(since, until, group, text or "")
    more = start + limit < len(found)
    return {
        "schema": LANES,
        "since": since,
        "until": until,
        "slices": [one.to_dict(since, until) for one in found[start : start + limit]],
        "total": len(found),
        "next": _cursor(start + limit, scope) if more else None,
    }


# -- settings ------------------------------------------------------------------------------------------------------


def settings(current: Current) -> dict[str, Any]:
    """Returns the settings that the controller uses, without anything that may be a secret."""
    running = current.planned.controller_state.settings.get(SETTINGS, current.planned.settings)
    plain = to_plain(running)
    # The settings that a group passes to its provider may contain secrets.
    groups = [
        {**{key: value for key, value in one.items() if key != "settings"}, "group": _as_written(one["group"])}
        for one in plain["groups"]
    ]
    cluster = {**plain.get("cluster", {})}
    if cluster.get("max_hourly_cost") is not None:
        cluster["max_hourly_cost"] = dollars(cluster["max_hourly_cost"])
    kept = without_secrets({**plain, "groups": groups, **({"cluster": cluster} if cluster else {})})
    return {"schema": "windlass.settings/v1", "seq": current.seq, "settings": kept}


def _as_written(group: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a group with amounts and dollars as in a configuration file; the journal has whole small units."""
    found = {**group, "resources": {name: exact_quantity(amount, name) for name, amount in group["resources"]}}
    return found if group.get("price") is None else {**found, "price": dollars(group["price"])}


def without_secrets(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_secrets(one) for key, one in value.items() if not SECRET.search(str(key))}
    if isinstance(value, list | tuple):
        return [without_secrets(one) for one in value]
    if isinstance(value, str) and re.search(r"://[^/\s:@]+:[^/\s@]+@", value):
        return re.sub(r"://[^/\s:@]+:[^/\s@]+@", "://", value)
    return value
