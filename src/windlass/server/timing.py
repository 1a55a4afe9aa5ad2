"""Durations of a controller for metrics: passes, commits to the journal, and answers of sources."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from windlass.control.controller import Controller

from .metrics import Metrics

Observe = Callable[[float], None]


def measure(controller: Controller, metrics: Metrics) -> None:
    """Observe every pass and every commit of a controller from now on."""
    _replace(controller, "tick", _timed_async(controller.tick, metrics.pass_seconds.observe))
    journal = controller.journal
    _replace(journal, "append", _timed(journal.append, metrics.append_seconds.observe))


def measure_sources(providers: Mapping[str, Any], workload: Any, metrics: Metrics) -> None:
    """Observe how long the workload and each provider take to answer; before a controller is made of them."""
    _replace(workload, "observe", _timed_async(workload.observe, metrics.source_seconds.labels("workload").observe))
    for name, one in providers.items():
        _replace(one, "list", _timed_async(one.list, metrics.source_seconds.labels(f"provider {name}").observe))


def _replace(owner: Any, name: str, call: Callable[..., Any]) -> None:
    try:
        setattr(owner, name, call)
    except AttributeError:
        return  # one with slots is not measured


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
