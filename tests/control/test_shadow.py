"""A shadow observes and plans as a controller does, and cannot change anything."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import windlass.control.shadow
from windlass.control.record.state_reader import recovered
from windlass.control.settings import GroupSettings, Leadership, Settings
from windlass.control.shadow import Shadow, shadow_report
from windlass.core.model.snapshot import Bundle, Demand, Group, ScaleDown
from windlass.journal import open_journal
from windlass.providers.protocol import Host, Instance
from windlass.workloads.protocol import WorkloadView, WorkNode

GPU = Group("gpu", (("gpu", 8000),), 4, price=10 * 10**9, scale_down=ScaleDown(idle_timeout=60))


class OnlyToBeLookedAt:
    """A provider and a workload in one; any call that does more than look fails the test."""

    answers_promptly = False

    def __init__(self) -> None:
        self.demands: tuple[Demand, ...] = ()
        self.instances: tuple[Instance, ...] = ()
        self.nodes: tuple[WorkNode, ...] = ()

    async def list(self) -> tuple[Instance, ...]:
        return self.instances

    async def confirm_ended(self, slice_ids: Collection[str]) -> Collection[str]:
        return ()

    async def observe(self) -> WorkloadView:
        return WorkloadView(self.demands, (), self.nodes)

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"a shadow called {name}")


@pytest.fixture
def world() -> OnlyToBeLookedAt:
    return OnlyToBeLookedAt()


def played(world: OnlyToBeLookedAt, path: Path, *acts: tuple[float, Any]) -> None:
    """At each time something is made to happen, and the shadow looks."""

    async def play() -> None:
        time = [1000.0]
        with open_journal(str(path)) as journal:
            shadow = Shadow(
                Settings((GroupSettings(GPU, "cloud"),)),
                {"cloud": world},
                world,
                journal,
                now=lambda: time[0],
                steady=lambda: time[0],
                leadership=Leadership("shadow", 1e6),
            )
            for at, happen in acts:
                time[0] = 1000.0 + at
                happen()
                await shadow.tick()
            await shadow.stop()

    asyncio.run(play())


def job(*names: str) -> tuple[Demand, ...]:
    return tuple(Demand(name, (Bundle((("gpu", 8000),)),)) for name in names)


def test_it_notes_what_it_would_launch_for_whom_and_for_how_long(world, tmp_path):
    def arrive() -> None:
        world.demands = job("a", "b")

    def leave() -> None:
        world.demands = ()

    played(world, tmp_path / "s.db", (0, lambda: None), (10, arrive), (20, lambda: None), (3610, leave))
    with open_journal(str(tmp_path / "s.db")) as journal:
        report = shadow_report(journal)
        assert report is not None
        (action,) = report.actions
        assert (action.would.verb, action.would.subject, action.would.count) == ("launch", "gpu", 2)
        assert (action.since, action.until) == (1010, 4610)
        assert "1 task of a and 1 task of b" in action.would.reason.why
        assert report.spent == 0
        assert report.planned == pytest.approx(20.0)  # two slices at 10 $/h for an hour


def test_it_notes_which_idle_slice_it_would_give_back(world, tmp_path):
    world.instances = (Instance("m-1", "gpu", "running", (Host("m-1/0"),)),)
    world.nodes = (WorkNode("m-1/0", "m-1", idle_since=1000),)
    played(world, tmp_path / "s.db", (0, lambda: None), (100, lambda: None), (3700, lambda: None))
    with open_journal(str(tmp_path / "s.db")) as journal:
        report = shadow_report(journal)
        assert report is not None
        (action,) = report.actions
        assert (action.would.verb, action.would.subject, str(action.would.reason.code)) == ("drain", "m-1", "IDLE")
        assert report.spent > report.planned
        assert recovered(journal).fleet.slices["m-1"].state == "ready"


def test_there_is_nothing_in_it_that_could_act():
    source = ast.parse(Path(windlass.control.shadow.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(source) if isinstance(node, ast.ImportFrom)}
    assert "acting" not in imported
    calls = [node.func for node in ast.walk(source) if isinstance(node, ast.Call)]
    called = {function.attr for function in calls if isinstance(function, ast.Attribute)}
    assert not called & {"launch", "terminate", "cordon", "uncordon", "drain", "forget", "start"}
