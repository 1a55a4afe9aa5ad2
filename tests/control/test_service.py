"""The service runs a pass when something happens, and not more often; all in virtual time, to the microsecond."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.control import clocks
from tests.control.clocks import leap
from tests.control.worlds import GPU, World
from windlass.control import controller as controller_module
from windlass.control import service
from windlass.control.reconcile.operator_orders import Order, give
from windlass.control.record.state_reader import TooOld, recovered
from windlass.control.service import Service
from windlass.control.settings import GroupSettings, Interval, Leadership, Policy, Settings
from windlass.core.model.lifecycle import State
from windlass.core.planner import plan
from windlass.journal import Entry, JournalFull, JournalUnavailable
from windlass.journal.sqlite import MIGRATIONS, SqliteJournal
from windlass.providers.protocol import InsufficientCapacity, LaunchOrder, ProviderError

POLICY = Policy(vanish_timeout=0, evaluation_interval=Interval(0.2, 5))
LONG = 100_000.0
"""A lease that need not be renewed during a test."""


class LiveWorld(World):
    """A world whose time is that of the event loop."""

    @property
    def time(self) -> float:
        return 1000 + clocks.now()

    @time.setter
    def time(self, value: float) -> None:
        pass


class Counted:
    """A journal that counts what is asked of it, and fails when a test says so."""

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self.calls: list[tuple[str, float]] = []
        self.failing: dict[str, list[Exception]] = {}
        """Errors that the next calls of a name raise before they do anything."""
        self.unsure: list[Exception] = []
        """Errors that the next appends raise after they have written."""

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        self._call("append")
        seq: int = self._journal.append(entries, epoch=epoch)
        if self.unsure:
            raise self.unsure.pop()
        return seq

    def _call(self, name: str) -> None:
        self.calls.append((name, clocks.now()))
        if self.failing.get(name):
            raise self.failing[name].pop()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._journal, name)
        if name not in ("save_state", "acquire", "renew"):
            return found

        def counted(*args: Any, **more: Any) -> Any:
            self._call(name)
            return found(*args, **more)

        return counted


class Run:
    """A service that runs, and when its passes were."""

    def __init__(self, world: World, journal: Counted, holder: str, lease: float, retention: float) -> None:
        self.world, self.journal = world, journal
        self.passes: list[float] = []
        self.said: list[str] = []
        self.alarms: list[str] = []
        self.service = Service(
            world.settings,
            world.clouds,
            world.work,
            journal,
            leadership=Leadership(holder, lease),
            retention=retention,
            now=lambda: world.time,
            steady=clocks.now,
            on_pass=lambda _: self.passes.append(clocks.now()),
            on_message=self.said.append,
            on_alarm=self._alarm,
        )
        self.task = asyncio.create_task(self.service.run())

    def _alarm(self, text: str) -> None:
        self.said.append(text)
        self.alarms.append(text)

    async def kill(self) -> None:
        """It is gone without a word: the lease stays as it is."""
        self.journal._journal = _Dead()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


class _Dead:
    def __getattr__(self, name: str) -> Any:
        raise JournalUnavailable("the process is dead")


@asynccontextmanager
async def running(world: World, holder: str = "one", lease: float = LONG, retention: float = 1e9) -> AsyncIterator[Run]:
    run = Run(world, Counted(world.journal()), holder, lease, retention)
    work = asyncio.create_task(_working(world))
    try:
        yield run
    finally:
        work.cancel()
        run.service.stop()
        await asyncio.gather(run.task, return_exceptions=True)
        if not run.task.cancelled():
            run.task.result()


async def _working(world: World) -> None:
    while True:
        world.work.step()
        await asyncio.sleep(0.05)


@pytest.fixture
def world() -> World:
    return LiveWorld(settings=Settings((GroupSettings(GPU, "cloud"),), policy=POLICY))


def arrive(world: World, *jobs: str) -> None:
    world.work.waiting += jobs
    world.work.news.set()


async def until(wanted: Callable[[], object], within: float = 100) -> None:
    deadline = clocks.now() + within
    while not wanted():
        assert clocks.now() < deadline, "too late"
        await asyncio.sleep(0.05)


def test_a_change_in_the_workload_is_answered_at_once(world: World) -> None:
    async def story() -> None:
        async with running(world) as run:
            await asyncio.sleep(8)
            before = len(run.passes)
            arrive(world, "a")
            await asyncio.sleep(0)
            await asyncio.sleep(0.001)
            assert len(run.passes) > before
            assert run.passes[before] == pytest.approx(8, abs=1e-3)
            assert len(world.cloud.bought) == 1

    leap(story())


def test_a_pass_that_the_clock_asked_for_delays_the_next_by_the_minimum_interval_at_most(world: World) -> None:
    async def story() -> None:
        async with running(world) as run:
            await asyncio.sleep(12)
            by_the_clock = run.passes[-1]
            await asyncio.sleep(by_the_clock + 5.05 - 12)  # a moment after the next one
            arrive(world, "a")
            await asyncio.sleep(0.1)
            assert len(world.cloud.bought) == 0
            await asyncio.sleep(0.051)
            assert len(world.cloud.bought) == 1

    leap(story())


def test_however_much_happens_the_minimum_interval_is_kept(world: World) -> None:
    async def story() -> None:
        async with running(world) as run:
            for number in range(400):
                world.work.news.set()
                if number == 200:
                    arrive(world, "a", "b")
                await asyncio.sleep(0.01)
            pauses = [later - earlier for earlier, later in pairwise(run.passes)]
            assert min(pauses) > 0.2 - 1e-6
            assert 15 < len(run.passes) <= 21

    leap(story())


def test_the_minimum_interval_is_kept_after_a_pass_that_the_clock_asked_for_too(world: World) -> None:
    world.settings = replace(world.settings, policy=replace(POLICY, evaluation_interval=Interval(2, 5)))

    async def story() -> None:
        async with running(world) as run:
            for number in range(40):
                await asyncio.sleep(1.3)
                arrive(world, f"job-{number}")
            pauses = [later - earlier for earlier, later in zip(run.passes, run.passes[1:], strict=False)]
            assert min(pauses) > 2 - 1e-6

    leap(story())


def test_without_events_it_observes_once_in_the_longest_interval(world: World) -> None:
    async def story() -> None:
        async with running(world) as run:
            await asyncio.sleep(100)
            assert 20 <= len(run.passes) <= 22

    leap(story())


def test_a_deadline_wakes_it(world: World) -> None:
    world.settings = replace(world.settings, policy=replace(POLICY, evaluation_interval=Interval(0.2, 10_000)))

    async def story() -> None:
        async with running(world) as run:
            arrive(world, "a")
            await until(lambda: world.work.running)
            world.work.finish()
            world.work.news.set()
            [idle_since] = world.work.idle_since.values()
            await until(lambda: not world.instances)
            cordoned = next(at for at in run.passes if at > idle_since - 1000 + 1)
            assert cordoned == pytest.approx(idle_since - 1000 + 60, abs=0.01)

    leap(story())


def test_an_order_is_read_soon(world: World) -> None:
    async def story() -> None:
        async with running(world) as run:
            await asyncio.sleep(1.1)
            give(world.journal(), Order("freeze", "gpu", "ann"), world.time)
            await asyncio.sleep(1)
            assert run.service.controller.controller_state.fleet.is_frozen("gpu")

    leap(story())


def test_a_call_that_failed_once_does_not_keep_it_spinning(world: World) -> None:
    async def story() -> None:
        async with running(world) as run:
            world.cloud.refusing = lambda _: ProviderError("busy")
            arrive(world, "a")
            await asyncio.sleep(3)
            world.cloud.refusing = lambda _: None
            world.cloud.listing = tuple  # and the list does not show it: the launch stays wanted, and done
            await asyncio.sleep(20)
            before = len(run.passes)
            await asyncio.sleep(100)
            assert len(run.passes) - before <= 25

    leap(story())


# -- leading and standing by ---------------------------------------------------------------------------------------


def test_a_standby_takes_over_when_the_lease_has_run_out(world: World) -> None:
    async def story() -> None:
        async with running(world, "one", lease=15) as first:
            await asyncio.sleep(1)
            async with running(world, "two", lease=15) as second:
                await asyncio.sleep(1)
                assert first.service.leading
                assert not second.service.leading
                await asyncio.sleep(20)
                await first.kill()
                killed_at = clocks.now()
                arrive(world, "a")
                await until(lambda: second.service.leading)
                assert clocks.now() - killed_at <= 15 + 15 / 3 + 0.1
                await until(lambda: world.work.running)
                assert {epoch for _, _, epoch in world.cloud.calls} == {2}

    leap(story())


def test_a_leader_that_stops_hands_over_at_the_next_look(world: World) -> None:
    async def story() -> None:
        async with running(world, "one", lease=15) as first:
            await asyncio.sleep(1)
            async with running(world, "two", lease=15) as second:
                await asyncio.sleep(1)
                first.service.stop()
                await first.task
                assert not second.service.leading
                await until(lambda: second.service.leading, within=15 / 3 + 0.1)
                assert not first.service.leading

    leap(story())


def test_a_standby_asks_for_the_lease_three_times_in_its_time_also_after_it_has_led_or_was_reconfigured(
    world: World,
) -> None:
    async def story() -> None:
        async with running(world, "one", lease=15) as first:
            await asyncio.sleep(1)
            world.journal().acquire("two", 1e6, world.time + 1e6)  # somebody else takes it
            await until(lambda: not first.service.leading)
            await first.service.reconfigure(world.settings, world.clouds, world.work)
            asked_before = sum(name == "acquire" for name, _ in first.journal.calls)
            await asyncio.sleep(150)
            asked = sum(name == "acquire" for name, _ in first.journal.calls) - asked_before
            assert asked <= 32
            assert world.cloud.calls == []

    leap(story())


# -- a journal that fails ------------------------------------------------------------------------------------------


def test_with_a_full_journal_nothing_is_done_and_afterwards_nothing_is_lost(world: World) -> None:
    async def story() -> None:
        refused = []

        def sold_out_once(order: LaunchOrder) -> InsufficientCapacity | None:
            refused.append(order.slice_id)
            return InsufficientCapacity("none left") if len(refused) == 1 else None

        async with running(world) as run:
            await asyncio.sleep(1)
            run.journal.failing["append"] = [JournalFull("the disk is full")] * 4
            arrive(world, "a")
            await asyncio.sleep(1)
            assert run.journal.failing["append"] != []
            assert world.cloud.calls == []
            assert any("disk is full" in text for text in run.alarms)
            await until(lambda: world.work.running)
            assert len(world.cloud.bought) == 1
            # A refusal that comes while the disk is full is still news when it is not.
            world.cloud.refusing = sold_out_once
            arrive(world, "b")
            await until(lambda: refused)
            run.journal.failing["append"] = [JournalFull("the disk is full")] * 3
            await until(lambda: len(world.work.running) == 2)
            kinds = [(one.kind, one.subject) for one in world.journal().read()]
            assert kinds.count(("refused", refused[0])) == 1
            assert recovered(world.journal()) == run.service.controller.controller_state

    leap(story())


def test_a_state_that_cannot_be_saved_is_reported_and_changes_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 1)

    async def story() -> None:
        async with running(world) as run:
            run.journal.failing["save_state"] = [JournalFull("the disk is full")] * 5
            world.cloud.refusing = lambda _: InsufficientCapacity("none left")
            arrive(world, "a")
            await asyncio.sleep(10)
            refusals = [one.subject for one in world.journal().read(kinds=("refused",))]
            assert len(refusals) == len(set(refusals)) == 1
            world.cloud.refusing = lambda _: None
            await until(lambda: world.work.running)
            assert recovered(world.journal()) == run.service.controller.controller_state

    leap(story())


def test_a_journal_that_does_not_say_whether_it_has_written_is_read_again(world: World) -> None:
    async def story() -> None:
        async with running(world) as run:
            await asyncio.sleep(1)
            run.journal.unsure = [JournalUnavailable("no answer to the commit")]
            arrive(world, "a")
            await until(lambda: world.work.running)
            await asyncio.sleep(5)
            assert len(world.cloud.bought) == 1
            slices = run.service.controller.controller_state.fleet.slices
            assert [record.state for record in slices.values()] == [State.READY]
            assert recovered(world.journal()) == run.service.controller.controller_state

    leap(story())


def test_when_a_newer_version_has_migrated_the_journal_the_older_one_stops_and_the_newer_takes_over(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal.db"
    world = LiveWorld(path, Settings((GroupSettings(GPU, "cloud"),), policy=POLICY))
    newer = (*MIGRATIONS, ("CREATE TABLE windlass_notes (seq INTEGER)",))

    async def story() -> None:
        async with running(world, "older", lease=30.0) as older:
            arrive(world, "a")
            await until(lambda: world.work.running)
            world.journal = lambda: SqliteJournal(path, migrations=newer)  # type: ignore[method-assign]
            async with running(world, "newer", lease=30.0) as later:
                arrive(world, "b")
                await until(lambda: not older.service.leading)
                assert len(world.cloud.bought) == 1
                assert any("a newer Windlass has written it" in text for text in older.said)
                await until(lambda: len(world.work.running) == 2)
                assert later.service.leading
                assert not older.service.leading
                assert len(world.cloud.bought) == 2
                looked = len(older.passes)
                await asyncio.sleep(60)
                assert len(older.passes) == looked

    leap(story())


def test_a_failed_pass_is_reported_and_the_next_one_continues(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [OverflowError("too large")] * 3

    def breaks(snapshot: Any, memo: Any = None) -> Any:
        if broken and snapshot.demands:
            raise broken.pop()
        return plan(snapshot, memo)

    monkeypatch.setattr(controller_module, "plan", breaks)

    async def story() -> None:
        async with running(world) as run:
            await asyncio.sleep(1)
            arrive(world, "a")
            await until(lambda: world.work.running)
            assert any("OverflowError: too large" in text for text in run.said)
            assert len(world.cloud.bought) == 1

    leap(story())


def test_what_happened_can_be_shown_for_the_retention_and_what_was_before_is_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    retention, every = 300.0, 30.0
    monkeypatch.setattr(service, "COMPACT_EVERY", every)
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 10)

    async def story() -> None:
        known = {}
        async with running(world, retention=retention) as run:
            began = world.time
            for number in range(40):
                arrive(world, f"job-{number}")
                await asyncio.sleep(20)
                known[world.time] = run.service.controller.controller_state
                world.work.finish()
                world.work.news.set()
                await asyncio.sleep(10)
        journal, now = world.journal(), world.time
        output = [instant for instant in known if instant >= now - retention]
        assert len(output) >= 9
        for instant in output:
            assert recovered(journal, until=instant).tables() == known[instant].tables()
        with pytest.raises(TooOld) as old:
            recovered(journal, until=began + 1)
        assert retention <= now - old.value.since < 2 * retention

    leap(story())


def test_a_controller_that_never_runs_for_long_forgets_what_is_old_too(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 10)

    async def story() -> None:
        for _ in range(2):
            async with running(world, retention=60):
                for number in range(10):
                    arrive(world, f"job-{number}")
                    await asyncio.sleep(20)
                    world.work.finish()
                    world.work.news.set()
                    await asyncio.sleep(10)
        assert world.time < 1000 + service.COMPACT_EVERY
        oldest = world.journal().oldest_state()
        assert oldest is not None
        assert oldest[1]["at"] > 1000

    leap(story())
