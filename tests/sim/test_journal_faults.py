"""The journal under a controller that dies while it writes, and under programs of another version."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.sim.small import broken, script
from windlass.control.controller import Controller
from windlass.journal import Entry, Fenced, Journal, JournalVersion, open_journal
from windlass.journal.memory import MemoryJournal
from windlass.sim.faults.catalogue import Fault, FaultSet
from windlass.sim.faults.crash_points import CallLog, CrashingJournal, Killed, Lifeline, Torn
from windlass.sim.random_source import RandomSource
from windlass.sim.run.simulation import Simulation, simulate

TORN = (Fault("torn-record", 0.25),)
VERSIONS = (Fault("newer-version", 6.0), Fault("older-version", 12.0))


def notes(count: int) -> list[Entry]:
    return [Entry("note", f"n-{number}", 1.0, {"number": number}) for number in range(count)]


# -- a torn last record --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [0, 1, 2])
@pytest.mark.parametrize("forgetful", [True, False])
def test_of_a_write_in_which_its_writer_dies_nothing_is_there(whole, forgetful):
    with MemoryJournal() if forgetful else open_journal(":memory:") as journal:
        journal.append(notes(2), epoch=0)
        with pytest.raises(Killed):
            journal.append(Torn(notes(3), whole), epoch=0)
        assert [record.subject for record in journal.read()] == ["n-0", "n-1"]
        assert journal.append(notes(1), epoch=0) == 3


def test_a_torn_write_of_one_who_does_not_lead_any_more_is_refused_like_a_whole_one():
    journal = MemoryJournal()
    assert journal.acquire("other", 10.0, 0.0)
    with pytest.raises(Fenced):
        journal.append(Torn(notes(3), 1), epoch=0)


def test_a_write_of_nothing_is_not_torn():
    torn = FaultSet.of((Fault("torn-record"),), RandomSource(1))
    lifeline = Lifeline(lambda: torn, lambda: 0.0, 1)
    journal = CrashingJournal(MemoryJournal(), lifeline, lambda: torn, lambda: 0.0, CallLog(), 1)
    assert journal.append((), epoch=0) == 0
    assert torn.struck == {}
    with pytest.raises(Killed):
        journal.append(notes(1), epoch=0)


def test_controllers_die_while_they_write_and_nothing_is_lost_or_half_there():
    run = simulate(script(faults=TORN))
    assert (run.breaches, run.finished) == ((), 3)
    assert run.faults["torn-record"] > 5


class PowerCuts:
    """A real file; a torn write leaves it as a power cut does: with some of the write's bytes in its log."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._number, self._chance = directory, 0, Random(1)
        self._journal = open_journal(directory / "0.db")
        self.cuts = 0

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        if not isinstance(entries, Torn):
            return self._journal.append(entries, epoch=epoch)
        old = self._directory / f"{self._number}.db"
        self._number += 1
        new = self._directory / f"{self._number}.db"
        database, before = old.read_bytes(), Path(f"{old}-wal").read_bytes()
        self._journal.append(entries.all, epoch=epoch)
        frames = Path(f"{old}-wal").read_bytes()
        new.write_bytes(database)
        pairs = enumerate(zip(before, frames, strict=False))
        begun = next((at for at, (was, now) in pairs if was != now), len(before))
        Path(f"{new}-wal").write_bytes(frames[: self._chance.randrange(begun, len(frames))])
        self._journal.close()
        self._journal = open_journal(new)
        self.cuts += 1
        raise Killed("the power is cut")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


def test_a_real_file_with_a_torn_end_reads_as_one_whose_end_was_never_written(tmp_path):
    real, memory = PowerCuts(tmp_path), MemoryJournal(keep_all=True)
    runs = [simulate(script(faults=TORN), journal=journal) for journal in (real, memory)]
    assert [run.breaches for run in runs] == [(), ()]
    assert real.cuts == runs[0].faults["torn-record"] > 5
    stories = [[(one.seq, one.epoch, one.kind, one.subject, one.at) for one in each.read()] for each in (real, memory)]
    assert stories[0] == stories[1]
    assert real.health().ok
    real.close()


class Halves(MemoryJournal):
    """Keeps entry by entry, and not all or nothing."""

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        for entry in entries:
            super().append([entry], epoch=epoch)
        return self.last_seq()


class Amnesiac(MemoryJournal):
    """Loses the last of what was committed when somebody takes the lease."""

    def acquire(self, holder: str, ttl: float, now: float | None) -> Any:
        if self._records:
            del self._records[-1]
            self._last -= 1
        return super().acquire(holder, ttl, now)


@pytest.mark.parametrize("journal", [Halves, Amnesiac])
def test_a_journal_that_keeps_half_a_write_or_loses_one_is_caught(journal):
    assert "S12" in broken(simulate(script(faults=TORN), journal=journal()))


# -- another version -----------------------------------------------------------------------------------------------


def handle(store: Journal, log: CallLog, version: int) -> CrashingJournal:
    """The journal as a program of a version has it open."""
    calm = FaultSet.of((), RandomSource(1))
    return CrashingJournal(store, Lifeline(lambda: calm, lambda: 0.0, 1), lambda: calm, lambda: 0.0, log, version)


def test_a_program_that_is_older_than_the_journals_tables_writes_nothing_and_still_reads():
    store, log = MemoryJournal(), CallLog()
    older = handle(store, log, 1)
    lease = older.acquire("older", 10.0, 0.0)
    assert lease is not None
    older.append(notes(1), epoch=1)
    log.version = 2
    for write in (
        lambda: older.append(notes(1), epoch=1),
        lambda: older.acquire("older", 10.0, 0.0),
        lambda: older.renew(lease, 1.0),
        lambda: older.save_state(1, {}, epoch=1),
        lambda: older.release(lease),
    ):
        with pytest.raises(JournalVersion):
            write()
    assert (store.last_seq(), store.lease(), store.latest_state()) == (1, lease, None)
    assert [record.subject for record in older.read()] == ["n-0"]
    assert handle(store, log, 2).append(notes(1), epoch=1) == 2


def test_an_older_version_can_no_longer_write_and_the_newer_one_continues_from_its_state():
    seen: set[int] = set()
    engine = Simulation(script(faults=(Fault("newer-version", 6.0),)))
    engine.watch = lambda one: seen.update(leader.journal.version for leader in one.leaders)
    run = engine.run()
    assert (run.breaches, run.finished) == ((), 3)
    assert run.faults["newer-version"] >= 3
    assert len(seen) >= 3


def test_an_older_version_refuses_a_newer_journal_and_the_newer_one_continues():
    run = simulate(script(faults=VERSIONS))
    assert (run.breaches, run.finished) == ((), 3)
    assert run.faults["older-version"] >= 3


def test_an_older_one_that_does_not_refuse_is_caught(monkeypatch):
    monkeypatch.setattr(CrashingJournal, "_check_version", lambda self: None)
    assert "S12" in broken(simulate(script(faults=VERSIONS)))


def test_a_controller_that_acts_on_what_it_could_not_write_is_caught(monkeypatch):
    """An older one goes on as if its journal had taken what it wrote, and the newer does not know of it."""
    honest = Controller._commit

    async def careless(self, made):
        try:
            await honest(self, made)
        except JournalVersion:
            self.controller_state = made.after

    monkeypatch.setattr(Controller, "_commit", careless)
    stories = (script(faults=VERSIONS, seed=seed) for seed in range(10))
    assert any(broken(simulate(story)) for story in stories)
