"""``gang`` declares work that starts all at once or not at all, for builders and for pools.

``gang(train, size=4)`` is a gang of calls for a pool; ``gang("pg-7", [({"gpu": 1}, 8)])`` is one in a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from windlass.pool.client.api import Compute, GangTask, Task

    from .builders import Needs

R = TypeVar("R")


@overload
def gang(function: Compute[..., R] | Task[R], /, size: int, *, spread: bool = False) -> GangTask[R]: ...
@overload
def gang(function: Callable[..., R], /, size: int, *, spread: bool = False) -> GangTask[R]: ...
@overload
def gang(id: str, bundles: Iterable[tuple[Needs, int] | Needs], kind: str = "any", **more: Any) -> dict[str, Any]: ...
def gang(*args: Any, **more: Any) -> Any:
    """Create a gang of calls (`windlass.pool.client.api.gang_of`), or one in a snapshot (`windlass.builders.gang`)."""
    if isinstance(args[0] if args else more.get("id"), str):
        from .builders import gang as in_snapshot

        return in_snapshot(*args, **more)
    from windlass.pool.client.api import gang_of

    return gang_of(*args, **more)
