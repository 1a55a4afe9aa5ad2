"""Patches of a status document: what changed from one pass to the next, rows whole and by name.

A row is not sent again because a countdown moved: the numbers inside sentences, and those that only time changes, are
as of the row. The document that is served is the one before with the patch laid over it, so both sides agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

TABLES: Final = {"groups": "name", "slices": "id", "demands": "id"}
"""Tables of a status, and the key that names their rows."""
INSTANTS: Final = frozenset({"schema", "version", "seq", "at", "as_of"})
"""Parts that say what a document is and as of when; all others are sent whole where they changed."""
MOVING: Final = frozenset({"at", "ready_in", "cost", "starts_in", "seen_at"})
"""Numbers that time alone changes."""
_NUMBERS: Final = re.compile(r"\d+(?:[.,:]\d+)*")
_SENTENCES: Final = frozenset({"why", "change", "then"})

Document = dict[str, Any]


def laid_over(before: Mapping[str, Any], patch: Mapping[str, Any]) -> Document:
    """A status with a patch laid over it; tables keep the order of the document with which the patch was made."""
    after = {**before, **{key: value for key, value in patch["set"].items() if key not in TABLES}}
    for table, name in TABLES.items():
        changed, gone = patch["set"].get(table, {}), set(patch["gone"].get(table, ()))
        rows = {row[name]: row for row in before[table] if row[name] not in gone}
        after[table] = list({**rows, **changed}.values())
    return after


def difference(before: Mapping[str, Any], after: Document) -> tuple[Document, Document]:
    """The patch from one document to the next, and the next one with unchanged rows as they were."""
    parts = [key for key in after if key not in TABLES and key not in INSTANTS]
    changed: Document = {key: after[key] for key in parts if _stable(after[key]) != _stable(before.get(key))}
    gone: Document = {}
    kept = {**after, **{key: before[key] for key in parts if key not in changed}}
    for table, name in TABLES.items():
        old = {row[name]: row for row in before[table]}
        rows, news = [], {}
        for row in after[table]:
            was = old.pop(row[name], None)
            if was is not None and _is_same(was, row):
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


def _is_same(was: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether two rows differ at most in what only time changes; most keys of most rows are equal as they are."""
    if was is row:
        return True
    if was.keys() != row.keys():
        return False
    for key, value in row.items():
        before = was[key]
        if key not in MOVING and before != value and _stable({key: before}) != _stable({key: value}):
            return False
    return True


def _stable(value: Any) -> Any:
    """A value without what only time changes."""
    if isinstance(value, dict):
        return {
            key: _NUMBERS.sub("#", one) if key in _SENTENCES and isinstance(one, str) else _stable(one)
            for key, one in value.items()
            if key not in MOVING
        }
    if isinstance(value, list):
        return [_stable(one) for one in value]
    return value
