"""What the journal says is what the controller knows: now, after a restart, and for any instant of the past."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.control.histories import SETTINGS, Step, live, steps
from tests.control.worlds import Survivor, World
from tests.snapshots import snapshots
from windlass.control import controller as controller_module
from windlass.control.controller import Controller
from windlass.control.record.controller_state import ControllerState
from windlass.control.record.costs import Account
from windlass.control.record.state_reader import TooOld, recovered
from windlass.control.service import DEPENDABLE
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.control.state.codec import Later, from_plain, to_plain
from windlass.control.state.fleet import Failure, Gone, ProviderHealth, SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Demand, Group, Slice, Snapshot
from windlass.core.planner import plan
from windlass.journal import Entry, JournalVersion, open_journal
from windlass.providers.protocol import Host, Instance
from windlass.workloads.protocol import Acknowledgement, WorkNode


def through_json(value: Any) -> Any:
    return from_plain(type(value), json.loads(json.dumps(to_plain(value))))


@given(snapshots())
def test_what_is_in_a_snapshot_is_read_back_as_it_was_written(snapshot: Snapshot) -> None:
    for group in snapshot.groups:
        assert through_json(group) == group
    for demand in (*snapshot.demands, *snapshot.requests):
        assert through_json(demand) == demand
    for one in snapshot.slices:
        assert through_json(one) == one
    whole = Settings(tuple(GroupSettings(group, "cloud", {"type": "x"}) for group in snapshot.groups), snapshot.cluster)
    assert through_json(whole) == whole


def test_a_lazy_mapping_is_built_once_and_only_if_it_is_read(tmp_path: Path) -> None:
    made: list[dict[str, Any]] = []

    def make() -> dict[str, Any]:
        made.append({"is": {"b": 1, "a": [2]}})
        return made[-1]

    entry = Entry("slice", "a", 1.0, Later(make))
    assert made == []
    with open_journal(tmp_path / "journal.db") as journal:
        journal.append([entry], epoch=None)
        [record] = journal.read()
    assert record.data == entry.data == {"is": {"a": [2], "b": 1}}
    assert len(made) == 1


@given(snapshots())
@settings(max_examples=30)
def test_what_a_plan_says_is_read_back_as_it_was_written(snapshot: Snapshot) -> None:
    planned = plan(snapshot)
    for waiting in planned.waiting:
        assert through_json(waiting) == waiting
    for kept in planned.keep:
        assert through_json(kept.reason) == kept.reason


times = st.floats(0, 2e9) | st.integers(0, 2_000_000_000)
reasons = st.builds(Reason, st.sampled_from(Code), st.text(max_size=20))
failures = st.lists(st.builds(Failure, times, st.sampled_from(Code)), max_size=3).map(tuple)


@given(
    st.one_of(
        st.builds(
            SliceRecord,
            id=st.text(min_size=1),
            group=st.text(min_size=1),
            provider=st.text(min_size=1),
            state=st.sampled_from(State),
            since=times,
            started_for=reasons,
            reason=reasons,
            leaving=st.none() | reasons,
            marked_until=st.none() | times,
            certificate=st.none() | st.integers(0, 9),
            nodes=st.just(()),
        ),
        st.builds(ProviderHealth, failures=failures, boots=st.lists(times, max_size=3).map(tuple)),
        st.builds(Gone, at=times),
        st.builds(Account),
        st.builds(Acknowledgement),
        st.builds(Policy, observe_timeout=times, allow_eviction=st.booleans()),
        st.builds(
            Instance,
            state=st.sampled_from(["pending", "running", "ending"]),
            hosts=st.lists(st.builds(Host), max_size=3).map(tuple),
            preempted_at=st.none() | times,
        ),
        st.builds(
            WorkNode,
            used=st.lists(st.tuples(st.text(), st.integers()), max_size=2).map(tuple),
            labels=st.dictionaries(st.text(), st.text(), max_size=2),
            idle_since=st.none() | times,
            present=st.none(),
        ),
    )
)
def test_any_record_is_read_back_as_it_was_written(value: Any) -> None:
    assert through_json(value) == value


@pytest.mark.parametrize("kind", [SliceRecord, Demand, Group, Slice, ProviderHealth, Instance])
def test_an_unknown_stored_field_is_ignored(kind: Any) -> None:
    data = {"id": "x", "slice_id": "x", "name": "x", "group": "g", "provider": "p", "state": "ready", "since": 1}
    data |= {"reason": {"code": "IDLE", "why": ""}, "started_for": {"code": "IDLE", "why": ""}, "hosts": []}
    data |= {"bundles": [], "resources": [], "max": 1, "a field of an older version": 7}
    if kind is Group:
        data["hosts"] = 1
    known = from_plain(kind, {name: value for name, value in data.items() if name != "a field of an older version"})
    assert from_plain(kind, data) == known


@given(steps)
def test_the_journal_adds_up_to_what_the_controller_knows(life: list[Step]) -> None:
    world = World(settings=SETTINGS)
    past: dict[float, ControllerState] = {}

    def check(alive: Survivor) -> None:
        controller_state = alive.controller.controller_state
        again = recovered(world.journal())
        if again.seq == controller_state.seq:  # else an operator has spoken since
            assert again == controller_state
        past[controller_state.at] = controller_state

    with mock.patch.object(controller_module, "SAVE_AFTER", 25):
        asyncio.run(live(world, life, check))
    for at, controller_state in past.items():
        then = recovered(world.journal(), until=at + 1e-6)
        assert then.tables() == controller_state.tables()


async def rounds(world: World, controller: Controller, count: int) -> None:
    """So often a machine comes for a job, and goes again."""
    for _ in range(count):
        world.work.waiting = [f"job at {world.time}"]
        await world.ticks(controller, 3)
        world.work.finish()
        await world.ticks(controller, 4, 700)


@pytest.mark.parametrize("kept", [(), DEPENDABLE])
def test_the_past_before_what_was_compacted_is_too_old_also_if_some_of_it_is_kept(kept: tuple[str, ...]) -> None:
    async def story() -> None:
        world = World()
        journal, controller = world.journal(), world.controller()
        await world.tick(controller)  # the first record is of the settings
        await rounds(world, controller, 2)
        early = world.time
        then = controller.controller_state
        await rounds(world, controller, 10)
        assert recovered(journal, until=early + 1).tables() == then.tables()
        horizon = world.time
        past = {}
        for _ in range(5):
            await rounds(world, controller, 2)
            past[world.time + 1] = controller.controller_state
        assert journal.compact(horizon, keep_kinds=kept, epoch=controller.leading.epoch) > 50
        assert recovered(journal) == controller.controller_state
        for instant, known in past.items():
            assert recovered(journal, until=instant).tables() == known.tables(), "kept"
        with pytest.raises(TooOld) as output:
            recovered(journal, until=early + 1)
        assert early < output.value.since < horizon
        assert recovered(journal, until=output.value.since + 1).at == output.value.since

    with mock.patch.object(controller_module, "SAVE_AFTER", 10):
        asyncio.run(story())


@pytest.mark.parametrize("saved_before", [False, True])
def test_a_controller_that_cannot_read_an_entry_of_a_newer_version_refuses_and_leaves_the_lease(
    saved_before: bool,
) -> None:
    world = World()
    journal = world.journal()
    lease = journal.acquire("newer", 30.0, world.time)
    assert lease is not None
    slept: dict[str, Any] = {"state": "HIBERNATING", "group": "gpu", "id": "s-1"}
    last = journal.append([Entry("slice", "s-1", 1.0, {"is": slept})], epoch=lease.epoch)
    if saved_before:
        journal.save_state(last, {"at": 1.0, "tables": {"slice": {"s-1": slept}}}, epoch=lease.epoch)
    journal.release(lease)
    with pytest.raises(JournalVersion, match=r"slice s-1 at record 1 .*HIBERNATING.*a newer one has written it"):
        world.controller()
    assert (journal.last_seq(), journal.lease()) == (last, None)
