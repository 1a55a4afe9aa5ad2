"""Journeys of slices through faults: observations, decisions, and the state afterwards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.control.clocks import leap
from tests.control.worlds import GPU, World
from windlass.control.controller import Controller, IncompatibleConfig
from windlass.control.reconcile.operator_orders import Order, give
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Cluster, Group, ScaleDown
from windlass.providers.protocol import Instance, InsufficientCapacity, ProviderError, QuotaExceeded

POD = Group("pod", (("gpu", 8000),), 2, hosts=2, scale_down=ScaleDown(idle_timeout=60))
DOLLAR = 10**9


def a_world(*groups: Group, cluster: Cluster | None = None, **policy: Any) -> World:
    """Each group is sold by a provider of its own, of the same name."""
    configured = tuple(GroupSettings(group, group.name) for group in groups or (GPU,))
    return World(settings=Settings(configured, cluster or Cluster(), Policy(**{"vanish_timeout": 0, **policy})))


def in_virtual_time(story: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """A journey as a test."""

    def test() -> None:
        leap(story())  # type: ignore[arg-type]

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


async def with_job(world: World, *jobs: str) -> tuple[Controller, list[str]]:
    """A controller, and the slices on which these jobs run."""
    controller = world.controller()
    world.work.waiting = list(jobs)
    await world.ticks(controller, 4)
    assert sorted(world.work.running.values()) == sorted(jobs)
    return controller, sorted(world.work.running)


def state(controller: Controller, name: str) -> State:
    return controller.controller_state.fleet.slices[name].state


def blocked(controller: Controller) -> list[str]:
    """Groups that a quota error keeps from launching."""
    return [
        name
        for name, provider_health in controller.controller_state.fleet.provider_health.items()
        if provider_health.quota_until is not None
    ]


def order(world: World, what: Any, subject: str) -> None:
    give(world.journal(), Order(what, subject, "ann"), world.time)


# -- lists that lag ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_one_observation_without_a_slice_loses_nothing() -> None:
    world = a_world(vanish_timeout=15)
    controller, [one, other] = await with_job(world, "a", "b")
    world.cloud.listing = lambda: (world.cloud.instances[one],)  # a page is lost
    await world.ticks(controller, 5, 2)
    assert state(controller, one) == state(controller, other) == State.READY
    world.cloud.listing = None
    await world.tick(controller)
    world.cloud.listing = tuple  # now all of it, for as long again: each time counts by itself
    await world.ticks(controller, 7, 2)
    assert state(controller, one) == state(controller, other) == State.READY
    world.cloud.listing = None
    await world.ticks(controller, 3)
    assert sorted(world.work.running) == [one, other]
    assert world.cloud.bought == [one, other]


@in_virtual_time
async def test_a_slice_that_is_missing_for_long_enough_is_lost() -> None:
    world = a_world(vanish_timeout=15)
    controller, [name] = await with_job(world, "a")
    del world.cloud.instances[name]
    world.cloud.died.append(name)
    await world.ticks(controller, 14)
    assert name in controller.controller_state.fleet.slices
    await world.ticks(controller, 3)
    assert name not in controller.controller_state.fleet.slices
    await world.ticks(controller, 30)
    assert list(world.work.running.values()) == ["a"]  # on another one
    assert len(world.cloud.bought) == 2


@in_virtual_time
async def test_what_was_ended_empty_and_shows_again_is_ended_again() -> None:
    world = a_world()
    controller, [name] = await with_job(world, "a")
    ghost = world.cloud.instances[name]
    world.work.finish()
    await world.ticks(controller, 4, 30)
    assert world.cloud.ended == [name]
    world.cloud.instances[name] = ghost
    await world.tick(controller)
    assert controller.controller_state.fleet.slices[name].started_for.code == Code.LEAKED
    assert state(controller, name) == State.TERMINATING
    await world.ticks(controller, 3)
    assert world.cloud.ended == [name, name]
    assert controller.controller_state.fleet.slices == {}


@in_virtual_time
async def test_what_vanished_with_its_work_and_shows_again_is_taken_over_with_its_work() -> None:
    world = a_world(vanish_timeout=15, unhealthy_timeout=60)
    controller, [name] = await with_job(world, "a")
    world.cloud.listing = tuple
    await world.ticks(controller, 20)
    assert state(controller, name) == State.READY  # the workload still sees it at work: the list may be wrong
    await world.ticks(controller, 5, 10)
    assert name not in controller.controller_state.fleet.slices
    world.cloud.listing = None
    await world.ticks(controller, 2)
    assert state(controller, name) == State.READY
    assert world.work.running == {name: "a"}
    await world.ticks(controller, 10, 30)
    assert world.cloud.ended == []
    assert world.work.killed == []


@in_virtual_time
async def test_time_in_which_a_provider_gives_no_answer_proves_nothing_about_a_slice_at_work() -> None:
    def down() -> tuple[Instance, ...]:
        raise ProviderError("the service is down")

    world = a_world(vanish_timeout=15, unhealthy_timeout=60)
    controller, [name] = await with_job(world, "a")
    for _ in range(3):
        world.cloud.listing = tuple  # a page is lost
        await world.ticks(controller, 5, 10)
        world.cloud.listing = down
        await world.ticks(controller, 12, 30)
    world.cloud.listing = tuple
    await world.ticks(controller, 5, 10)
    assert state(controller, name) == State.READY
    assert world.work.running == {name: "a"}
    await world.ticks(controller, 3, 10)  # now it was missing for all of the time
    assert name not in controller.controller_state.fleet.slices


# -- machines that go, or are ill ----------------------------------------------------------------------------------


@in_virtual_time
async def test_a_slice_that_will_be_preempted_is_cordoned_early_and_replaced() -> None:
    world = a_world(replace(GPU, min=1))
    controller, [name] = await with_job(world, "a")
    world.cloud.announce(name, world.time + 120)
    tick = await world.tick(controller)
    assert state(controller, name) == State.CORDONED
    assert controller.controller_state.fleet.slices[name].reason.code == Code.PREEMPTED
    assert tick.plan is not None
    assert tick.plan.launch == {"gpu": 1}
    world.work.waiting = ["b"]
    await world.ticks(controller, 4)
    assert sorted(world.work.running.values()) == ["a", "b"]  # new work goes to the new one, the old goes on
    world.work.finish("a")
    await world.ticks(controller, 3)
    assert world.cloud.ended == [name]
    assert world.work.killed == []


@in_virtual_time
async def test_a_slice_that_stays_ill_is_drained_and_one_that_recovers_stays() -> None:
    world = a_world()
    controller, [one, other] = await with_job(world, "a", "b")
    world.work.sick = {f"{one}/0", f"{other}/0"}
    await world.ticks(controller, 20, 10)
    assert state(controller, one) == state(controller, other) == State.READY
    world.work.sick = {f"{other}/0"}
    await world.ticks(controller, 12, 10)
    assert state(controller, one) == State.READY
    assert state(controller, other) == State.DRAINING
    assert controller.controller_state.fleet.slices[other].leaving is not None
    await world.ticks(controller, 20, 1000)  # its work is waited for, for longer than any drain
    assert state(controller, other) == State.DRAINING
    world.work.finish("b")
    await world.ticks(controller, 3)
    assert world.cloud.ended == [other]
    assert world.work.running == {one: "a"}


@in_virtual_time
async def test_a_slice_of_two_hosts_is_ready_with_both_and_lost_without_one() -> None:
    world = a_world(POD)
    controller = world.controller()
    world.work.waiting = ["a"]
    await world.tick(controller)
    [name] = world.bought
    world.work.hidden = {f"{name}/1"}
    await world.ticks(controller, 5)
    assert state(controller, name) == State.INITIALIZING
    world.work.hidden = set()
    await world.ticks(controller, 2)
    assert state(controller, name) == State.READY
    assert world.work.running == {name: "a"}
    world.clouds["pod"].kill(name, host=1)
    await world.ticks(controller, 5)
    assert world.work.lost == ["a"]
    assert world.clouds["pod"].ended == [name]  # all of it
    await world.ticks(controller, 30)
    assert list(world.work.running.values()) == ["a"]


@in_virtual_time
async def test_a_host_that_never_joins_fails_the_whole_slice() -> None:
    world = a_world(POD)
    controller = world.controller()
    world.work.waiting = ["a"]
    await world.tick(controller)
    [name] = world.bought
    world.work.hidden = {f"{name}/1"}
    await world.ticks(controller, 2)
    world.time += 900
    await world.ticks(controller, 3)
    assert world.clouds["pod"].ended == [name]
    assert controller.controller_state.fleet.provider_health["pod"].failures != ()


# -- draining ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("allowed", [False, True])
def test_work_is_evicted_only_where_that_is_allowed_and_only_after_the_drain_limit(allowed: bool) -> None:
    async def story() -> None:
        world = a_world(allow_eviction=allowed, drain_timeout=100)
        controller, [name] = await with_job(world, "a")
        order(world, "drain", name)
        await world.ticks(controller, 9, 10)
        assert world.work.evicted == []
        await world.ticks(controller, 5, 10)
        await world.ticks(controller, 5, 1000)
        assert ("a" in world.work.evicted) is allowed
        assert (name in world.cloud.ended) is allowed
        assert world.work.killed == []

    leap(story())


@in_virtual_time
async def test_a_manual_drain_is_not_called_back_by_demand_but_by_the_operator() -> None:
    world = a_world(replace(GPU, max=1))
    controller, [name] = await with_job(world, "a")
    order(world, "drain", name)
    world.work.waiting = ["b"]
    await world.ticks(controller, 10, 10)
    assert state(controller, name) == State.DRAINING
    assert world.work.running == {name: "a"}
    order(world, "undrain", name)
    await world.ticks(controller, 3)
    assert state(controller, name) == State.READY
    world.work.finish("a")
    await world.ticks(controller, 3)
    assert world.work.running == {name: "b"}
    assert world.cloud.bought == [name]


@in_virtual_time
async def test_a_slice_whose_manual_drain_is_undone_without_demand_stays_for_its_idle_time() -> None:
    world = a_world()
    controller, [name] = await with_job(world, "a")
    order(world, "drain", name)
    await world.ticks(controller, 3)
    order(world, "undrain", name)
    world.work.finish("a")
    await world.ticks(controller, 3)
    assert state(controller, name) == State.READY


@in_virtual_time
async def test_a_launch_that_is_cancelled_in_flight_is_ended_only_with_a_certificate() -> None:
    world = a_world(vanish_timeout=15)
    controller = world.controller()
    world.cloud.booting = True
    world.cloud.listing = tuple  # the list lags, and shows nothing yet
    world.work.waiting, world.work.deaf = ["a"], True
    await world.tick(controller)
    [name] = world.cloud.bought
    world.work.waiting = []
    await world.tick(controller)
    assert state(controller, name) == State.TERMINATING
    world.cloud.listing = None
    world.cloud.boot()
    world.work.running[name] = "b"  # it came up after all, and work was quicker than the fence
    await world.ticks(controller, 5)
    assert state(controller, name) == State.TERMINATING
    assert name in world.cloud.instances
    world.work.deaf = False
    await world.ticks(controller, 5)
    assert world.cloud.ended == []  # it says that b runs there
    assert "b" not in world.work.killed
    world.work.finish("b")
    await world.ticks(controller, 3)
    assert world.cloud.ended == [name]


# -- launches that fail --------------------------------------------------------------------------------------------

CHEAP = Group("cheap", (("gpu", 8000),), 2, rank=1, price=DOLLAR, scale_down=ScaleDown(idle_timeout=60))
DEAR = Group("dear", (("gpu", 8000),), 2, rank=2, price=3 * DOLLAR, scale_down=ScaleDown(idle_timeout=60))
BY_RANK = Cluster(choose="rank")


@in_virtual_time
async def test_a_launch_whose_outcome_is_not_known_is_given_up_after_three_tries_and_bought_elsewhere() -> None:
    world = a_world(CHEAP, DEAR, cluster=BY_RANK)
    controller = world.controller()
    cheap, dear = world.clouds["cheap"], world.clouds["dear"]
    cheap.refusing = lambda _: ProviderError("502 bad gateway")
    world.work.waiting = ["a"]
    await world.ticks(controller, 9)
    assert len(cheap.calls) == 2
    assert dear.calls == []
    await world.ticks(controller, 4)
    assert len({name for _, name, _ in cheap.calls}) == 1  # the same token each time
    assert len([what for what, _, _ in cheap.calls if what == "launch"]) == 3
    await world.ticks(controller, 3)
    assert list(world.work.running.values()) == ["a"]
    assert len(dear.bought) == 1


@in_virtual_time
async def test_what_came_of_an_uncertain_launch_after_all_is_ended_under_the_fence() -> None:
    world = a_world(CHEAP, DEAR, cluster=BY_RANK, vanish_timeout=15)
    controller = world.controller()
    cheap = world.clouds["cheap"]
    launch = cheap.launch

    async def bought_but_not_told(order: Any, epoch: int) -> None:
        await launch(order, epoch)
        raise ProviderError("502 bad gateway")

    cheap.launch = bought_but_not_told  # type: ignore[method-assign]
    cheap.listing = tuple  # and the list lags behind
    world.work.waiting = ["a"]
    await world.ticks(controller, 14)
    cheap.listing = None
    await world.ticks(controller, 40)
    assert len(cheap.bought) == 1
    world.work.finish()
    await world.ticks(controller, 10, 30)
    assert world.instances == {}
    assert world.work.killed == []


@in_virtual_time
async def test_a_stock_out_is_passed_on_at_once() -> None:
    world = a_world(CHEAP, DEAR, cluster=BY_RANK)
    controller = world.controller()
    world.clouds["cheap"].refusing = lambda _: InsufficientCapacity("none left")
    world.work.waiting = ["a"]
    await world.ticks(controller, 2)
    assert len(world.clouds["dear"].bought) == 1


@in_virtual_time
async def test_a_quota_block_is_cleared_by_the_first_success() -> None:
    world = a_world(replace(GPU, max=2))
    controller = world.controller()
    world.cloud.booting = True
    world.cloud.refusing = lambda _: QuotaExceeded("1 of 1 GPUs") if world.cloud.instances else None
    world.work.waiting = ["a", "b"]
    await world.ticks(controller, 3)
    assert "gpu" in blocked(controller)
    await world.ticks(controller, 3)
    assert len(world.cloud.calls) == 2
    world.cloud.refusing = lambda _: None
    world.cloud.boot()
    await world.ticks(controller, 3)
    assert blocked(controller) == []
    assert sorted(world.work.running.values()) == ["a", "b"]


# -- frozen --------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_in_a_frozen_group_nothing_is_launched_and_nothing_released() -> None:
    world = a_world()
    controller, [name] = await with_job(world, "a")
    order(world, "freeze", "gpu")
    world.work.waiting = ["b"]
    await world.ticks(controller, 3)
    assert world.cloud.bought == [name]
    world.work.waiting = []
    world.work.finish()
    await world.ticks(controller, 5, 60)
    assert state(controller, name) == State.READY
    order(world, "resume", "gpu")
    await world.ticks(controller, 3)
    assert world.cloud.ended == [name]


@in_virtual_time
async def test_a_freeze_stops_a_certified_drain_and_a_queued_launch() -> None:
    world = a_world(GPU, replace(GPU, name="slow", resources=(("tpu", 4000),)), launch_rate=1)
    world.work.needs = {"b": (("tpu", 4000),), "c": (("tpu", 4000),)}
    controller, [name] = await with_job(world, "a")
    world.work.finish()
    world.time += 60
    world.work.deaf = True
    await world.tick(controller)
    assert state(controller, name) == State.CORDONED
    world.work.waiting = ["b", "c"]
    await world.tick(controller)  # two are decided, one is asked: one a minute
    assert len(world.clouds["slow"].bought) == 1
    for group in ("gpu", "slow"):
        order(world, "freeze", group)
    world.work.deaf = False
    await world.ticks(controller, 30, 10)
    assert name in world.instances
    assert len(world.clouds["slow"].bought) == 1
    order(world, "resume", "*")
    for group in ("gpu", "slow"):
        order(world, "resume", group)
    await world.ticks(controller, 10, 30)
    assert world.clouds["gpu"].ended == [name]
    assert sorted(world.work.running.values()) == ["b", "c"]


@in_virtual_time
async def test_a_freeze_does_not_stop_what_an_operator_ordered_to_drain() -> None:
    world = a_world(GPU)
    controller, [name] = await with_job(world, "a")
    world.work.finish()
    order(world, "freeze", "*")
    order(world, "drain", name)
    await world.ticks(controller, 30, 1)
    assert world.clouds["gpu"].ended == [name]


# -- other settings ------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_slices_of_a_removed_group_are_drained_and_still_count_against_the_budget() -> None:
    world = a_world(CHEAP, DEAR, cluster=Cluster(choose="rank", max_hourly_cost=3 * DOLLAR))
    controller, [name] = await with_job(world, "a")
    [_, dear] = world.settings.groups
    await controller.reconfigure(replace(world.settings, groups=(dear,)), world.clouds, world.work)
    world.work.waiting = ["b"]
    for _ in range(30):  # far beyond the drain limit
        await world.tick(controller, 500)
        assert world.work.running[name] == "a"
        assert world.clouds["dear"].bought == []  # 1 $/h + 3 $/h would be too much
    assert controller.controller_state.waiting["b"].reason.code == Code.BUDGET
    world.work.finish("a")
    await world.ticks(controller, 6)
    assert world.clouds["cheap"].ended == [name]
    assert len(world.clouds["dear"].bought) == 1
    assert world.work.killed == []


@in_virtual_time
async def test_the_cost_of_a_removed_group_drains_no_other_and_the_ceiling_is_shown_as_set() -> None:
    world = a_world(CHEAP, replace(DEAR, max=1), cluster=Cluster(choose="rank", max_hourly_cost=5 * DOLLAR))
    controller, names = await with_job(world, "a", "b", "c")
    assert [controller.controller_state.fleet.slices[name].group for name in names] == ["cheap", "cheap", "dear"]
    [cheap, _] = world.settings.groups
    lower = Cluster(choose="rank", max_hourly_cost=4 * DOLLAR)
    more = replace(cheap, group=replace(cheap.group, max=3))
    await controller.reconfigure(replace(world.settings, groups=(more,), cluster=lower), world.clouds, world.work)
    world.work.waiting = ["d"]
    await world.ticks(controller, 4)
    assert [state(controller, name) for name in names] == [State.READY, State.READY, State.DRAINING]
    why = controller.controller_state.waiting["d"].reason
    assert (why.code, why.why) == (
        Code.BUDGET,
        "cheap: $5.00/h and $1.00/h more would be $6.00/h, the ceiling is $4.00/h",
    )


@in_virtual_time
async def test_a_provider_that_still_has_slices_cannot_be_left_out() -> None:
    world = a_world(CHEAP, DEAR, cluster=BY_RANK)
    controller, [name] = await with_job(world, "a")
    before = world.settings
    [_, dear] = before.groups
    with pytest.raises(IncompatibleConfig, match=r"providers\.cheap: it still has 1 of our slices"):
        await controller.reconfigure(replace(before, groups=(dear,)), {"dear": world.clouds["dear"]}, world.work)
    assert controller.settings is before
    await world.tick(controller)
    assert state(controller, name) == State.READY
    world.settings = replace(before, groups=(dear,))
    cheap = world.clouds.pop("cheap")
    with pytest.raises(IncompatibleConfig):
        world.controller()
    world.clouds["cheap"] = cheap


@in_virtual_time
async def test_a_queued_launch_goes_to_the_provider_that_sells_its_group_by_then() -> None:
    world = a_world(replace(GPU, name="moving"), replace(DEAR, name="other", resources=(("tpu", 1000),)), launch_rate=1)
    controller, _ = await with_job(world, "a")
    world.work.waiting = ["b"]
    await world.tick(controller)
    assert [record.state for record in controller.controller_state.fleet.slices.values()] == [State.READY, State.QUEUED]
    world.work.finish()
    world.work.waiting.clear()
    moving, other = world.settings.groups
    world.settings = replace(world.settings, groups=(replace(moving, provider="other"), other))
    await controller.reconfigure(world.settings, world.clouds, world.work)
    world.work.waiting = ["b", "c"]
    await world.ticks(controller, 12, 10)
    assert sorted(world.work.running.values()) == ["b", "c"]
    assert len(world.clouds["moving"].bought) == 1
    assert len(world.clouds["other"].bought) == 1


@in_virtual_time
async def test_an_error_of_one_slice_is_reported_until_it_is_over() -> None:
    world = a_world()
    controller, [name] = await with_job(world, "a")
    uncordon = world.work.uncordon

    async def cannot(slice_id: str, epoch: int) -> None:
        raise RuntimeError("no route to host")

    order(world, "drain", name)
    await world.ticks(controller, 2)
    world.work.uncordon = cannot  # type: ignore[method-assign]
    order(world, "undrain", name)
    await world.ticks(controller, 3)
    world.work.waiting = ["b"]
    await world.ticks(controller, 3)
    assert "no route to host" in controller.controller_state.observed.problems[f"slice {name}"]
    world.work.uncordon = uncordon  # type: ignore[method-assign]
    await world.ticks(controller, 4, 5)
    assert controller.controller_state.observed.problems == {}
