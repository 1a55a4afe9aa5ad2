"""The same journal and settings give the same decisions, byte for byte, and differences are named."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.control.clusters import a_cluster, shows
from tests.control.histories import SETTINGS as HISTORY
from tests.control.histories import Step, live, steps
from tests.control.worlds import Survivor, World
from tests.sim.small import job, script, settings
from windlass.control import controller as controller_module
from windlass.control.record.journal_tables import PASS, VERSION
from windlass.control.replay import Unreadable, passes_of, replayed
from windlass.control.settings import Settings
from windlass.core.model.lifecycle import State
from windlass.journal import Entry, JournalCorrupt, Record, open_journal
from windlass.journal.encoding import checksum, encode
from windlass.journal.memory import MemoryJournal
from windlass.providers.protocol import Host, Instance, ProviderError
from windlass.sim.faults.catalogue import Fault
from windlass.sim.fuzz.random_script import arbitrary_script
from windlass.sim.run.script import Script
from windlass.sim.run.simulation import Simulation

RESTARTED = (
    Fault("killed", 0.02),
    Fault("clock-jumps", 4.0, seconds=400),
    Fault("list-fails", 0.1),
    Fault("launch-hangs", 0.5),
    Fault("throttled", 0.2),
    Fault("restarts", 0.3, seconds=60),
)
CROWD = [job(f"j{number}", 5, 120.0 * number) for number in range(12)]


def lived(story: Script) -> MemoryJournal:
    """The journal of a simulated life, with every record."""
    journal = MemoryJournal(keep_all=True)
    Simulation(story, journal=journal, thorough=False, stop_at_breach=False).run()
    return journal


def retold(records: list[Record]) -> MemoryJournal:
    """A journal with these records, under their epochs."""
    journal = MemoryJournal(keep_all=True)
    for record in records:
        while journal._epoch < record.epoch:
            journal.acquire("somebody", 0.0, 0.0)
        journal.append([Entry(record.kind, record.subject, record.at, record.data)], epoch=record.epoch)
    return journal


class OnlyRead:
    """A journal of which nothing can be asked but what a reader needs."""

    def __init__(self, journal: Any, start: tuple[int, Any] | None = None) -> None:
        self._journal, self._start = journal, start

    def read(self, *args: Any, **more: Any) -> Any:
        return self._journal.read(*args, **more)

    def oldest_state(self) -> tuple[int, Any] | None:
        return self._start if self._start is not None else self._journal.oldest_state()


# -- nothing differs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(30))
def test_the_decisions_of_a_random_simulation_are_replayed_byte_for_byte(seed):
    journal = lived(arbitrary_script(seed, 0.5))
    found = replayed(journal)
    assert found.first is None
    assert (found.differing, found.unmarked, found.passes > 0) == (0, 0, True)


def test_restarts_jumps_of_the_clock_calls_under_way_and_unknown_sources_are_made_again():
    """And the history has all of these in it: else it would prove nothing about them."""
    met: Counter[str] = Counter()
    policy = replace(settings().policy, launch_concurrency=1, requesting_timeout=60)
    for seed in range(4):
        journal = lived(script(*CROWD, faults=RESTARTED, seed=seed, hours=2.0, settings=settings(policy=policy)))
        for record in journal.read():
            met.update(list(record.data) if record.kind == PASS else [record.kind])
        found = replayed(journal)
        assert found.first is None
        assert found.decisions > 50
    assert min(met[VERSION], met["jump"], met["calling"], met["unknown"], met["refused"]) > 0


def test_what_was_decided_after_any_saved_state_is_made_again_from_it(tmp_path, monkeypatch):
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 20)
    unseen = False
    for seed in range(1, 21):  # until a state was saved while a slice did not show all of its nodes
        file = tmp_path / f"journal-{seed}.db"
        with open_journal(file) as journal:
            world = script(*CROWD, faults=RESTARTED, hours=2.0, seed=seed)
            Simulation(world, journal=journal, thorough=False, stop_at_breach=False).run()
            with sqlite3.connect(file) as database:
                states = database.execute("SELECT seq, state FROM windlass_states ORDER BY seq").fetchall()
            assert len(states) > 3
            for seq, state in states:
                found = replayed(OnlyRead(journal, (seq, json.loads(state))))  # type: ignore[arg-type]
                assert (found.first, found.began_at) == (None, seq)
        unseen = any("unseen" in state for _, state in states)
        if unseen:
            break
    assert unseen


def test_a_compacted_journal_is_made_again_from_its_oldest_saved_state(tmp_path, monkeypatch):
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 40)
    with open_journal(tmp_path / "journal.db") as journal:
        Simulation(script(), journal=journal, thorough=False).run()
        whole = replayed(journal)
        assert journal.compact(1e12, keep_kinds=("settings",)) > 0
        rest = replayed(journal)
    assert (rest.first, whole.began_at) == (None, 0)
    assert rest.began_at > 0
    assert 0 < rest.passes < whole.passes
    assert rest.until == whole.until


@pytest.mark.parametrize("kept", [True, False])
def test_from_an_instant_on_the_same_passes_are_reported_as_in_the_whole(tmp_path, monkeypatch, kept):
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 40 if kept else 10**9)
    with open_journal(tmp_path / "journal.db") as journal:
        Simulation(script(), journal=journal, thorough=False).run()
        whole = replayed(journal)
        times = sorted({one.at for one in passes_of(journal.read(), [])})
        assert len(times) > 20
        for number, since in enumerate(times):
            rest = replayed(journal, since=since)
            assert (rest.first, rest.passes) == (None, whole.passes - number)
            assert (rest.since, rest.until) == (since, whole.until)
            assert (rest.began_at > 0) == (kept and journal.latest_state(since) is not None)
        assert kept == (rest.began_at > 0)
        late = replayed(journal, since=times[-1] + 1)
        assert (late.passes, late.since) == (0, None)


@given(steps)
def test_operators_orders_dead_machines_and_controllers_that_are_killed_are_made_again(life: list[Step]) -> None:
    world = World(settings=HISTORY)

    async def story() -> None:
        await live(world, life, lambda _: None)
        found = replayed(world.journal())
        assert (found.first, found.unmarked) == (None, 0)

    asyncio.run(story())


def test_a_machine_that_another_provider_shows_than_the_one_who_sells_its_group_is_made_again():
    """And is still that one's when it is silent, or when the group is sold by another from then on."""

    async def story() -> None:
        world = World(settings=HISTORY)
        south = world.clouds["south"]
        alive = Survivor(world)
        south.instances["stray"] = Instance("stray", "cheap", "running", (Host("stray/0"),))
        await alive.tick()
        assert alive.controller.controller_state.fleet.slices["stray"].provider == "south"
        south.failing = ProviderError("the API is down")
        await alive.tick(20)
        moved = replace(HISTORY.groups[0], provider="south")
        await alive.controller.reconfigure(
            replace(HISTORY, groups=(moved, *HISTORY.groups[1:])), world.clouds, world.work
        )
        await alive.tick(20)
        assert "stray" in alive.controller.controller_state.fleet.slices, "nothing is gone because nobody answers"
        south.failing = None
        world.work.waiting = ["a", "b", "c"]
        for _ in range(4):
            await alive.tick(5)
        kinds = [(one.kind, one.data.get("is")) for one in world.journal().read() if one.subject == "stray"]
        assert ("seller", "south") in kinds
        assert ("seller", None) in kinds, "who sells the group now is who shows it"
        assert replayed(world.journal()).first is None

    asyncio.run(story())


@pytest.fixture
def cluster(tmp_path):
    yield from a_cluster(tmp_path)


def test_a_real_controller_with_local_processes_killed_and_started_again(cluster):
    first = cluster.start()
    cluster.eventually(lambda: "leading" in cluster.log())
    cluster.submit(4)
    cluster.eventually(lambda: shows(cluster.records(), State.BOOTING))
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    cluster.start()
    cluster.eventually(lambda: len(cluster.ran()) == 4 and not cluster.slices_left())
    with open_journal(cluster.directory / "journal.db", create=False) as journal:
        found = replayed(journal)
    assert found.first is None
    assert found.passes > 5
    assert {record.epoch for record in cluster.records()} >= {1, 2}


def test_it_asks_nothing_of_a_journal_but_to_be_read():
    journal = lived(script())
    before = journal.digest
    assert replayed(OnlyRead(journal)).first is None  # type: ignore[arg-type]
    assert journal.digest == before


# -- something differs ---------------------------------------------------------------------------------------------


def recorded(tmp_path: Path) -> Path:
    """The file of a journal with a small life in it."""
    file = tmp_path / "journal.db"
    with open_journal(file) as journal:
        Simulation(script(), journal=journal, thorough=False).run()
    return file


def forge(file: Path, kind: str, change: Any) -> int:
    """Change one record, checksum and all: the last one of its kind for which ``change`` gives something else."""
    with sqlite3.connect(file) as database:
        rows = database.execute(
            "SELECT seq, epoch, kind, subject, at, data FROM windlass_records WHERE kind = ? ORDER BY seq DESC", (kind,)
        ).fetchall()
        for seq, epoch, _, subject, at, text in rows:
            data = json.loads(text)
            change(data)
            if (new := encode(data, kind)) != text:
                row = (new, checksum(seq, epoch, kind, subject, at, new), seq)
                database.execute("UPDATE windlass_records SET data = ?, checksum = ? WHERE seq = ?", row)
                return int(seq)
    raise AssertionError(f"no record of kind {kind} was changed")


def test_a_forged_decision_is_found_and_named(tmp_path):
    file = recorded(tmp_path)

    def whitewash(data: dict[str, Any]) -> None:
        if data.get("is", {}).get("state") == "cordoned":
            data["is"]["reason"]["why"] = "nobody knows"

    seq = forge(file, "slice", whitewash)
    with open_journal(file) as journal:
        found = replayed(journal)
    assert found.first is not None
    assert found.first.seq == seq
    assert "nobody knows" in found.first.recorded
    assert "nobody knows" not in found.first.again


def test_a_forged_decision_is_counted_from_the_instant_that_was_asked_for(tmp_path):
    file = recorded(tmp_path)
    forge(file, "launch", lambda data: data.update(why="because"))
    with open_journal(file) as journal:
        first = replayed(journal).first
        assert first is not None
        assert first.number > 1
        assert replayed(journal, since=first.at).first == replace(first, number=1)
        assert replayed(journal, since=first.at + 1).first is None


def test_a_forged_observation_is_found_by_the_decision_that_does_not_follow_from_it(tmp_path):
    file = recorded(tmp_path)

    def exaggerate(data: dict[str, Any]) -> None:
        if data.get("is", {}).get("id") == "a":
            data["is"]["bundles"][0]["count"] = 1000

    seq = forge(file, "demand", exaggerate)
    with open_journal(file) as journal:
        found = replayed(journal)
        assert found.first is not None
        at = {record.seq: record.at for record in journal.read()}
    assert found.first.at == at[seq]


def test_a_damaged_record_a_missing_one_and_one_that_is_none_are_named(tmp_path):
    file = recorded(tmp_path)
    seq = forge(file, "demand", lambda data: data.update({"is": {"id": "a"}}))
    with open_journal(file) as journal, pytest.raises(Unreadable, match=f"record {seq} .*demand of c"):
        replayed(journal)
    with sqlite3.connect(file) as database:
        database.execute("DELETE FROM windlass_records WHERE seq = 40")
    with open_journal(file) as journal, pytest.raises(Unreadable, match="record 40 is missing"):
        replayed(journal)
    with sqlite3.connect(file) as database:
        database.execute("UPDATE windlass_records SET data = '{}' WHERE seq = 20")
    with open_journal(file) as journal, pytest.raises(JournalCorrupt, match="record 20"):
        replayed(journal)


def test_other_settings_decide_otherwise_and_the_first_time_is_reported():
    journal = lived(script())

    def patient(was: Settings) -> Settings:
        groups = tuple(
            replace(one, group=replace(one.group, scale_down=replace(one.group.scale_down, idle_timeout=3000)))  # type: ignore[type-var]
            for one in was.groups
        )
        return replace(was, groups=groups)

    same, other = replayed(journal, settings=lambda was: was), replayed(journal, settings=patient)
    assert same.first is None
    assert other.first is not None
    assert other.differing > 0
    assert "cordoned" in other.first.recorded
    assert "cordoned" not in other.first.again


# -- journals of older versions ------------------------------------------------------------------------------------


def test_passes_of_an_older_version_are_counted_and_later_ones_are_replayed():
    records = list(lived(script(faults=(Fault("killed", 0.02),), seed=3)).read())
    epochs = sorted({record.epoch for record in records})
    assert len(epochs) > 2
    old = [record for record in records if record.kind != PASS or record.epoch > epochs[1]]
    found = replayed(retold(old))
    assert found.first is None
    assert found.unmarked > 0
    assert found.passes > 0
    assert found.since == next(record.at for record in old if record.epoch == epochs[2] and record.kind == PASS)


def test_a_journal_of_an_older_version_alone_has_nothing_that_can_be_made_again():
    records = [record for record in lived(script()).read() if record.kind != PASS]
    found = replayed(retold(records))
    assert (found.passes, found.unmarked > 0) == (0, True)
