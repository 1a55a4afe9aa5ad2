"""This module finds the line of a mistake in a file.

Readers know a mistake by its path in the data. The line is looked up only when there is a mistake, by reading the text
once more with its marks.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from .reader import Path

LARGEST: Final = 5_000_000
"""Characters beyond which lines are not looked up: YAML with marks takes a second for each million."""


def lines_of(text: str | bytes, places: Iterable[Path]) -> list[int | None]:
    """For each path the line (from 1) of the deepest part of it that is in the text; None: it is unknown."""
    wanted = list(places)
    root = _composed(text)
    return [None if root is None else _line(root, path) for path in wanted]


def _composed(text: str | bytes) -> Any:
    import yaml

    if len(text) > LARGEST:
        return None
    try:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return yaml.compose(text, Loader=loader)
    except (yaml.YAMLError, RecursionError, ValueError):
        return None


def _line(root: Any, path: Path) -> int | None:
    node, line = root, None
    for part in path:
        found = _child(node, part)
        if found is None:
            break
        key, node = found
        line = (key or node).start_mark.line + 1
    return line


def _child(node: Any, part: str | int) -> tuple[Any, Any] | None:
    """The key and the value under a part of a path. In a list a part is a number, or the id of an entry."""
    if node.id == "mapping":
        for key, value in node.value:
            if key.id == "scalar" and key.value == str(part):
                return key, value
    elif node.id == "sequence" and isinstance(part, int):
        return (None, node.value[part]) if 0 <= part < len(node.value) else None
    elif node.id == "sequence":
        for entry in node.value:
            name = _child(entry, "id") if entry.id == "mapping" else None
            if name is not None and name[1].id == "scalar" and name[1].value == part:
                return None, entry
    return None
