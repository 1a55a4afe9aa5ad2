"""Writes src/windlass/builders.pyi: the signatures of the builders, whose keywords are the keys of a scenario."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from windlass import builders

NAMES = ("group", "family", "node", "slice_", "demand", "gang", "snapshot")
HEAD = """
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.core.model.snapshot import Snapshot

Quantity = int | float | str
Needs = Mapping[str, Quantity]
NamedGroup = tuple[str, dict[str, Any]]
"""


def stub() -> Iterator[str]:
    yield "# Written by tools/reference.py from windlass.scenario.schema; change it there, then run: make docs-write"
    yield HEAD.strip()
    yield ""
    for name in NAMES:
        yield from _function(name)


def _function(name: str) -> Iterator[str]:
    signature = inspect.signature(getattr(builders, name))
    yield f"def {name}("
    star = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not star:
            star = True
            yield "    *,"
        yield f"    {_parameter(one)},"
    yield f") -> {signature.return_annotation}: ..."


def _parameter(one: inspect.Parameter) -> str:
    if one.kind is one.VAR_KEYWORD:
        return f"**{one.name}: Quantity"
    optional = one.default is None and "None" not in str(one.annotation)
    kind = f"{one.annotation} | None" if optional else one.annotation
    return (
        f"{one.name}: {kind}" if one.default is one.empty else f"{one.name}: {kind} = {one.default!r}".replace("'", '"')
    )
