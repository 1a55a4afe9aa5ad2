"""Provider rates from a journal: boot times, refusals, failed boots and preemptions, as settings of the simulated
cloud.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from statistics import mean

from windlass.control.record.journal_tables import IS, REFUSED
from windlass.control.settings import Settings
from windlass.control.state.codec import from_plain
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.journal import Record
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.faults.catalogue import Fault, FaultKind
from windlass.sim.run.script import Script

REFUSALS: dict[str, FaultKind] = {Code.QUOTA: "quota", Code.RATE_LIMITED: "throttled"}
"""Kinds of refusals by code; all others count as a stock-out."""


@dataclass
class GroupRates:
    """Observed boot times and failures of one group."""

    boots: list[float] = field(default_factory=list)
    """Seconds from the call until READY, of each machine that started."""
    calls: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Refused launch calls, by kind of fault."""
    pauses: list[float] = field(default_factory=list)
    """Seconds for which a provider asked not to be called."""
    never_up: int = 0
    """Machines that were listed and never became ready."""
    taken: list[float] = field(default_factory=list)
    """Seconds for which machines were ready before they were preempted or died."""


@dataclass
class ProviderRates:
    """Computes the rates of every group. ``slices``: those that exist when the journal begins."""

    slices: dict[str, SliceRecord] = field(default_factory=dict)
    groups: dict[str, GroupRates] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)

    def add(self, records: Iterable[Record]) -> None:
        """Add the records of one pass."""
        for record in records:
            if record.kind == REFUSED and (known := self.slices.get(record.subject)) is not None:
                odds = self._of(known.group)
                odds.refused[REFUSALS.get(record.data["code"], "stock-out")] += 1
                odds.pauses += [record.data["retry_after"]] if "retry_after" in record.data else []
            elif record.kind == "slice" and IS in record.data:
                self._learn(from_plain(SliceRecord, record.data[IS]))
            elif record.kind == "slice":
                self.slices.pop(record.subject, None)

    def _of(self, group: str) -> GroupRates:
        return self.groups.setdefault(group, GroupRates())

    def _learn(self, record: SliceRecord) -> None:
        before, odds = self.slices.get(record.id), self._of(record.group)
        self.slices[record.id] = record
        odds.calls += record.attempts - (before.attempts if before is not None else 0)
        was = before.state if before is not None else None
        new = record.joined_at is not None and (before is None or before.joined_at is None)
        if new and record.joined_at is not None and record.asked_at is not None:
            odds.boots.append(max(0.0, record.joined_at - record.asked_at))
        failed = (State.LAUNCH_TIMEOUT, State.INIT_FAILED)
        if record.state in failed and was not in failed:
            odds.never_up += 1
        why = record.leaving or record.reason
        taken = record.state == State.LOST or why.code == Code.PREEMPTED
        if record.joined_at is not None and taken and record.id not in self._taken:
            self._taken.add(record.id)
            odds.taken.append(max(0.0, record.since - record.joined_at))

    def kinds(self, settings: Settings) -> tuple[MachineKind, ...]:
        """Return the kinds of the simulated cloud: one per group, with its observed boot times."""
        found = []
        for kind in Script(settings).all_kinds():
            group = settings.by_name[kind.offering.name].group
            odds = self.groups.get(group.name, GroupRates())
            offering = replace(kind.offering, preemptible=group.preemptible or bool(odds.taken))
            boots = tuple(sorted(odds.boots))
            found.append(replace(kind, offering=offering, boot=float(group.boot_seconds), join=0.0, boots=boots))
        return tuple(found)

    def faults(self) -> tuple[Fault, ...]:
        """Return faults with the observed rates."""
        return tuple(fault for name, odds in sorted(self.groups.items()) for fault in _faults(name, odds))


def _faults(name: str, odds: GroupRates) -> Iterator[Fault]:
    where = frozenset({name})
    pause = mean(odds.pauses) if odds.pauses else 30.0
    for kind, times in sorted(odds.refused.items()):
        rate = min(1.0, times / max(1, odds.calls))
        yield Fault(kind, rate, groups=where, seconds=pause)  # type: ignore[arg-type]
    came = len(odds.boots) + odds.never_up
    if odds.never_up:
        yield Fault("boot-never", odds.never_up / came, groups=where)
    if odds.taken:
        share = min(1.0, len(odds.taken) / max(1, len(odds.boots)))
        yield Fault("preempted", share, groups=where, seconds=max(1.0, mean(odds.taken)))
