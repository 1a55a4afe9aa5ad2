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
    changed: Document = {key: after[key] for key in parts if not _is_same(before.get(key), after[key])}
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


def _is_same(was: Any, now: Any) -> bool:
    """Whether two values differ at most in what only time changes."""
    if was is now:
        return True
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(_is_same_key(key, was[key], value) for key, value in now.items())
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(map(_is_same, was, now))
    return bool(was == now)


def _is_same_key(key: str, was: Any, now: Any) -> bool:
    if was is now or key in MOVING:
        return True
    if key in _SENTENCES and isinstance(was, str) and isinstance(now, str):
        return was == now or _NUMBERS.sub("#", was) == _NUMBERS.sub("#", now)
    return _is_same(was, now)
