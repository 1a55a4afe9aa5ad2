"""A provider or workload that misbehaves delays nothing else, shrinks nothing, and is named for as long as it does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import nan
from typing import Any

import pytest

from tests.control.clocks import leap
from tests.control.worlds import World
from windlass.control.controller import Controller
from windlass.control.observe.validation import Views
from windlass.control.settings import GroupSettings, Policy, Settings
from windlass.core.model.conditions import Condition
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.core.model.snapshot import Bundle, Demand, Gang, Group, ScaleDown
from windlass.providers.protocol import Host, Instance, ProviderError
from windlass.workloads.protocol import Acknowledgement, WorkloadError, WorkloadView, WorkNode

BAD = Group("bad", (("gpu", 8000),), 9, scale_down=ScaleDown(idle_timeout=30))
GOOD = Group("good", (("tpu", 4000),), 9, scale_down=ScaleDown(idle_timeout=30))
TPUS = (("tpu", 4000),)


@pytest.fixture
def world() -> World:
    """Two groups of two providers, each with one idle slice of its own; jobs named g.. go to the good one."""
    policy = Policy(vanish_timeout=0, observe_timeout=5, call_timeout=20)
    world = World(settings=Settings((GroupSettings(BAD, "shaky"), GroupSettings(GOOD, "solid")), policy=policy))
    world.work.needs = {f"g{number}": TPUS for number in range(9)}
    return world


async def with_a_slice_each(world: World) -> Controller:
    controller = world.controller()
    world.work.waiting = ["a", "g0"]
    await world.ticks(controller, 3)
    assert len(world.work.running) == 2
    world.work.finish()
    return controller


def problems(controller: Controller) -> dict[str, str]:
    return dict(controller.controller_state.observed.problems)


def states(controller: Controller, group: str) -> list[State]:
    return sorted(record.state for record in controller.controller_state.fleet.slices.values() if record.group == group)


async def hang() -> None:
    await asyncio.Event().wait()


def a_list(*instances: Any) -> Callable[[], Any]:
    return lambda: instances


async def refuse() -> None:
    raise ProviderError("the API is down")


ODD = Instance("odd", "bad", "running", (Host("odd/0"),))
ANSWERS: dict[str, Callable[[], Any]] = {
    "hangs for ever": hang,
    "raises": refuse,
    "says nothing": lambda: None,
    "is a number": lambda: 7,
    "holds text": a_list("an instance"),
    "shows an id twice": a_list(ODD, ODD),
    "has no id": a_list(replace(ODD, slice_id="")),
    "has an id that is no text": a_list(replace(ODD, slice_id=7)),  # type: ignore[arg-type]
    "has a time that is none": a_list(replace(ODD, preempted_at=nan)),
    "has a price that is none": a_list(replace(ODD, price=nan)),  # type: ignore[arg-type]
    "has a state that is none": a_list(replace(ODD, state="well")),  # type: ignore[arg-type]
    "has hosts that are none": a_list(replace(ODD, hosts=None)),  # type: ignore[arg-type]
    "has a host that is none": a_list(replace(ODD, hosts=("odd/0",))),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_list_that(world: World, answer: str) -> None:
    """... makes its provider unknown, and nothing shrinks; the other group grows; when it is well, all is well."""

    async def story() -> None:
        controller = await with_a_slice_each(world)
        shaky, solid = world.clouds["shaky"], world.clouds["solid"]
        shaky.listing = ANSWERS[answer]
        await world.ticks(controller, 8, 10)  # long past the idle timeout
        assert problems(controller).keys() == {"provider shaky"}
        assert len(shaky.instances) == len(solid.instances) == 1
        assert states(controller, "bad") == states(controller, "good") == [State.READY]
        world.work.waiting = ["g1", "g2"]
        await world.ticks(controller, 3)
        assert sorted(world.work.running.values()) == ["g1", "g2"]
        assert len(solid.instances) == 2
        world.work.finish()
        await world.ticks(controller, 8, 10)
        assert len(world.instances) == 3
        shaky.listing = None
        await asyncio.sleep(6)  # an observation that hangs is given up
        await world.ticks(controller, 8, 10)
        assert problems(controller) == {}
        assert world.instances == {}
        assert controller.controller_state.fleet.slices == {}
        assert world.work.killed == []

    leap(story())


def test_a_list_that_shows_the_past_loses_nothing_and_buys_nothing_twice(world: World) -> None:
    async def story() -> None:
        controller = await with_a_slice_each(world)
        shaky = world.clouds["shaky"]
        past = tuple(shaky.instances.values())
        shaky.listing = lambda: past
        world.work.waiting = ["b", "c", "g1"]
        await world.ticks(controller, 4)
        assert sorted(world.work.running.values()) == ["b", "c", "g1"]
        assert len(shaky.bought) == 2  # one was there, and one launch of two is not in the list yet
        shaky.listing = None
        await world.ticks(controller, 2)
        assert states(controller, "bad") == [State.READY, State.READY]
        shown = tuple(shaky.instances.values())
        world.work.finish()
        await world.ticks(controller, 3, 35)
        assert shaky.instances == {}
        shaky.listing = lambda: shown
        await world.ticks(controller, 5, 35)  # ended ones that still show are ended again, and never used
        world.work.waiting = ["d"]
        await world.ticks(controller, 3)
        assert len(shaky.bought) == 3
        assert list(world.work.running.values()) == ["d"]
        assert world.work.killed == []

    leap(story())


@pytest.mark.parametrize("how", ["hangs", "raises"])
def test_a_launch_call_that_hangs_delays_no_other_group(world: World, how: str) -> None:
    async def story() -> None:
        controller = await with_a_slice_each(world)
        shaky, solid = world.clouds["shaky"], world.clouds["solid"]
        if how == "hangs":
            shaky.hanging = asyncio.Event()
        else:
            shaky.refusing = lambda _: ProviderError("try again")
        world.work.waiting = ["b", "c", "d", "g1", "g2"]
        await world.tick(controller)
        assert len(solid.bought) == 2  # in the very pass in which it was decided
        await world.ticks(controller, 2)
        assert {"g1", "g2"} <= set(world.work.running.values())
        await asyncio.sleep(25)  # beyond the time limit of a call
        await world.tick(controller)
        culprits = [name for name in problems(controller) if name.startswith("slice bad-")]
        assert len(culprits) == 2
        world.work.waiting += ["g3"]
        await world.tick(controller)
        assert len(solid.bought) == 3
        shaky.hanging, shaky.refusing = None, lambda _: None
        await world.ticks(controller, 40, 10)  # with the same tokens, or given up and bought elsewhere
        assert {"b", "c", "d"} <= set(world.work.running.values())
        assert problems(controller) == {}
        assert len(shaky.bought) == len(set(shaky.bought))
        assert states(controller, "bad") == [State.READY] * 3

    leap(story())


def test_a_provider_of_which_every_call_raises_delays_no_other(world: World) -> None:
    async def story() -> None:
        controller = await with_a_slice_each(world)
        shaky, solid = world.clouds["shaky"], world.clouds["solid"]
        shaky.failing = RuntimeError("not even an error of the contract")
        world.work.waiting = ["b", "c", "g1", "g2"]
        await world.ticks(controller, 3)
        assert {"b", "g1", "g2"} <= set(world.work.running.values())
        assert "provider shaky" in problems(controller)
        assert len(solid.instances) == 2
        shaky.failing = None
        await world.ticks(controller, 10, 10)
        assert problems(controller) == {}
        world.work.finish()
        await world.ticks(controller, 10, 10)
        world.work.finish()
        await world.ticks(controller, 10, 10)
        assert world.instances == {}
        assert sorted(world.work.finished) == ["a", "b", "c", "g0", "g1", "g2"]

    leap(story())


# -- the workload --------------------------------------------------------------------------------------------------


def with_node(**odd: Any) -> Callable[[WorkloadView], WorkloadView]:
    return lambda view: replace(view, nodes=(*view.nodes, replace(WorkNode("n", "s"), **odd)))


async def no_view() -> WorkloadView:
    raise WorkloadError("the head node is down")


VIEWS: dict[str, Callable[[WorkloadView], Any]] = {
    "hangs for ever": lambda _: hang(),
    "raises": lambda _: no_view(),
    "is nothing": lambda _: None,
    "has nodes that are none": lambda view: replace(view, nodes=None),  # type: ignore[arg-type]
    "has a node without an id": with_node(id=""),
    "has a node that uses nonsense": with_node(used=(("gpu", nan),)),
    "has a node with nonsense for labels": with_node(labels={"zone": 7}),
    "has a node that is idle since never": with_node(idle_since=nan),
    "has a node with a name that cannot be kept": with_node(id="\ud800"),
    "has a node that runs minus one task": with_node(tasks=-1),
    "has a word of no fence": lambda view: replace(view, acknowledged=(Acknowledgement("s", None, 0),)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("answer", VIEWS)
def test_a_view_that(world: World, answer: str) -> None:
    """... makes the workload unknown as a whole, and nothing shrinks until it is well again."""

    async def story() -> None:
        controller = await with_a_slice_each(world)
        world.work.looking = VIEWS[answer]
        await world.ticks(controller, 8, 10)
        assert problems(controller).keys() == {"workload"}
        assert len(world.instances) == 2
        world.work.looking = None
        await asyncio.sleep(6)
        await world.ticks(controller, 8, 10)
        assert problems(controller) == {}
        assert world.instances == {}

    leap(story())


def test_of_several_words_about_a_slice_the_one_for_the_newest_fence_counts_and_of_these_the_most_running() -> None:
    """One word a slice is what the journal keeps, so no decision may depend on the others."""
    words = [Acknowledgement("s", fence, running) for fence, running in ((2, 0), (3, 1), (3, 2), (1, 9), (3, 0))]
    work = Views()(WorkloadView(acknowledged=(*words, Acknowledgement("t", 1, 0))))
    assert work.view.acknowledged == (Acknowledgement("s", 3, 2), Acknowledgement("t", 1, 0))


def a_demand(**odd: Any) -> Demand:
    return replace(Demand("poison", (Bundle(TPUS),)), **odd)


POISON: dict[str, Any] = {
    "is text": "a demand",
    "has no id": a_demand(id=""),
    "has no bundles": a_demand(bundles=None),
    "needs nonsense": a_demand(bundles=(Bundle((("tpu", nan),)),)),  # type: ignore[arg-type]
    "needs text": a_demand(bundles=(Bundle("tpu"),)),  # type: ignore[arg-type]
    "needs less than nothing": a_demand(bundles=(Bundle((("tpu", -4000),)),)),
    "is there minus five times": a_demand(bundles=(Bundle(TPUS, -5),)),
    "is there half a time": a_demand(bundles=(Bundle(TPUS, 0.5),)),  # type: ignore[arg-type]
    "waits since never": a_demand(since=nan),
    "may go to nonsense": a_demand(where=("zone == 1",)),
    "prefers nonsense": a_demand(prefer=(None,)),
    "tolerates nonsense": a_demand(tolerates=("all",)),
    "is a gang of no kind": a_demand(gang="mob"),
    "has a priority of nothing": a_demand(priority=None),
    "needs more than there can be": a_demand(bundles=(Bundle((("tpu", 10**30),)),)),
    "is a gang of nobody": a_demand(bundles=(), gang=Gang.ANY),
    "is a gang of a billion": a_demand(bundles=(Bundle(TPUS, 10**9),), gang=Gang.SAME_SLICE),
    "is a gang that needs more than there can be": a_demand(bundles=(Bundle((("tpu", 2**59),), 99),), gang=Gang.ANY),
    "has a name that cannot be kept": a_demand(id="a\0b"),
    "has half a character for a name": a_demand(id="\ud800"),
    "may go where no text leads": a_demand(where=(Condition("zone", "==", ("\ud800",)),)),
}


@pytest.mark.parametrize("poison", POISON)
def test_one_poisoned_demand_among_a_thousand_that(world: World, poison: str) -> None:
    """... is left out alone, with a word about it in the journal or in the plan, and the others are served."""

    async def story() -> None:
        controller = world.controller()
        many = tuple(Demand(f"d{number:03}", (Bundle(TPUS),)) for number in range(999))
        world.work.looking = lambda view: replace(view, demands=(*many[:500], POISON[poison], *many[500:]))
        tick = await world.tick(controller)
        assert tick.plan is not None
        assert tick.plan.launch == {"good": 9}
        output = [entry.data["why"] for entry in tick.entries if entry.kind == "mistake"]
        waits = [one for one in tick.plan.waiting if one.reason.code == Code.INVALID_DEMAND]
        assert len(output) + len(waits) == 1
        assert problems(controller) == {}
        again = await world.tick(controller)
        assert [entry for entry in again.entries if entry.kind == "mistake"] == []

    leap(story())


def test_a_source_that_is_slow_but_within_its_limit_is_waited_for_once_and_then_counts(world: World) -> None:
    async def story() -> None:
        controller = world.controller()

        def slowly(view: WorkloadView) -> Awaitable[WorkloadView]:
            async def answer() -> WorkloadView:
                await asyncio.sleep(2)
                return view

            return answer()

        world.work.looking = slowly
        world.work.waiting = ["g1"]
        first = await world.tick(controller)
        assert first.plan is None
        await asyncio.sleep(2)
        second = await world.tick(controller)
        assert second.plan is not None
        assert world.clouds["solid"].bought != []
        assert problems(controller) == {}

    leap(story())


def test_an_observation_has_its_limit_even_if_its_pass_was_given_up(world: World) -> None:
    async def story() -> None:
        controller = world.controller()
        await world.ticks(controller, 1)
        world.clouds["shaky"].listing = hang
        given_up = asyncio.create_task(controller.tick())
        asyncio.get_running_loop().call_soon(given_up.cancel)  # when its looks have just begun
        await asyncio.wait([given_up])
        assert given_up.cancelled()
        await asyncio.sleep(6)
        world.clouds["shaky"].listing = None
        await world.ticks(controller, 2, 10)
        assert problems(controller) == {}

    leap(story())
