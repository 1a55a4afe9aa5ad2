"""A patch holds what changed in a status document from one pass to the next: whole rows by name.

A row is not sent again because a countdown moved: numbers inside sentences, and numbers that only time changes, are as
of the row. The server serves the previous document with the patch applied, so that server and reader agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import repeat
from typing import Any, Final

TABLES: Final = {"groups": "name", "slices": "id", "demands": "id"}
"""The tables of a status, each with the key that identifies its rows."""
INSTANTS: Final = frozenset({"schema", "version", "seq", "at", "as_of"})
"""Parts that identify a document and its time. All other parts are sent whole if they changed."""
MOVING: Final = frozenset({"at", "ready_in", "cost", "starts_in", "seen_at"})
"""Numbers that change with time alone."""
_NUMBERS: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_NOT_MONEY: Final = re.compile(r"(?<![$\d.,:])\d+(?:[.,:]\d+)*")
"""Numbers but for amounts of dollars, which change with a decision and not with time."""
_SENTENCES: Final = frozenset({"why", "change", "then"})

Document = dict[str, Any]


def laid_over(before: Mapping[str, Any], patch: Mapping[str, Any]) -> Document:
    """Applies a patch to a status; new rows are added at the end of their table."""
    after = {**before, **{key: value for key, value in patch["set"].items() if key not in TABLES}}
    for table, name in TABLES.items():
        changed, gone = patch["set"].get(table, {}), set(patch["gone"].get(table, ()))
        rows = {row[name]: row for row in before[table] if row[name] not in gone}
        after[table] = list({**rows, **changed}.values())
    return after


def difference(before: Mapping[str, Any], after: Document) -> tuple[Document, Document]:
    """Returns the patch from one document to the next, and the next document with unchanged rows reused."""
    parts = [key for key in after if key not in TABLES and key not in INSTANTS]
    changed: Document = {key: after[key] for key in parts if not _is_same(before.get(key), after[key])}
    gone: Document = {}
    kept = {**after, **{key: before[key] for key in parts if key not in changed}}
    for table, name in TABLES.items():
        old = {row[name]: row for row in before[table]}
        numbers = _NOT_MONEY if table == "groups" else _NUMBERS  # with many waiting demands, all would be sent again
        rows, news = [], {}
        for row in after[table]:
            was = old.pop(row[name], None)
            if was is row or (was is not None and _is_same(was, row, numbers)):
                rows.append(was)
            else:
                rows.append(row)
                news[row[name]] = row
        if news:
            changed[table] = news
        if old:
            gone[table] = sorted(old)
        kept[table] = rows
    return {"set": changed, "gone": gone}, kept


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> Document:
    """Returns one patch with the effect of two."""
    parts = {**first["set"], **second["set"]}
    changed, gone = {key: value for key, value in parts.items() if key not in TABLES}, dict[str, Any]()
    for table in TABLES:
        ended, rows = set(second["gone"].get(table, ())), second["set"].get(table, {})
        before = {name: row for name, row in first["set"].get(table, {}).items() if name not in ended}
        if before or rows:
            changed[table] = {**before, **rows}
        if names := (set(first["gone"].get(table, ())) - rows.keys()) | ended:
            gone[table] = sorted(names)
    return {"set": changed, "gone": gone}


def _is_same(was: Any, now: Any, numbers: re.Pattern[str] = _NUMBERS) -> bool:
    """Whether two values are equal, apart from numbers that only time changes."""
    if was is now:
        return True
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(
            _is_same_key(key, was[key], value, numbers) for key, value in now.items()
        )
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(_is_same, was, now, repeat(numbers)))
    return bool(was == now)


def _is_same_key(key: str, was: Any, now: Any, numbers: re.Pattern[str]) -> bool:
    if was is now or key in MOVING:
        return True
    if key in _SENTENCES and isinstance(was, str) and isinstance(now, str):
        return was == now or numbers.sub("#", was) == numbers.sub("#", now)
    return _is_same(was, now, numbers)
