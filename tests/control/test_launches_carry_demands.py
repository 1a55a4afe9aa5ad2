"""Launches carry the demands that they serve as data: in the plan, in the journal, and in the answer to why."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from tests.control.worlds import GPU, QUICK, World
from windlass.builders import demand, group, snapshot
from windlass.control.record.journal_tables import LAUNCH, REFUSED
from windlass.control.report.history import launches_for, refused_group, wait_of
from windlass.control.settings import GroupSettings, Settings
from windlass.core.planner import plan
from windlass.journal import Entry, open_journal
from windlass.providers.protocol import InsufficientCapacity

NAMES = ("aa", "bb", "cc", "room")


def test_equal_demands_are_named_one_by_one_and_the_sentence_is_right() -> None:
    made = plan(snapshot([group("g", cpu=2, max=9)], demands=[demand(name, {"cpu": 1}) for name in NAMES]))
    assert [launch.demands for launch in made.launches] == [dict.fromkeys(NAMES, 1)]
    why = made.launches[0].reason.why
    assert why == "no room was left for 1 task of aa, 1 task of bb and 2 tasks of 2 more demands"
    assert made.to_dict()["launches"][0]["demands"] == dict.fromkeys(NAMES, 1)


def test_why_finds_the_launch_of_every_demand_and_of_no_other() -> None:
    async def story() -> None:
        world = World(settings=Settings((GroupSettings(replace(GPU, max=9), "cloud"),), policy=QUICK))
        leader = world.controller()
        world.work.waiting = list(NAMES[:3])
        await world.tick(leader)
        world.work.waiting = [*world.work.waiting, "room"]
        await world.tick(leader, 5)
        launches, journal = {}, world.journal()
        for name in NAMES:
            waited = wait_of(journal, name)
            assert waited is not None
            launches[name] = [record.seq for record in launches_for(journal, name, waited)]
        first, second = (record.seq for record in journal.read(kinds=(LAUNCH,)))
        assert launches == {"aa": [first], "bb": [first], "cc": [first], "room": [second]}

    asyncio.run(story())


def test_a_launch_that_an_older_version_recorded_is_read_and_names_no_demand(tmp_path: Path) -> None:
    journal = open_journal(tmp_path / "old.db")
    old = {"group": "g", "first": 0, "count": 1, "code": "DEMAND", "why": "no room was left for 1 task of aa"}
    demand_entry = Entry("demand", "aa", 1.0, {"is": {"id": "aa", "bundles": [{"needs": [["cpu", 1000]]}]}})
    journal.append(
        [demand_entry, Entry(LAUNCH, "g", 1.0, {**old, "hourly_cost": 0, "passed_over": {}, "slices": ["g-1"]})],
        epoch=None,
    )
    waited = wait_of(journal, "aa")
    assert waited is not None
    assert launches_for(journal, "aa", waited) == ()


def test_a_refusal_carries_its_group() -> None:
    async def story() -> None:
        world = World(settings=Settings((GroupSettings(GPU, "cloud"),), policy=QUICK))
        leader = world.controller()
        world.cloud.refusing = lambda _: InsufficientCapacity("none left")
        world.work.waiting = ["a"]
        await world.tick(leader)
        await world.tick(leader)
        (refusal,) = world.journal().read(kinds=(REFUSED,))
        assert refusal.data["group"] == refused_group(refusal) == GPU.name

    asyncio.run(story())
