"""This module runs a job trace on the machines of some settings and measures it until nothing more happens."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from windlass.control.controller import Controller
from windlass.control.settings import Settings
from windlass.journal.memory import MemoryJournal
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.cloud.stock import StockRecording, stocked
from windlass.sim.faults.catalogue import Fault
from windlass.sim.run.script import Script
from windlass.sim.run.simulation import Simulation
from windlass.sim.run.virtual_loop import EPOCH

from .metrics import Gauge, Measures, measures
from .reader import Trace

CURVE = 2000
"""Number of points of a curve; more than a picture shows."""
FOR_EVER = 10.0 * 365 * 86400
"""Longer than any trace: the lease is never taken over, and the last job ends."""


def run_trace(
    settings: Settings,
    trace: Trace,
    *,
    seed: int = 0,
    faults: tuple[Fault, ...] = (),
    recordings: tuple[StockRecording, ...] = (),
    on_progress: Callable[[float], None] = lambda _: None,
    controller: Callable[..., Controller] = Controller,
    leaping: bool = True,
) -> tuple[Gauge, Measures]:
    """Return the curve over time and the metrics. The stock of preemptible groups follows ``recordings``;
    ``on_progress`` is called with the share of arrivals so far; ``controller`` creates the controller, for comparisons.
    A controller that depends on utilization, whatever the settings say, must not be ``leaping``.
    """
    span = max((job.arrives for job in trace.jobs), default=0.0)
    script = Script(
        settings,
        jobs=trace.jobs,
        faults=faults,
        kinds=_kinds(settings, recordings),
        seed=seed,
        hours=span / 3600,
        recordings=recordings,
    )
    gauge = Gauge(max(1.0, span / CURVE))

    def watch(engine: Simulation) -> None:
        gauge(engine)
        on_progress(min(1.0, (engine.now() - EPOCH) / max(span, 1.0)))

    engine = Simulation(
        script,
        controller,
        MemoryJournal(hashed=False),
        watch=watch,
        thorough=False,
        leaping=leaping,
        lease=FOR_EVER,
        cap=FOR_EVER,
    )
    with _without_garbage_collection():
        run = engine.run()
    return gauge, measures(engine, run, gauge, trace.jobs)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Disable cyclic garbage collection: a simulation creates almost no cycles, and the collector took a twentieth of
    its time.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _kinds(settings: Settings, recordings: tuple[StockRecording, ...]) -> tuple[MachineKind, ...]:
    """Return the kinds of the simulated cloud: one per group, in its zone, with its boot time."""
    found = []
    for kind in Script(settings).all_kinds():
        configured = settings.by_name[kind.offering.name]
        there = stocked(kind, recordings, configured.settings.get("zone"))
        found.append(replace(there, boot=float(configured.group.boot_seconds), join=0.0))
    return tuple(found)
