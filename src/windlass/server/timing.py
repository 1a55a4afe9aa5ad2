"""This module measures a controller for metrics: the durations of passes, commits and answers of sources."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from windlass.control.controller import Controller

from .metrics import Metrics

Observe = Callable[[float], None]


def measure(
    controller: Controller,
    metrics: Metrics,
    clock: Callable[[], float] = time.monotonic,
    on_begin: Callable[[], None] = lambda: None,
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Measures every pass and every commit of a controller from now on. ``on_begin`` and ``on_end``: called before and
    after every pass."""
    timed = _timed_async(controller.tick, metrics.pass_seconds.observe)
    finished: float | None = None  # of the last pass; None: it does not lead

    async def tick(*args: Any, **more: Any) -> Any:
        nonlocal finished
        on_begin()
        try:
            done = await timed(*args, **more)
            finished = clock()
            return done
        except BaseException:
            finished = None
            raise
        finally:
            on_end()

    _replace(controller, "tick", tick)
    metrics.pass_age = lambda: None if finished is None else clock() - finished
    journal = controller.journal
    _replace(journal, "append", _timed(journal.append, metrics.append_seconds.observe))


def measure_sources(providers: Mapping[str, Any], workload: Any, metrics: Metrics) -> None:
    """Measures the answer times of the workload and of each provider; to be called before the controller is built."""
    _replace(workload, "observe", _timed_async(workload.observe, metrics.source_seconds.labels("workload").observe))
    for name, one in providers.items():
        _replace(one, "list", _timed_async(one.list, metrics.source_seconds.labels(f"provider {name}").observe))


def _replace(owner: Any, name: str, call: Callable[..., Any]) -> None:
    try:
        setattr(owner, name, call)
    except AttributeError:
        return  # an object with slots cannot be measured


def _timed(call: Callable[..., Any], observe: Observe) -> Callable[..., Any]:
    def timed(*args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return call(*args, **more)
        finally:
            observe(time.perf_counter() - began)

    return timed


def _timed_async(call: Callable[..., Awaitable[Any]], observe: Observe) -> Callable[..., Awaitable[Any]]:
    async def timed(*args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return await call(*args, **more)
        finally:
            observe(time.perf_counter() - began)

    return timed
