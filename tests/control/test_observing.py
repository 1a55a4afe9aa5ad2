"""Sources are observed concurrently; one with an immediate answer needs no task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
        (lambda: Completed((7,)), "gave an invalid answer: its list holds 7, which is no instance"),
    ],
)
def test_a_source_that_fails_at_once_is_unknown_and_says_why(listing: Callable[[], Any], problem: str) -> None:
    look, _ = looked(listing)
    assert look.instances == {"cloud": None}
    assert look.work is not None
    assert look.problems == {"provider cloud": problem}


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
