"""This module checks the end of a run, when the faults are over: everything that can be placed must be, and no surplus
is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.control.reconcile.planner_input import plan_fleet
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code

from .invariants import Breach

if TYPE_CHECKING:
    from windlass.sim.run.simulation import Simulation

PASSING = frozenset(
    {Code.LAUNCHING, Code.BOOTING, Code.UNKNOWN_INPUT, Code.RATE_LIMITED, Code.INVALID_DEMAND, Code.BACKOFF}
)
"""Blockers that end with time, and must have ended by now."""


def at_the_end(engine: Simulation) -> list[Breach]:
    """Check L1, L2 and S8 after the run has become quiet."""
    now, found = engine.now(), list[Breach]()
    if not engine.is_quiet(now) or not engine.leaders:
        waits = [demand.id for demand in engine.workload.waiting]
        text = f"never quiet: still acting at the end; {len(engine.workload.runs)} runs, waiting {waits[:5]}"
        return [Breach("S8", now, text)]
    controller = engine.leaders[0].controller
    controller_state, settings = controller.controller_state, controller.settings
    _, final = plan_fleet(controller_state.fleet, controller_state.observed, settings, now)
    codes = {one.demand: one.reason.code for one in final.waiting}
    for demand in engine.workload.waiting:
        code = codes.get(demand.id)
        if code is None or code in PASSING:
            placed = sorted({one.on for one in final.placements if one.demand == demand.id})
            text = f"{demand.id} has waited since {demand.since} ({code or 'placed on ' + ', '.join(placed)})"
            found.append(Breach("L1", now, text))
    for change in (*final.cancel, *final.drain, *final.uncordon, *final.mark):
        found.append(Breach("L2", now, f"{change.slice} is still to go or to come back: {change.reason.why}"))
    if final.launches:
        found.append(Breach("L1", now, f"still to be launched: {dict(final.launch)}"))
    for record in controller_state.fleet.slices.values():
        if record.state != State.READY and not record.quarantine:
            found.append(Breach("L2", now, f"{record.id} is {record.state} since {record.since}: {record.reason.why}"))
    living = {name for cloud in engine.clouds.values() for name in cloud.living()}
    for name in sorted(living - controller_state.fleet.slices.keys()):
        found.append(Breach("S4", now, f"{name} is at the provider and in no record"))
    return found
