"""This module finds engines by name."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

from windlass._extras import install_command
from windlass.pool.errors import BadPool, PoolError

from .protocol import Engine


class MissingExtra(PoolError, ImportError):
    """An optional package is not installed; the text has the command that installs it."""


def need(module: str, extra: str) -> None:
    """Raise ``MissingExtra`` unless a module is installed."""
    if importlib.util.find_spec(module) is None:
        raise MissingExtra(f"{module} is not installed, and this pool needs it: {install_command(extra)}")


def engine_of(given: str | Engine) -> Callable[[float, str], Engine]:
    """Return a function that creates the engine; an unknown name raises an error at once. The function takes the pool's
    ``unhealthy_timeout`` and the address of this computer that nodes connect to.
    """
    if not isinstance(given, str):
        if not isinstance(given, Engine):
            raise BadPool(f"engine must be 'dask' or 'ray', is {type(given).__name__}")
        return lambda _unhealthy_timeout, _host: given
    need("cloudpickle", "pool")
    if given == "dask":
        need("distributed", "pool")
        return _dask
    if given == "ray":
        need("ray", "pool-ray")
        return _ray
    raise BadPool(f"engine must be 'dask' or 'ray', is {given!r}")


def _dask(unhealthy_timeout: float, host: str) -> Engine:
    from windlass.pool.engines.dask.engine import DaskEngine

    return DaskEngine(host=host, unhealthy_timeout=unhealthy_timeout)


def _ray(unhealthy_timeout: float, host: str) -> Engine:
    from windlass.pool.engines.ray.engine import RayEngine

    return RayEngine(host=host, unhealthy_timeout=unhealthy_timeout)
