"""Builders create a snapshot in Python, for tests, notebooks and what-ifs.

    import windlass as wl

    wl.plan(wl.snapshot(
        groups=[wl.group("gpu-a", cpu=32, memory="128Gi", gpu=4, max=8, price=12.0)],
        slices=[wl.slice_("s-1", "gpu-a", used={"gpu": 2})],
        demands=[wl.demand("train", {"cpu": 4, "gpu": 1}, count=3)],
    )).launch

Each builder gives the same plain data as a scenario file has, and ``snapshot`` reads it as such: the same defaults, the
same checks, the same ``ScenarioError`` with the same paths. The keywords of a builder are the keys of its form in
``windlass.scenario.schema``. ``builders.pyi`` lists them for editors and type checkers; ``make docs-write`` writes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from windlass.core.model.snapshot import Snapshot
from windlass.scenario.declarations import REQUIRED, Form
from windlass.scenario.reader import Doubled
from windlass.scenario.scenario import read_plain
from windlass.scenario.schema import CLUSTER, DEMAND, FAMILY, GROUP, NODE, SLICE

Quantity = int | float | str
Needs = Mapping[str, Quantity]
NamedGroup = tuple[str, dict[str, Any]]

T = TypeVar("T")


def _with_keys_of(*forms: Form, without: Iterable[str] = ()) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Gives a builder the keys of forms as keywords, after its own parameters."""

    def decorate(build: Callable[..., T]) -> Callable[..., T]:
        own = inspect.signature(build).parameters
        rest = {parameter.name: parameter for parameter in own.values() if parameter.name != "keys"}
        last = [parameter for parameter in rest.values() if parameter.kind is parameter.VAR_KEYWORD]
        skipped = {*rest, *without}
        offered = {
            name: inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if key.default == REQUIRED else None,
                annotation="" if key.type is None else key.type.python,
            )
            for form in forms
            for name, key in form.keys.items()
            if name not in skipped
        }
        first = [parameter for parameter in rest.values() if parameter not in last]
        signature = inspect.Signature(
            [*first, *offered.values(), *last], return_annotation=inspect.signature(build).return_annotation
        )

        @wraps(build)
        def call(*args: Any, **keywords: Any) -> T:
            bound = signature.bind(*args, **keywords)  # TypeError for an unknown keyword, as for any function
            return build(*bound.args, **bound.kwargs)

        call.__signature__ = signature  # type: ignore[attr-defined]
        return call

    return decorate


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _plain(value) for key, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    """Mappings as dicts and other collections as lists, as in a file."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [_plain(one) for one in items]
    return value


@_with_keys_of(GROUP)
def group(name: str, *, resources: Needs | None = None, **more_resources: Any) -> NamedGroup:
    """A kind of machine. Every other keyword is a resource of one node: ``cpu=32, memory="128Gi", gpu=4``."""
    keys = {key: more_resources.pop(key) for key in GROUP.keys if key in more_resources}
    if keys.get("protected") is not None:
        keys["protected"] = sorted(keys["protected"])
    return name, _given({"resources": {**(resources or {}), **more_resources}, **keys})


@_with_keys_of(FAMILY)
def family(name: str, **keys: Any) -> NamedGroup:
    """Limits over all groups with ``family=name`` together, for ``snapshot(families=[...])``."""
    return name, _given(keys)


@_with_keys_of(NODE)
def node(id: str | None = None, **keys: Any) -> dict[str, Any]:
    """One host of a slice, for ``slice_(nodes=[...])``."""
    return _given({"id": id, **keys})


@_with_keys_of(SLICE, NODE)
def slice_(
    id: str, group: str, state: str = "ready", *, nodes: Sequence[Mapping[str, Any]] | None = None, **keys: Any
) -> dict[str, Any]:
    """A slice. What its only node uses can be given here; one with several hosts takes ``nodes=[node(...), ...]``.
    ``hosts`` and ``price`` are for one whose group is gone."""
    of_node = _given({key: keys.pop(key) for key in NODE.keys if key in keys and key not in SLICE.keys})
    if of_node and nodes is not None:
        raise TypeError(f"slice {id}: give either nodes=[...] or {', '.join(of_node)}, not both")
    return _given({"id": id, "group": group, "state": state, "nodes": [of_node] if of_node else nodes, **keys})


@_with_keys_of(DEMAND, without=("gang", "bundles", "deadline"))
def demand(id: str, needs: Needs, **keys: Any) -> dict[str, Any]:
    """Work without a place yet, ``count`` times; also a standing request, in ``snapshot(requests=[...])``."""
    return _given({"id": id, "needs": needs, **keys})


@_with_keys_of(DEMAND, without=("gang", "needs", "count"))
def gang(
    id: str, bundles: Iterable[tuple[Needs, int] | Mapping[str, Any]], kind: str = "any", **keys: Any
) -> dict[str, Any]:
    """Work that starts all at once or not at all: ``gang("pg-7", [({"gpu": 1}, 8)], kind="same-slice")``.

    A bundle is (needs, count), the needs of one task, or a mapping with the keys of a bundle in a scenario file.
    """
    members: list[Mapping[str, Any]] = []
    for one in bundles:
        if not isinstance(one, Mapping):
            members.append({"needs": one[0], "count": one[1]})
        elif isinstance(one.get("needs"), Mapping):
            members.append(dict(one))
        else:
            members.append({"needs": one, "count": 1})
    return _given({"id": id, "gang": kind, "bundles": members, **keys})


@_with_keys_of(CLUSTER)
def snapshot(
    groups: Iterable[NamedGroup],
    slices: Iterable[Mapping[str, Any]] = (),
    demands: Iterable[Mapping[str, Any]] = (),
    requests: Iterable[Mapping[str, Any]] = (),
    *,
    now: float = 0,
    apart: float | None = None,
    families: Iterable[NamedGroup] = (),
    **keys: Any,
) -> Snapshot:
    """A snapshot from its parts, checked as a scenario file is; ``ScenarioError`` names every mistake."""
    return read_plain(
        {
            "now": now,
            "cluster": _given({**keys, "apart": apart}),
            "families": Doubled.of(list(families)),
            "groups": Doubled.of(list(groups)),
            "slices": list(slices),
            "demands": list(demands),
            "requests": list(requests),
        }
    )
