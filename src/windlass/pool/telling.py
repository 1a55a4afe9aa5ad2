from __future__ import annotations

from typing import Any

PoolStatus = Any


def status_of(hub: Any) -> Any: ...
def why(hub: Any, name: Any) -> Any: ...
