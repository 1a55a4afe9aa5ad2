"""The loop wakes at the instant at which a back-off ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tests.control.clocks import leap
from tests.control.worlds import GPU, QUICK, World
from windlass.control.reconcile.deadlines import next_deadline
from windlass.control.reconcile.provider_health import asked, availability_of, may_ask, next_turn
from windlass.control.settings import BackOff, GroupSettings, Policy, Settings
from windlass.control.state.fleet import Failure, Fleet, ProviderHealth
from windlass.core.model.reasons import Code
from windlass.providers.protocol import InsufficientCapacity

RULES = BackOff()
SETTINGS = Settings((GroupSettings(GPU, "cloud"),))


def due(provider_health: ProviderHealth, now: float, group: str = "gpu", settings: Settings = SETTINGS) -> float | None:
    return next_deadline(Fleet(provider_health={group: provider_health}), (), settings, now)


def refused(*times: float) -> ProviderHealth:
    return ProviderHealth(tuple(Failure(at, Code.STOCKOUT) for at in times), last_error="none left")


def test_after_the_pause_the_next_deadline_is_when_the_failures_are_forgotten() -> None:
    provider_health = refused(0, 100)
    over = availability_of(provider_health, RULES, 100).until
    assert over is not None
    assert due(provider_health, 100) == over
    assert availability_of(provider_health, RULES, over).state == "backoff"
    assert due(provider_health, over) == 3700
    assert availability_of(provider_health, RULES, 3700).state == "available"
    assert due(provider_health, 3700) is None


def test_failures_at_odd_instants_are_forgotten_at_the_announced_instant() -> None:
    rules = replace(RULES, heal=1000.1)
    settings = replace(SETTINGS, policy=Policy(backoff=rules))
    for number in range(200):
        provider_health = refused(1_700_000_000 + number * 0.1)
        over = due(provider_health, 1_700_000_900, settings=settings)
        assert over is not None
        assert availability_of(provider_health, rules, over).state == "available"


def test_a_group_that_sells_again_or_was_never_refused_is_due_at_no_time() -> None:
    assert due(replace(refused(0), succeeded_at=10), 20) is None
    assert due(ProviderHealth(), 20) is None


def test_a_group_that_is_not_in_the_settings_any_more_is_due_at_no_time() -> None:
    assert due(refused(0), 1, "old") is None


def test_a_launch_starts_as_soon_as_the_rising_health_allows_it() -> None:
    provider_health, now = refused(*range(8)), 2000.0
    while may_ask(provider_health, 20, RULES, now):
        provider_health = asked(provider_health, 20, RULES, now)
    turn = next_turn(provider_health, 20, RULES, now)
    assert may_ask(provider_health, 20, RULES, turn)
    assert not may_ask(provider_health, 20, RULES, turn - 0.001)


def test_a_launch_may_go_at_once_when_nothing_holds_it_up() -> None:
    assert next_turn(ProviderHealth(), 6, RULES, 50) == 50


def test_the_rest_is_launched_when_the_failures_are_forgotten_and_not_an_interval_later() -> None:
    """The one launch that tries hangs; nothing happens, nothing is seen, and only the clock goes on."""

    async def story() -> None:
        patient = replace(QUICK, requesting_timeout=10_000)
        world = World(settings=Settings((GroupSettings(GPU, "cloud"),), policy=patient))
        controller = world.controller()
        world.work.waiting = ["a", "b", "c"]
        world.cloud.refusing = lambda _: InsufficientCapacity("none left")
        await world.tick(controller)
        await world.tick(controller)
        failed_at = world.time
        world.cloud.refusing, world.cloud.hanging = lambda _: None, asyncio.Event()
        while world.time < failed_at + 3600:
            at = controller.next_deadline()
            assert at is not None
            await world.tick(controller, at - world.time)
            launching = len(controller.actuator.launching)
            assert launching == (1 if world.time < failed_at + 3600 else 3)
        assert world.time == failed_at + 3600
        world.cloud.hanging.set()
        await controller.stop()

    leap(story())
