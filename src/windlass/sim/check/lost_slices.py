"""This module compares slices that a controller gives up, and its launches, with the machines of the simulated clouds.
Everything is measured by the true time and the clouds' own data, never by the controller's records, which are what is
checked: its clock may be off."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from windlass.control.settings import Policy
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.sim.cloud.provider import SimulatedProvider

from .fleet_totals import FleetTotals

MARGIN = 1.0
"""Tolerance in seconds for comparisons of float times."""
LATE_LISTS = 330.0
"""Seconds for which a machine may be billed after its end, or before its creation, while lists lag, calls hang and
launches are retried; without faults, an evaluation interval.
"""
WATCHED = 60.0
"""Seconds between two complete observations; in longer gaps no end is seen."""

Moves = Iterable[tuple[SliceRecord | None, SliceRecord]]


class GivenUpSlices:
    """Measures for how long slices were really missing or unhealthy, and for how long no controller observed."""

    def __init__(self, clouds: Mapping[str, SimulatedProvider], *, faults: bool) -> None:
        self._clouds, self._faults = clouds, faults
        self._absent: dict[str, float] = {}
        self._unwell: dict[str, float] = {}
        self._unbilled: dict[str, float] = {}
        """Slices that are missing or unhealthy, or not billed any more, by their records; with the true start time."""
        self._observed_at: float | None = None
        self._gaps: list[tuple[float, float]] = []
        """Times without a complete observation."""

    def record_pass(self, now: float, *, complete: bool) -> None:
        """Record a pass."""
        if complete:
            before, self._observed_at = self._observed_at, now
            # Without faults every change is an event, and is seen.
            if before is not None and self._faults and now - before > WATCHED:
                self._gaps.append((before, now))

    def follow(self, now: float, pairs: Moves) -> None:
        """Record changed slice records."""
        for _, record in pairs:
            stopped = record.bill_from if record.seen and record.billed_since is None else None
            for since, table in (
                (record.absent_since, self._absent),
                (record.unwell_since, self._unwell),
                (stopped, self._unbilled),
            ):
                if since is None:
                    table.pop(record.id, None)
                else:
                    table.setdefault(record.id, now)

    def forget(self, gone: Collection[str]) -> None:
        """Forget slices without a record."""
        for name in gone:
            self._absent.pop(name, None)
            self._unwell.pop(name, None)
            self._unbilled.pop(name, None)

    def given_up(
        self, now: float, clock: float, moves: Iterable[tuple[SliceRecord, SliceRecord | None]], policy: Policy
    ) -> Iterator[tuple[str, str]]:
        """S4: no slice with a live machine is given up before it was missing for the full time limit. S5: no slice
        whose machine exists counts as never bought. A removed record has no new one.
        """
        for old, new in moves:
            machines = [one for cloud in self._clouds.values() if (one := cloud.living_one(old.id)) is not None]
            if not machines:
                continue
            missing = now - self._absent.get(old.id, now)
            lost = old.absent_since is not None and (new is None or (new.state is State.LOST and not new.dead_hosts))
            stays = all(machine.ending_since is None for machine in machines)
            # While the workload shows its hosts as healthy, the list may be wrong.
            shown = new is not None and any(node.healthy for node in new.nodes)
            if lost and stays and missing < (policy.unhealthy_timeout if shown else policy.vanish_timeout) - MARGIN:
                yield "S4", f"{old.id} was given up as gone after {missing:.1f} s; its machine lives"
            refused = old.state is State.REQUESTING and (new is None or new.state is State.LAUNCH_FAILED)
            if refused and clock - old.since < policy.requesting_timeout - MARGIN:
                yield "S5", f"{old.id} counts as refused, and its machine was made"

    def replaced(self, now: float, pairs: Moves, policy: Policy) -> Iterator[tuple[str, str]]:
        """L3: no slice is replaced as unhealthy before it was unhealthy for the full time limit."""
        for old, new in pairs:
            if old is None or old.leaving is not None or new.leaving is None or new.leaving.code != Code.UNHEALTHY:
                continue
            unwell = now - self._unwell.get(new.id, now)
            if unwell < policy.unhealthy_timeout - MARGIN:
                yield "L3", f"{new.id} is replaced as unhealthy after {unwell:.1f} s"

    def lives_are_billed(
        self, now: float, gone: Collection[str], totals: FleetTotals, interval: float, made_by_hand: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """S14: a slice was billed for the lifetime of its machine, by the cloud's own data. An end that no controller
        sees is billed too late, never too early. A machine that a user created is billed from the first list that shows
        it, so it may have lived longer. A machine that no list has shown is not billed: it lived while no controller
        observed. Nor is the time without a controller after the last list, if that list had lost the slice.
        """
        if not gone:
            return
        late = (LATE_LISTS if self._faults else MARGIN) + interval
        slack = late + sum(end - start - WATCHED for start, end in self._gaps)
        if self._faults and self._observed_at is not None:  # the last gap may not have ended yet
            slack += max(0.0, now - self._observed_at - WATCHED)
        for name in gone:
            lives = [
                (cloud.made[name], cloud.history[name].at)
                for cloud in self._clouds.values()
                if name in cloud.history and name in cloud.made
            ]
            lived = sum(end - start for start, end in lives)
            billed = totals.billed_seconds.get(name, 0.0)
            error = billed - lived
            unseen = sum(self._unobserved(*life) for life in lives) if not billed else 0.0
            if name in self._unbilled:
                # A controller that died right after its pass may have recorded the loss at the start of the gap.
                lost = self._unbilled[name]
                lost = next((start for start, end in self._gaps if start <= lost <= end), lost)
                unseen += sum(self._unobserved(lost, end) for _, end in lives)
            if lives and (error > slack or (error < -late - unseen and name not in made_by_hand)):
                yield "S14", f"{name} was billed for {billed:.1f} s, its machine lived {lived:.1f} s"
            elif not lives and billed > slack and not any(name in cloud.made for cloud in self._clouds.values()):
                yield "S14", f"{name} was billed for {billed:.1f} s, and no machine was made for it"

    def _unobserved(self, start: float, end: float) -> float:
        """Return the seconds of a time span without a complete observation."""
        return sum(max(0.0, min(end, until) - max(start, since)) for since, until in self._gaps)


def unasked(
    came: Collection[str], known: Iterable[Collection[str]], made_by_hand: Collection[str]
) -> Iterator[tuple[str, str]]:
    """S5: every machine was bought under the id of a record: a launch is retried with the same id."""
    for name in came:
        if name not in made_by_hand and not any(name in names for names in known):
            yield "S5", f"{name} was bought, and no record asks for it"
