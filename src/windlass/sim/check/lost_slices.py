"""Checks slices that a controller gives up, and what it has bought, against the machines that the clouds really have.

Everything is measured by the true time and the clouds' own memory, never by what the controller has recorded: its clock
may be off, and its records are what is checked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from windlass.control.settings import Policy
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.sim.cloud.provider import SimulatedProvider

from .fleet_totals import FleetTotals

MARGIN = 1.0
"""Seconds by which a clock may be early: instants are compared with floats."""
LATE_LISTS = 330.0
"""Seconds for which a machine may be billed after its end, or before it was made, while lists lag, calls hang and
launches are asked again; without faults, an evaluation interval."""
WATCHED = 60.0
"""Seconds between two complete looks; while there is none for longer, no end is seen."""

Moves = Iterable[tuple[SliceRecord | None, SliceRecord]]


class GivenUpSlices:
    """Follows for how long slices were really missing or unwell, and for how long no controller looked."""

    def __init__(self, clouds: Mapping[str, SimulatedProvider], *, faults: bool) -> None:
        self._clouds, self._faults = clouds, faults
        self._absent: dict[str, float] = {}
        self._unwell: dict[str, float] = {}
        """Slices that are missing or unwell by their records, and since when by the true time."""
        self._looked_at: float | None = None
        self._unwatched = 0.0
        """Seconds in which no controller saw every list."""

    def look(self, now: float, *, complete: bool) -> None:
        """Take note of a pass."""
        if complete:
            if self._looked_at is not None and self._faults:  # without faults every change is an event, and is seen
                self._unwatched += max(0.0, now - self._looked_at - WATCHED)
            self._looked_at = now

    def follow(self, now: float, pairs: Moves, gone: Collection[str]) -> None:
        """Take note of records that have changed."""
        for _, record in pairs:
            for since, table in ((record.absent_since, self._absent), (record.unwell_since, self._unwell)):
                if since is None:
                    table.pop(record.id, None)
                else:
                    table.setdefault(record.id, now)
        for name in gone:
            self._absent.pop(name, None)
            self._unwell.pop(name, None)

    def given_up(
        self, now: float, clock: float, moves: Iterable[tuple[SliceRecord, SliceRecord | None]], policy: Policy
    ) -> Iterator[tuple[str, str]]:
        """S4: no slice whose machine lives is given up before it was missing for so long; S5: none counts as never
        bought whose machine is there. A record that is forgotten has no new one."""
        for old, new in moves:
            machines = [one for cloud in self._clouds.values() if (one := cloud.living_one(old.id)) is not None]
            if not machines:
                continue
            missing = now - self._absent.get(old.id, now)
            lost = old.absent_since is not None and (new is None or (new.state is State.LOST and not new.dead_hosts))
            stays = all(machine.ending_since is None for machine in machines)
            # While the workload shows its hosts well, the list may be wrong.
            shown = new is not None and any(node.healthy for node in new.nodes)
            if lost and stays and missing < (policy.unhealthy_timeout if shown else policy.vanish_timeout) - MARGIN:
                yield "S4", f"{old.id} was given up as gone after {missing:.1f} s; its machine lives"
            refused = old.state is State.REQUESTING and (new is None or new.state is State.LAUNCH_FAILED)
            if refused and clock - old.since < policy.requesting_timeout - MARGIN:
                yield "S5", f"{old.id} counts as refused, and its machine was made"

    def replaced(self, now: float, pairs: Moves, policy: Policy) -> Iterator[tuple[str, str]]:
        """L3: nothing is replaced as unhealthy before it was unwell for so long."""
        for old, new in pairs:
            if old is None or old.leaving is not None or new.leaving is None or new.leaving.code != Code.UNHEALTHY:
                continue
            unwell = now - self._unwell.get(new.id, now)
            if unwell < policy.unhealthy_timeout - MARGIN:
                yield "L3", f"{new.id} is replaced as unhealthy after {unwell:.1f} s"

    def lives_are_billed(
        self, gone: Collection[str], totals: FleetTotals, interval: float, made_by_hand: Collection[str]
    ) -> Iterator[tuple[str, str]]:
        """S14: a slice was billed for as long as its machine lived, by the cloud's own memory. A machine that was
        made by hand is billed from the first list that shows it, so it may have lived longer."""
        slack = (LATE_LISTS if self._faults else MARGIN) + interval + self._unwatched
        for name in gone:
            lives = [
                cloud.history[name].at - cloud.made[name]
                for cloud in self._clouds.values()
                if name in cloud.history and name in cloud.made
            ]
            billed = totals.billed_seconds.get(name, 0.0)
            error = billed - sum(lives)
            if lives and (error > slack or (error < -slack and name not in made_by_hand)):
                yield "S14", f"{name} was billed for {billed:.1f} s, its machine lived {sum(lives):.1f} s"
            elif not lives and billed > slack and not any(name in cloud.made for cloud in self._clouds.values()):
                yield "S14", f"{name} was billed for {billed:.1f} s, and no machine was made for it"


def unasked(
    came: Collection[str], known: Iterable[Collection[str]], made_by_hand: Collection[str]
) -> Iterator[tuple[str, str]]:
    """S5: every machine that was bought was bought under the id of a record: a launch is asked again with its id."""
    for name in came:
        if name not in made_by_hand and not any(name in names for names in known):
            yield "S5", f"{name} was bought, and no record asks for it"
