# Written by tools/reference.py from windlass.scenario.schema; change it there, then run: make docs-write
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from windlass.core.model.snapshot import Snapshot

Quantity = int | float | str
Needs = Mapping[str, Quantity]
NamedGroup = tuple[str, dict[str, Any]]

def group(
    name: str,
    *,
    resources: Needs | None = None,
    labels: Mapping[str, object] | None = None,
    taints: Sequence[Mapping[str, Any]] | None = None,
    hosts: int | None = None,
    min: int | None = None,
    max: int | None = None,
    spare: int | None = None,
    family: str | None = None,
    fallback: bool | None = None,
    rank: int | None = None,
    price: Quantity | None = None,
    preemptible: bool | None = None,
    max_launching: int | None = None,
    scale_down: Mapping[str, Any] | None = None,
    availability: Mapping[str, Any] | None = None,
    protected: Iterable[str] | None = None,
    boot_seconds: float | str | None = None,
    frozen: bool | None = None,
    **more_resources: Quantity,
) -> NamedGroup: ...
def family(
    name: str,
    *,
    max: int,
    min: int | None = None,
    spare: int | None = None,
    rank: int | None = None,
) -> NamedGroup: ...
def node(
    id: str | None = None,
    *,
    used: Needs | None = None,
    tasks: int | None = None,
    idle_since: float | None = None,
    labels: Mapping[str, object] | None = None,
    healthy: bool | None = None,
    classes: Mapping[str, int] | None = None,
) -> dict[str, Any]: ...
def slice_(
    id: str,
    group: str,
    state: str = "ready",
    *,
    nodes: Sequence[Mapping[str, Any]] | None = None,
    since: float | None = None,
    marked_until: float | None = None,
    final: bool | None = None,
    hosts: int | None = None,
    price: Quantity | None = None,
    used: Needs | None = None,
    tasks: int | None = None,
    idle_since: float | None = None,
    labels: Mapping[str, object] | None = None,
    healthy: bool | None = None,
    classes: Mapping[str, int] | None = None,
) -> dict[str, Any]: ...
def demand(
    id: str,
    needs: Needs,
    *,
    count: int | None = None,
    where: Sequence[str] | None = None,
    prefer: Sequence[str] | None = None,
    tolerates: Sequence[Mapping[str, Any]] | None = None,
    any_of: Sequence[Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    apart: Sequence[Mapping[str, Any]] | None = None,
    spread: Sequence[Mapping[str, Any]] | None = None,
    together: Sequence[Mapping[str, Any]] | None = None,
    priority: int | None = None,
    since: float | None = None,
) -> dict[str, Any]: ...
def gang(
    id: str,
    bundles: Iterable[tuple[Needs, int] | Mapping[str, Any]],
    kind: str = "any",
    *,
    where: Sequence[str] | None = None,
    prefer: Sequence[str] | None = None,
    tolerates: Sequence[Mapping[str, Any]] | None = None,
    any_of: Sequence[Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    apart: Sequence[Mapping[str, Any]] | None = None,
    spread: Sequence[Mapping[str, Any]] | None = None,
    together: Sequence[Mapping[str, Any]] | None = None,
    priority: int | None = None,
    since: float | None = None,
    deadline: float | None = None,
) -> dict[str, Any]: ...
def snapshot(
    groups: Iterable[NamedGroup],
    slices: Iterable[Mapping[str, Any]] = (),
    demands: Iterable[Mapping[str, Any]] = (),
    requests: Iterable[Mapping[str, Any]] = (),
    *,
    now: float = 0,
    apart: float | None = None,
    families: Iterable[NamedGroup] = (),
    name: str | None = None,
    max_nodes: int | None = None,
    max_hourly_cost: Quantity | None = None,
    max_launching: int | None = None,
    choose: str | None = None,
    effort: int | None = None,
    own_machine_premium: float | None = None,
) -> Snapshot: ...
