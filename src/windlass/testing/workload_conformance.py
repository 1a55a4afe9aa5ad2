"""This suite tests the contract of a workload: inherit it, define ``stage``, run pytest.

The tests need hosts that join the workload and tasks that run on them. So the suite needs a ``Stage``: the workload
under test and the actions of the tests on it.

    class TestMyWorkload(WorkloadConformance):
        def stage(self):
            return MyStage()  # a Stage: starts a scheduler, joins workers, submits tasks
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from windlass.workloads.protocol import Acknowledgement, Join, Workload, WorkloadView

from .eventually import eventually, run


class Stage(Protocol):
    """A workload and the actions of the tests on it. Every slice has one host, which runs one task at a time."""

    workload: Workload

    async def join_slice(self, slice_id: str) -> None:
        """Let one host join as slice ``slice_id``."""
        ...

    async def submit(self, tasks: int) -> None:
        """Submit tasks that run until ``finish``; each fills one slice."""
        ...

    async def finish(self) -> None:
        """End every running task."""
        ...

    async def land(self, slice_id: str) -> bool:
        """Start a task on a cordoned slice, as if it had been in flight; return False if that is impossible."""
        ...

    async def pass_time(self) -> None:
        """Let some time pass between two polls."""
        ...

    async def break_off(self) -> None:
        """End everything that was started."""
        ...


class WorkloadConformance:
    """Inherit as ``TestSomething`` and define ``stage``."""

    patience: float = 20.0
    """The time limit in seconds for a state to be observed."""
    looks: int = 5
    """The number of polls for something that must not happen."""
    evicts: bool = True
    """Whether it can end running work on request."""
    exact: bool = True
    """Whether every observation counts each task once. False: it does so when nothing changes, because parts of an
    observation may be older than others."""
    final: bool = False
    """Whether a cordon is final. A busy slice may then refuse a cordon, and is drained instead."""
    tells_changes: bool = True
    """Whether it notifies of changes; False: it is polled."""

    def stage(self) -> Stage:
        """Return a stage with a new workload."""
        raise NotImplementedError("define stage(), which returns the workload under test on its stage")

    # -- polling ----------------------------------------------------------------------------------------------------

    def _on_stage(self, test: Callable[[Stage, Workload], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            stage = self.stage()
            try:
                await test(stage, stage.workload)
            finally:
                await stage.workload.close()
                await stage.break_off()

        run(whole())

    async def _seen(self, stage: Stage, wanted: Callable[[WorkloadView], object]) -> WorkloadView:
        return await eventually(stage.workload.observe, wanted, within=self.patience, pass_time=stage.pass_time)

    async def _joined(self, stage: Stage, *slice_ids: str) -> None:
        for slice_id in slice_ids:
            await stage.join_slice(slice_id)
        await self._seen(stage, lambda view: {node.slice_id for node in view.nodes} >= set(slice_ids))

    async def _acknowledged(self, stage: Stage, slice_id: str, epoch: int) -> Acknowledgement:
        view = await self._seen(stage, lambda view: (ack := _ack(view, slice_id)) is not None and ack.epoch == epoch)
        found = _ack(view, slice_id)
        assert found is not None
        return found

    async def _certified(self, stage: Stage, slice_id: str, epoch: int) -> Acknowledgement:
        """Return the acknowledgement of an idle slice. A slice that ends by its cordon may count as running until
        then."""
        found = await self._acknowledged(stage, slice_id, epoch)
        if self.final and not found.refused:
            await self._seen(stage, lambda view: _counted(view, slice_id, epoch) == 0)
            found = await self._acknowledged(stage, slice_id, epoch)
        assert (found.running, found.final, found.refused) == (0, self.final, ""), f"an idle slice answers with {found}"
        return found

    async def _never(self, stage: Stage, unwanted: Callable[[WorkloadView], object], why: str) -> None:
        for _ in range(self.looks):
            await stage.pass_time()
            assert not unwanted(await stage.workload.observe()), why

    # -- observations -----------------------------------------------------------------------------------------------

    def test_it_has_the_shape_of_a_workload(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            assert isinstance(workload, Workload)
            view = await self._seen(stage, lambda view: isinstance(view, WorkloadView))
            seen = (view.demands, view.nodes, view.acknowledged)
            assert seen == ((), (), ()), f"a fresh workload shows {seen}"

        self._on_stage(test)

    def test_a_task_is_shown_either_as_waiting_or_as_running(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await stage.submit(3)
            await self._seen(stage, lambda view: _waiting(view) == 3)
            await self._joined(stage, "w-1", "w-2")
            for _ in range(self.looks):
                view = await workload.observe()
                counted = _waiting(view) + _running(view)
                assert counted == 3 or not self.exact, "a task was lost or counted twice"
                await stage.pass_time()
            await self._seen(stage, lambda view: (_waiting(view), _running(view)) == (1, 2))
            await stage.finish()
            await self._seen(stage, lambda view: (_waiting(view), _running(view)) == (0, 1))

        self._on_stage(test)

    def test_a_node_is_idle_since_an_instant_or_busy_and_never_both(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            (idle,) = (await workload.observe()).nodes
            assert (idle.tasks, idle.idle_since is None) == (0, False)
            await stage.submit(1)
            (busy,) = (await self._seen(stage, _running)).nodes
            assert (busy.tasks, busy.idle_since) == (1, None)
            await stage.finish()
            (done,) = (await self._seen(stage, lambda view: not _running(view))).nodes
            assert done.idle_since is not None
            assert idle.idle_since is not None
            assert done.idle_since >= idle.idle_since, "the idle clock starts when the work ends"

        self._on_stage(test)

    def test_looking_changes_nothing(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            (first,) = (await workload.observe()).nodes
            await self._never(stage, lambda view: view.nodes != (first,), "an idle clock moved without work")

        self._on_stage(test)

    def test_how_to_join_depends_on_nothing_but_the_slice(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            first = workload.join("w-1", "g", 0)
            assert isinstance(first, Join)
            assert first.command
            await self._joined(stage, "w-1")
            await stage.submit(1)
            assert workload.join("w-1", "g", 0) == first
            assert workload.join("w-1", "g", 1) != first or workload.join("w-2", "g", 0) != first

        self._on_stage(test)

    # -- notifications of changes --------------------------------------------------------------------------

    async def _notified_until(self, stage: Stage, wanted: Callable[[WorkloadView], object]) -> None:
        """Observe only after a notification, never by polling."""
        async with asyncio.timeout(self.patience):
            while not wanted(await stage.workload.observe()):
                await stage.workload.changed()

    def test_new_work_is_told(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await workload.observe()
            changed = asyncio.create_task(workload.changed())
            await stage.submit(1)
            async with asyncio.timeout(self.patience):
                await changed
            await self._notified_until(stage, _waiting)

        if self.tells_changes:
            self._on_stage(test)

    def test_what_came_between_a_look_and_the_question_is_told_too(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            assert not _waiting(await workload.observe())
            await stage.submit(1)
            await self._notified_until(stage, _waiting)

        if self.tells_changes:
            self._on_stage(test)

    def test_a_node_that_joins_and_work_that_starts_and_ends_are_told(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await workload.observe()
            await stage.join_slice("w-1")
            await self._notified_until(stage, lambda view: view.nodes)
            await stage.submit(1)
            await self._notified_until(stage, _running)
            await stage.finish()
            await self._notified_until(stage, lambda view: not _running(view))

        if self.tells_changes:
            self._on_stage(test)

    def test_whoever_waits_for_news_may_give_up_and_ask_again(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await workload.observe()
            waiting = asyncio.create_task(workload.changed())
            await stage.pass_time()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await stage.submit(1)
            if self.tells_changes:
                await self._notified_until(stage, _waiting)
            else:
                await self._seen(stage, _waiting)

        self._on_stage(test)

    # -- the fence --------------------------------------------------------------------------------------------------

    def test_a_cordoned_slice_gets_no_new_work(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await workload.cordon("w-1", 1)
            await stage.submit(1)
            await self._never(stage, _running, "work was placed behind the fence")
            assert _waiting(await workload.observe()) == 1

        self._on_stage(test)

    def test_the_acknowledgement_carries_the_epoch_of_the_cordon(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1", "w-2")
            assert _ack(await workload.observe(), "w-1") is None
            await workload.cordon("w-1", 3)
            await workload.cordon("w-1", 3)
            await self._certified(stage, "w-1", 3)
            assert _ack(await workload.observe(), "w-2") is None
            await workload.cordon("w-1", 4)
            await self._certified(stage, "w-1", 4)

        self._on_stage(test)

    def test_the_acknowledgement_counts_what_still_runs(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await stage.submit(1)
            await self._seen(stage, _running)
            await workload.cordon("w-1", 1)
            found = await self._acknowledged(stage, "w-1", 1)
            assert found.running == 1 or (self.final and found.refused)
            await workload.drain("w-1", 1)
            await self._seen(stage, lambda view: _counted(view, "w-1", 1) == 1)
            await self._never(stage, lambda view: not _running(view), "a drain without eviction ended work")
            await stage.finish()
            await self._seen(stage, lambda view: _counted(view, "w-1", 1) == 0)

        self._on_stage(test)

    def test_work_that_lands_behind_the_fence_raises_what_is_running(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await workload.cordon("w-1", 1)
            await self._certified(stage, "w-1", 1)
            if await stage.land("w-1"):
                view = await workload.observe()
                after = _ack(view, "w-1")
                assert after is None or after.running == 1, "the certificate outlived the work that voids it"

        self._on_stage(test)

    def test_uncordon_voids_the_acknowledgement_and_lets_work_in_again(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await workload.cordon("w-1", 1)
            await self._acknowledged(stage, "w-1", 1)
            await workload.uncordon("w-1", 1)
            await self._never(stage, lambda view: _ack(view, "w-1"), "an acknowledgement outlived its cordon")
            await stage.submit(1)
            await self._seen(stage, _running)
            await workload.cordon("w-1", 2)
            assert (await self._acknowledged(stage, "w-1", 2)).running == 1

        if not self.final:
            self._on_stage(test)

    def test_a_lower_epoch_changes_nothing(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await workload.cordon("w-1", 5)
            await self._certified(stage, "w-1", 5)
            await workload.cordon("w-1", 4)
            await workload.uncordon("w-1", 4)
            await self._certified(stage, "w-1", 5)
            await stage.submit(1)
            await self._never(stage, _running, "an uncordon of the past opened the fence")

        self._on_stage(test)

    def test_a_cordon_that_arrives_after_its_uncordon_does_not_bring_the_fence_back(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await workload.cordon("w-1", 1)
            await workload.uncordon("w-1", 1)
            await workload.cordon("w-1", 1)
            await stage.submit(1)
            await self._seen(stage, _running)
            assert _ack(await workload.observe(), "w-1") is None

        if not self.final:
            self._on_stage(test)

    def test_a_refused_cordon_leaves_the_slice_at_work(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await stage.submit(1)
            await self._seen(stage, _running)
            await workload.cordon("w-1", 1)
            assert (await self._acknowledged(stage, "w-1", 1)).refused
            await workload.uncordon("w-1", 1)
            await self._never(stage, lambda view: _ack(view, "w-1"), "a refusal outlived its cordon")
            await stage.finish()
            await self._seen(stage, lambda view: not _running(view))
            await stage.submit(1)
            await self._seen(stage, _running)

        if self.final:
            self._on_stage(test)

    def test_eviction_ends_what_runs_and_it_waits_again(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1")
            await stage.submit(1)
            await self._seen(stage, _running)
            await workload.cordon("w-1", 1)
            await workload.drain("w-1", 1, evict=True)
            await self._seen(stage, lambda view: _counted(view, "w-1", 1) == 0)
            await self._seen(stage, lambda view: _waiting(view) == 1)  # evicted work must not be lost

        if self.evicts:
            self._on_stage(test)

    def test_nodes_of_a_forgotten_slice_are_dead(self) -> None:
        async def test(stage: Stage, workload: Workload) -> None:
            await self._joined(stage, "w-1", "w-2")
            await workload.cordon("w-1", 1)
            await workload.forget(["w-1", "w-never"])
            view = await self._seen(stage, lambda view: [node.slice_id for node in view.nodes] == ["w-2"])
            assert _ack(view, "w-1") is None

        self._on_stage(test)


def _ack(view: WorkloadView, slice_id: str) -> Acknowledgement | None:
    found = [one for one in view.acknowledged if one.slice_id == slice_id]
    assert len(found) <= 1, f"{slice_id} is acknowledged {len(found)} times"
    return found[0] if found else None


def _counted(view: WorkloadView, slice_id: str, epoch: int) -> int | None:
    """Return how many tasks still run by the acknowledgement for an epoch; None without one, or after a refusal."""
    found = _ack(view, slice_id)
    return None if found is None or found.epoch != epoch or found.refused else found.running


def _waiting(view: WorkloadView) -> int:
    return sum(demand.count for demand in view.demands)


def _running(view: WorkloadView) -> int:
    return sum(node.tasks for node in view.nodes)
