"""The parser reads plain data from text: JSON if it is JSON, else YAML.

YAML is built from the parser's events, not with a ready-made loader, because a loader crashes the process on deep
nesting, lets ten lines of aliases grow into billions of entries, and loses duplicate keys. Here nesting is limited,
entries added by aliases are counted, keys stay the text that was written, a date stays text, and a mapping with a
duplicate key is marked (``Doubled``), so that the mistake is reported with its path.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Final

from .reader import MANY_DIGITS, SCENARIO_FILE, Doubled, FileKind, plainly

DEEPEST: Final = 64
"""Deepest nesting: a scenario has 7 levels, so text that is ten times deeper is no scenario."""

MOST_BY_ALIASES: Final = 1_000_000
"""Largest number of entries that aliases may add, each counted as often as it is used."""

LARGE: Final = 1_000_000
"""Longest text that is tried as YAML after it was not valid JSON: YAML is 50 times slower."""

_STARTS_AS_JSON = re.compile(r'\s*\{\s*["}]')


class _Unreadable(Exception):
    """The text is neither JSON nor YAML: the cause in one line, and the line of the text."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why)
        self.line = line


def plain_data(text: str | bytes, kind: FileKind = SCENARIO_FILE) -> object:
    """Returns the data of the text; raises the error of its kind, with one message, if it is neither JSON nor YAML."""
    try:
        text = _decoded(text)
        if not text.strip():
            raise _Unreadable(f"the file is empty; {kind.least}")
        return _from_text(text)
    except _Unreadable as error:
        wrong = kind.error([f"{kind.noun}: {error}"])
        wrong.line = error.line
        raise wrong from None


def _from_text(text: str) -> object:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _Unreadable(f"is not UTF-8 text: half a character {_position(text, error.start)}") from None
    if not text.lstrip().startswith("{"):
        return _from_yaml(text)
    try:
        return _from_json(text)
    except _NotJson as not_json:
        if _STARTS_AS_JSON.match(text) and len(text) > LARGE:
            raise _Unreadable(str(not_json), not_json.line) from None
        try:
            return _from_yaml(text)
        except _Unreadable:
            if _STARTS_AS_JSON.match(text):
                raise _Unreadable(str(not_json), not_json.line) from None
            raise


def _decoded(text: str | bytes) -> str:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _Unreadable(f"is not UTF-8 text: {error.reason} at byte {error.start}") from None
    return text.removeprefix("\ufeff")


def _position(text: str, index: int) -> str:
    line = text.count("\n", 0, index) + 1
    return f"in line {line}, column {index - text.rfind(chr(10), 0, index)}"


# -- JSON ----------------------------------------------------------------------------------------------------------


class _NotJson(_Unreadable):
    """The text is not JSON; it may still be YAML."""


def _mapping_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Doubled.of(pairs)


def _from_json(text: str) -> object:
    try:
        try:
            return json.loads(text, object_pairs_hook=_mapping_of)
        except json.JSONDecodeError:
            raise
        except ValueError:  # thousands of digits: kept as text, which is reported where a number is expected
            return json.loads(text, object_pairs_hook=_mapping_of, parse_int=_whole_or_text)
    except json.JSONDecodeError as error:
        raise _NotJson(f"is not JSON: {error.msg} in line {error.lineno}, column {error.colno}", error.lineno) from None
    except RecursionError:
        raise _Unreadable(f"is nested more than {DEEPEST} levels deep; 7 are enough") from None


def _whole_or_text(digits: str) -> int | str:
    return int(digits) if len(digits) < MANY_DIGITS else digits


# -- YAML ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """A list or mapping that is being read."""

    items: list[Any]
    is_mapping: bool
    anchor: str | None
    line: int
    size: int = 1
    key: Any = None
    """The key whose value comes next: text, or ``_MERGING``."""
    merges: list[dict[str, Any]] = field(default_factory=list)


_MERGING: Final = object()
_TAG: Final = "tag:yaml.org,2002:"


def _from_yaml(text: str) -> object:
    import yaml

    loader_class: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        loader = loader_class(text)
        try:
            return _YamlBuilder(loader, yaml).document()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        raise _Unreadable(_yaml_message(error, text), None if mark is None else mark.line + 1) from None


def _yaml_message(error: Any, text: str) -> str:
    """Returns the parser's message in one line, with line and column."""
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "cannot be read"
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None:
        where = f"in line {mark.line + 1}, column {mark.column + 1}"
    elif isinstance(position := getattr(error, "position", None), int):
        where = _position(text, position)
    else:
        where = "somewhere"
    if mark is not None and text[mark.index : mark.index + 1] == "\t":
        return plainly(f"is not YAML: a tab {where}; indent with spaces")
    context, start = getattr(error, "context", None), getattr(error, "context_mark", None)
    if context and mark is not None and start is not None and start.line != mark.line:
        # What is not closed is noticed lines later: the place to look at is where it begins.
        return plainly(f"is not YAML: {problem} {where}, {context} that begins in line {start.line + 1}")
    if context:
        problem = f"{problem} {context}"
    return plainly(f"is not YAML: {problem} {where}")


class _YamlBuilder:
    """Turns the parser's events into plain data, without recursion."""

    def __init__(self, loader: Any, yaml: Any) -> None:
        self._loader = loader
        self._yaml = yaml
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._by_aliases = 0

    def document(self) -> object:
        loader, yaml = self._loader, self._yaml
        kinds = {
            yaml.ScalarEvent: self._scalar_event,
            yaml.SequenceStartEvent: self._start,
            yaml.MappingStartEvent: self._start,
            yaml.SequenceEndEvent: self._end,
            yaml.MappingEndEvent: self._end,
            yaml.AliasEvent: self._alias,
        }
        result: list[Any] = []
        documents = 0
        while (event := loader.get_event()) is not None:
            kind = type(event)
            if kind is yaml.StreamEndEvent:
                break
            if kind is yaml.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    self._refuse(event, "holds a second document; a file is one")
            elif kind in kinds:
                done = kinds[kind](event)
                if done is not None and not self._open:
                    result.append(done[0])
        return result[0] if result else None

    def _refuse(self, event: Any, text: str) -> None:
        mark = event.start_mark
        raise _Unreadable(plainly(f"{text} (line {mark.line + 1}, column {mark.column + 1})"), mark.line + 1)

    def _start(self, event: Any) -> None:
        if len(self._open) >= DEEPEST:
            self._refuse(event, f"is nested more than {DEEPEST} levels deep; 7 are enough")
        is_mapping = type(event) is self._yaml.MappingStartEvent
        wanted = "map" if is_mapping else "seq"
        if event.tag not in (None, "!", _TAG + wanted):
            self._refuse(event, f"has the tag {event.tag!r}; leave tags out")
        if self._open and self._open[-1].is_mapping and self._open[-1].key is None:
            self._refuse(event, f"a key must be text, is a {'mapping' if is_mapping else 'list'}")
        self._open.append(_Open([], is_mapping, event.anchor, event.start_mark.line + 1))

    def _end(self, _event: Any) -> tuple[Any]:
        top = self._open.pop()
        value: Any = top.items
        if top.is_mapping:
            if top.merges:
                own = {key for key, _ in top.items}
                merged = {key: value for one in reversed(top.merges) for key, value in one.items()}
                top.items[:0] = [(key, value) for key, value in merged.items() if key not in own]
            value = _mapping_of(top.items)
        return self._finish(value, top.size, top.anchor)

    def _alias(self, event: Any) -> tuple[Any]:
        name = event.anchor
        if any(one.anchor == name for one in self._open):
            self._refuse(event, f"*{name} is inside &{name}: it would contain itself")
        if name not in self._anchors:
            self._refuse(event, f"*{name} has no anchor &{name} before it")
        value, size = self._anchors[name]
        self._by_aliases += size
        if self._by_aliases > MOST_BY_ALIASES:
            self._refuse(event, f"aliases add more than {MOST_BY_ALIASES:,} entries")
        return self._finish(value, size, None, event)

    def _scalar_event(self, event: Any) -> tuple[Any]:
        top = self._open[-1] if self._open else None
        if top is not None and top.is_mapping and top.key is None:
            if event.anchor:
                self._anchors[event.anchor] = (event.value, 1)
            top.key = _MERGING if event.value == "<<" and not event.style else event.value
            return (event.value,)
        return self._finish(self._scalar(event), 1, event.anchor)

    def _finish(self, value: Any, size: int, anchor: str | None, event: Any = None) -> tuple[Any]:
        if anchor:
            self._anchors[anchor] = (value, size)
        if self._open:
            top = self._open[-1]
            top.size += size
            if not top.is_mapping:
                top.items.append(value)
            elif top.key is None:  # only an alias reaches this line: it is a key
                if not isinstance(value, str):
                    self._refuse(event, "a key must be text, is an alias of something else")
                top.key = value
            elif top.key is _MERGING:
                self._merge(top, value)
                top.key = None
            else:
                top.items.append((top.key, value))
                top.key = None
        return (value,)

    def _merge(self, top: _Open, value: Any) -> None:
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise _Unreadable(f"'<<' merges mappings only (in the mapping from line {top.line})")
            top.merges.append(one)

    def _scalar(self, event: Any) -> Any:
        """Returns text, a number, true or false, or None. A date stays text."""
        text, tag = event.value, event.tag
        if event.style and tag in (None, "!"):
            return text
        if tag in (None, "!") or not tag.startswith(_TAG):
            if tag not in (None, "!"):
                self._refuse(event, f"has the tag {tag!r}; leave tags out")
            tag = self._loader.resolve(self._yaml.ScalarNode, text, (True, False))
        node = self._yaml.ScalarNode(tag, text, event.start_mark, event.end_mark)
        try:
            match tag.removeprefix(_TAG):
                case "int":
                    return self._loader.construct_yaml_int(node) if len(text) < MANY_DIGITS else text
                case "float":
                    return self._loader.construct_yaml_float(node)
                case "bool":
                    return self._loader.construct_yaml_bool(node)
                case "null":
                    return None
                case "str" | "timestamp" | "value" | "merge":
                    return text
        except (ValueError, KeyError, IndexError, OverflowError):
            self._refuse(event, f"{text[:40]!r} is not of the kind that its tag says")
        return self._refuse(event, f"has the tag {tag!r}; leave tags out")
