"""Sources are observed concurrently; one with an immediate answer needs no task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.control.clocks import leap
from windlass.control.observe.completed import Completed
from windlass.control.observe.observer import Observation, Observer
from windlass.providers.protocol import Host, Instance, ProviderError
from windlass.workloads.protocol import WorkloadView

HERE = Instance("a", "gpu", "running", (Host("a/0"),))


class Source:
    """A provider or a workload that answers as it is told to."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.list = self.observe = answer


async def in_time() -> tuple[Instance, ...]:
    await asyncio.sleep(0.1)
    return (HERE,)


def at_hand() -> Completed[tuple[Instance, ...]]:
    return Completed((HERE,))


def refused() -> Any:
    raise ProviderError("the API is down")


def looked(listing: Callable[[], Any], looks: int = 1) -> tuple[Observation, int]:
    """The last of some looks, and how many tasks were made for all of them."""
    made = 0

    async def story() -> Observation:
        def counted(loop: asyncio.AbstractEventLoop, coroutine: Any, **more: Any) -> asyncio.Task[Any]:
            nonlocal made
            made += 1
            return asyncio.Task(coroutine, loop=loop, **more)

        loop = asyncio.get_running_loop()
        provider, work = Source(listing), Source(lambda: Completed(WorkloadView()))
        observer = Observer({"cloud": provider}, work, lambda: 5.0, loop.time)  # type: ignore[arg-type, dict-item]
        loop.set_task_factory(counted)
        for _ in range(looks):
            look = await observer.observe()
        loop.set_task_factory(None)
        return look

    return leap(story()), made


@pytest.mark.parametrize(("listing", "tasks"), [(at_hand, 0), (in_time, 3)])
def test_only_a_slow_observation_gets_a_task(listing: Callable[[], Any], tasks: int) -> None:
    look, made = looked(listing, looks=3)
    assert look.instances == {"cloud": {"a": HERE}}
    assert (look.problems, made) == ({}, tasks)


@pytest.mark.parametrize(
    ("listing", "problem"),
    [
        (refused, "the API is down"),
        (lambda: Completed((7,)), "gave an invalid answer: its list holds 7, which is not an instance"),
    ],
)
def test_a_source_that_fails_at_once_is_unknown_and_says_why(listing: Callable[[], Any], problem: str) -> None:
    look, _ = looked(listing)
    assert look.instances == {"cloud": None}
    assert look.work is not None
    assert look.problems == {"provider cloud": problem}


def observed_in_turn(provider: Any, passes: int) -> list[Observation]:
    async def story() -> list[Observation]:
        work = Source(lambda: Completed(WorkloadView()))
        observer = Observer({"cloud": provider}, work, lambda: 5.0, asyncio.get_running_loop().time)  # type: ignore[arg-type]
        return [await observer.observe() for _ in range(passes)]

    return leap(story())


def test_trouble_is_reported_as_long_as_the_list_shows_it() -> None:
    ill, other = replace(HERE, trouble="disk"), replace(HERE, slice_id="b", trouble="fan")
    lists = iter([(HERE,), (ill,), (ill, other), (HERE, other), (HERE,), ()])
    found = [one.problems for one in observed_in_turn(Source(lambda: Completed(next(lists))), 6)]
    a, b = {"slice a": "disk"}, {"slice b": "fan"}
    assert found == [{}, a, a | b, b, {}, {}]


def test_a_provider_is_asked_about_exactly_the_slices_that_left_its_list() -> None:
    other, third = replace(HERE, slice_id="b"), replace(HERE, slice_id="c")
    again = replace(HERE)
    lists = iter(
        [
            (HERE, other, third),
            (again, third),  # an equal object is the same slice
            (again, again, third),  # listed twice: the list is invalid
            (again, third),
            None,
            {"c": third},
            [third],
        ]
    )
    asked = []

    class Remembering(Source):
        def bind(self, cluster: Any) -> None: ...

        async def launch(self, order: Any, epoch: int) -> None: ...

        async def terminate(self, slice_id: str, epoch: int) -> None: ...

        async def offerings(self) -> tuple[()]:
            return ()

        async def close(self) -> None: ...

        def confirm_ended(self, slice_ids: Any) -> Completed[tuple[()]]:
            asked.append(sorted(slice_ids))
            return Completed(())

    observed_in_turn(Remembering(lambda: Completed(next(lists))), 7)
    assert asked == [["b"], ["a"]]


def test_a_completed_answer_can_be_awaited_like_any_other() -> None:
    async def story() -> tuple[Any, Any]:
        return await at_hand(), await asyncio.create_task(at_hand())

    assert leap(story()) == ((HERE,), (HERE,))


def test_cancelling_a_completed_answer_raises() -> None:
    answered = at_hand()
    with pytest.raises(asyncio.CancelledError):
        answered.throw(asyncio.CancelledError())
    answered.close()


@pytest.mark.parametrize("prompt", [True, False])
def test_a_workload_whose_calls_take_milliseconds_is_unknown_while_one_takes_long(prompt: bool) -> None:
    """So nothing is released because of an answer from before it stopped."""

    async def story() -> None:
        loop, waits = asyncio.get_running_loop(), 0.01

        async def slowly() -> WorkloadView:
            await asyncio.sleep(waits)
            return WorkloadView()

        work = Source(slowly)
        work.answers_promptly = prompt  # type: ignore[attr-defined]
        late = asyncio.Event()
        observer = Observer({}, work, lambda: 5.0, loop.time, late.set)  # type: ignore[arg-type]
        assert (await observer.observe()).work is not None
        waits = 0.9
        look = await observer.observe()
        assert (look.work is None, look.problems, look.awaited == {"workload"}) == (prompt, {}, prompt)
        # Its late answer counts. Where every call takes this long, the last answer stays in use.
        await late.wait()
        for _ in range(3):
            assert (await observer.observe()).work is not None
            await asyncio.sleep(0.5)
        await observer.close()

    leap(story())
