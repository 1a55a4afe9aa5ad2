"""This module reruns the work of a recording in the simulated cloud under other settings, up to the instant where it
ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from windlass.control.record.controller_state import ControllerState
from windlass.control.settings import Settings
from windlass.journal import Entry
from windlass.journal.memory import MemoryJournal
from windlass.sim.run.script import Script
from windlass.sim.run.simulation import Simulation
from windlass.sim.run.virtual_loop import EPOCH
from windlass.sim.trace.metrics import Sample
from windlass.sim.trace.run import FOR_EVER

from .history import HistoryReader, RecordedHistory
from .recording import Recording


class _MeasuredJournal(MemoryJournal):
    """A journal whose passes are measured as they are written."""

    def __init__(self, history: HistoryReader) -> None:
        super().__init__()
        self._happening = history

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        last = super().append(entries, epoch=epoch)
        if entries:
            self._happening.add(entries[0].at, entries)
        return last


def modelled(
    recording: Recording, settings: Settings, *, seed: int = 0, on_progress: Callable[[float], None] = lambda _: None
) -> tuple[RecordedHistory, Sequence[Sample]]:
    """Return the metrics under other settings, and the curve over time."""
    span = recording.until - recording.since
    # A simulated provider ignores the provider settings of a group.
    plain = replace(settings, groups=tuple(replace(one, settings={}) for one in settings.groups))
    script = Script(
        plain,
        jobs=recording.jobs,
        requests=recording.requests,
        faults=recording.odds.faults(),
        kinds=recording.odds.kinds(plain),
        seed=seed,
        hours=span / 3600,
    )
    history = HistoryReader(ControllerState(), EPOCH, EPOCH + span)
    engine = Simulation(
        script,
        journal=_MeasuredJournal(history),
        watch=lambda engine: on_progress(min(1.0, (engine.now() - EPOCH) / span)),
        thorough=False,
        stop_at_breach=False,
        by_clock=False,
        to_the_end=False,
        lease=FOR_EVER,
    )
    engine.run()
    return history.done(), history.samples
