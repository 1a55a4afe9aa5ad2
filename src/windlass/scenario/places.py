"""This module finds the line of a mistake in a file.

Readers identify a mistake by its path in the data. The line is looked up only when there is a mistake, by parsing the
text again with positions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from .reader import Path

LARGEST: Final = 5_000_000
"""Longest text in which lines are looked up: YAML with positions takes a second per million characters."""


def lines_of(text: str | bytes, places: Iterable[Path]) -> list[int | None]:
    """Returns for each path the line (from 1) of its deepest part that is in the text; None: it is unknown."""
    wanted = list(places)
    root = _tree(text) if any(wanted) else None
    return [None if root is None else _line(root, path) for path in wanted]


_Kind = Literal["scalar", "list", "mapping"]


@dataclass(slots=True)
class _Node:
    """A part of the text with the line on which it starts. The items of a mapping are keys and values in turn."""

    kind: _Kind
    line: int
    text: str = ""
    items: list[_Node] = field(default_factory=list)


def _tree(text: str | bytes) -> _Node | None:
    """Returns the parts of the text, without recursion: yaml.compose crashes on deep nesting. None: it is not YAML."""
    import yaml as parser

    yaml: Any = parser  # the types of its events are not known to the type checker
    if len(text) > LARGEST:
        return None
    root, within, anchors = _Node("list", 0), list[_Node](), dict[str, _Node]()
    within.append(root)
    try:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
        while not isinstance(event := loader.get_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.CollectionEndEvent):
                within.pop()
            elif isinstance(event, yaml.AliasEvent):
                within[-1].items.append(anchors[event.anchor])
            elif isinstance(event, yaml.NodeEvent):
                is_scalar = isinstance(event, yaml.ScalarEvent)
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                kind: _Kind = "scalar" if is_scalar else "mapping" if is_mapping else "list"
                node = _Node(kind, event.start_mark.line + 1, event.value if is_scalar else "")
                within[-1].items.append(node)
                if event.anchor:
                    anchors[event.anchor] = node
                if not is_scalar:
                    within.append(node)
    except (yaml.YAMLError, KeyError, ValueError):
        return None
    return root.items[0] if root.items else None


def _line(root: _Node, path: Path) -> int | None:
    node, line = root, None
    for part in path:
        found = _child(node, part)
        if found is None:
            break
        line, node = found
    return line


def _child(node: _Node, part: str | int) -> tuple[int, _Node] | None:
    """Returns the line and the value under a part of a path. In a list a part is an index, or the id of an entry."""
    if node.kind == "mapping":
        for key, value in reversed(list(zip(node.items[::2], node.items[1::2], strict=True))):
            if key.kind == "scalar" and key.text == str(part):  # of a key that is given twice, the last value counts
                return key.line, value
    elif node.kind == "list" and isinstance(part, int):
        return (node.items[part].line, node.items[part]) if 0 <= part < len(node.items) else None
    elif node.kind == "list":
        for entry in node.items:
            name = _child(entry, "id") if entry.kind == "mapping" else None
            if name is not None and name[1].text == part:
                return entry.line, entry
    return None
