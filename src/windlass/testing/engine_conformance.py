"""What every engine of an elastic pool must do, as a suite of tests: inherit, give a stage, run pytest.

    class TestMyEngine(EngineConformance):
        alone = "my.module:MyEngine"

        def stage(self):
            return ProcessStage(MyEngine)

The tests of a class share one engine, because starting one may take seconds; each uses nodes and calls of its own.
"""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, ClassVar

from windlass.workloads.pool.engine import Call, Engine, NodeFacts
from windlass.workloads.pool.packing import (
    ResultTooLarge,
    ResultUnsendable,
    Shared,
    pack_arguments,
    pack_batch,
    pack_function,
    pack_value,
    unpack_value,
)

from .engine_alone import READY
from .engine_play import Play, batch_of
from .engine_stage import MARK, EngineStage, Heard, end_marked, marked, trace
from .waiting import eventually

MEGABYTE = 1 << 20


class NotAsWished(Exception):
    """An exception of the user's own, whose ``__init__`` does not take what ``args`` holds."""

    def __init__(self, wish: str, instead: str) -> None:
        super().__init__(f"wished for {wish}, got {instead}")
        self.wish = wish


class EngineConformance:
    """Inherit as ``TestSomething`` and give ``stage``."""

    patience: float = 60.0
    """Seconds within which anything must happen."""
    processes: bool = True
    """Whether slots are processes, so that a call can end its own, be waited for in its middle, and print by others."""
    alone: str = ""
    """MODULE:NAME of the engine's class, for the test that kills its program; empty: there is nothing to leave."""

    _runner: ClassVar[asyncio.Runner]
    _shared_stage: ClassVar[EngineStage]
    _shared_heard: ClassVar[Heard]
    _number: ClassVar[int] = 0

    def stage(self) -> EngineStage:
        """A stage with a fresh engine."""
        raise NotImplementedError("give a stage() that returns the engine under test on its stage")

    @staticmethod
    def loop() -> asyncio.AbstractEventLoop:
        """The event loop on which all runs."""
        return asyncio.new_event_loop()

    # -- one engine for all tests of a class ------------------------------------------------------------------------

    @classmethod
    def setup_class(cls) -> None:
        cls._runner = asyncio.Runner(loop_factory=cls.loop)
        cls._shared_stage, cls._shared_heard = cls._runner.run(_opened(cls().stage()))

    @classmethod
    def teardown_class(cls) -> None:
        async def end() -> None:
            await cls._shared_stage.engine.close()
            await cls._shared_stage.break_off()

        cls._runner.run(end())
        cls._runner.close()

    def _run(self, test: Callable[[Play], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            play = Play(self._shared_stage, self._shared_heard, self.patience)
            try:
                await test(play)
            finally:
                play.clear()

        self._runner.run(whole())

    # -- nodes ------------------------------------------------------------------------------------------------------

    def test_it_has_the_shape_of_an_engine(self) -> None:
        assert isinstance(self._shared_stage.engine, Engine)

    def test_a_node_joins_when_all_its_slots_are_there_and_tells_its_facts(self) -> None:
        async def test(play: Play) -> None:
            facts = await play.node(slots=2)
            assert facts.slots == 2
            assert facts.python == platform.python_version()
            assert facts.address
            assert len(play.heard.of(facts.node)) == 1

        self._run(test)

    def test_a_node_that_is_dismissed_leaves_and_the_others_stay(self) -> None:
        async def test(play: Play) -> None:
            one, other = await play.node(), await play.node()
            play.engine.dismiss(one.node)
            await play.until_left(one)
            assert await play.value(other, lambda: 7) == 7
            late = play.run(one, lambda: 8)
            assert (await play.outcome(late)).ending == "lost"

        self._run(test)

    def test_a_call_for_a_node_that_never_was_is_lost(self) -> None:
        async def test(play: Play) -> None:
            outcome = await play.outcome(play.run(NodeFacts("never", 1, "3", ""), lambda: 1))
            assert (outcome.ending, outcome.began) == ("lost", False)
            assert "never" in outcome.detail

        self._run(test)

    # -- what a call gives ------------------------------------------------------------------------------------------

    def test_a_closure_runs_with_its_arguments(self) -> None:
        async def test(play: Play) -> None:
            node, base = await play.node(), [10, 20]
            assert await play.value(node, lambda number, *, more: [*base, number + more], 1, more=2) == [10, 20, 3]

        self._run(test)

    def test_a_batch_gives_a_result_for_each_item_and_a_failure_spoils_no_other(self) -> None:
        async def test(play: Play) -> None:
            function = pack_function(lambda number: 12 // number)
            batch = pack_batch(function, [pack_arguments((number,)) for number in (3, 0, 4)])
            results = await play.results(play.call(await play.node(), batch))
            assert [result.kind for result in results] == ["plain", "error", "plain"]
            assert [results[0].value(), results[2].value()] == [4, 3]
            assert isinstance(results[1].error(), ZeroDivisionError)
            assert 0 < results.seconds < self.patience

        self._run(test)

    def test_an_exception_arrives_with_its_own_type_and_the_traceback_of_the_node(self) -> None:
        async def test(play: Play) -> None:
            def wish_for_the_moon() -> None:
                raise NotAsWished("the moon", "cheese")

            (result,) = await play.results(play.run(await play.node(), wish_for_the_moon))
            error = result.error()
            assert isinstance(error, NotAsWished)
            assert (error.wish, str(error)) == ("the moon", "wished for the moon, got cheese")
            assert "in wish_for_the_moon" in str(error.__cause__)

        self._run(test)

    def test_a_task_that_calls_exit_ends_itself_alone(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            (result,) = await play.results(play.run(node, lambda: sys.exit(3)))
            assert isinstance(result.error(), SystemExit)
            assert await play.value(node, lambda: 1) == 1

        self._run(test)

    def test_a_result_that_cannot_be_sent_is_told_in_words(self) -> None:
        async def test(play: Play) -> None:
            import threading

            (result,) = await play.results(play.run(await play.node(), lambda: threading.Lock()))
            assert isinstance(result.error(), ResultUnsendable)
            assert "lock" in str(result.error())

        self._run(test)

    def test_a_result_that_is_too_large_is_told_with_its_size_and_the_limit(self) -> None:
        async def test(play: Play) -> None:
            batch = pack_batch(pack_function(bytes), [pack_arguments((5000,))], limit=4000)
            (result,) = await play.results(play.call(await play.node(), batch))
            assert isinstance(result.error(), ResultTooLarge)
            assert "4,000" in str(result.error())

        self._run(test)

    def test_large_arguments_and_results_come_whole(self) -> None:
        async def test(play: Play) -> None:
            much = os.urandom(20 * MEGABYTE)
            assert await play.value(await play.node(), lambda data: data[::-1], much) == much[::-1]

        self._run(test)

    def test_a_generator_gives_its_values_one_by_one_and_what_it_returns_at_the_end(self) -> None:
        async def test(play: Play) -> None:
            def count(number: int) -> Any:
                yield from range(number)
                return "counted"

            call = play.run(await play.node(), count, 3)
            (result,) = await play.results(call)
            assert (result.kind, result.values, result.value()) == ("streamed", 3, "counted")
            blobs = [words[3] for words in play.heard.of(call) if words[0] == "yielded"]
            assert [unpack_value(blob) for blob in blobs] == [0, 1, 2]

        self._run(test)

    def test_what_is_yielded_and_printed_is_heard_while_the_call_runs(self) -> None:
        async def test(play: Play) -> None:
            go = str(play.stage.directory / "go-on")

            def slowly() -> Any:
                import time

                print("here I am")  # noqa: T201
                yield 1
                while not os.path.exists(go):  # noqa: PTH110  # runs on a node
                    time.sleep(0.01)

            call = play.run(await play.node(), slowly)
            await play.until(lambda: {words[0] for words in play.heard.of(call)} == {"began", "said", "yielded"})
            (play.stage.directory / "go-on").touch()
            assert (await play.outcome(call)).ending == "done"

        if self.processes:
            self._run(test)

    def test_lines_come_with_their_item_and_stream_and_before_the_end(self) -> None:
        async def test(play: Play) -> None:
            def speak(number: int) -> None:
                print(f"out {number}\nand again")  # noqa: T201
                print("unfinished", end="", file=sys.stderr)  # noqa: T201

            function = pack_function(speak)
            batch = pack_batch(function, [pack_arguments((number,)) for number in (0, 1)])
            call = play.call(await play.node(), batch)
            await play.outcome(call)
            kinds = [words[0] for words in play.heard.of(call)]
            assert kinds[0] == "began"
            assert kinds[-1] == "ended"
            for number in (0, 1):
                lines = [words[3:] for words in play.heard.of(call) if words[0] == "said" and words[2] == number]
                out = [line for stream, line in lines if stream == "stdout"]
                assert out == [f"out {number}", "and again"]
                assert [line for stream, line in lines if stream == "stderr"] == ["unfinished"]

        self._run(test)

    def test_what_a_program_prints_that_a_task_has_started_is_heard_too(self) -> None:
        async def test(play: Play) -> None:
            call = play.run(await play.node(), os.system, "echo from afar; echo and astray >&2")
            assert (await play.results(call))[0].value() == 0
            said = {words[3:] for words in play.heard.of(call) if words[0] == "said"}
            assert said == {("stdout", "from afar"), ("stderr", "and astray")}

        if self.processes:
            self._run(test)

    def test_the_environment_of_a_call_is_there_for_its_time_only(self) -> None:
        async def test(play: Play) -> None:
            nodes = [await play.node(), await play.node()]
            batch = batch_of(os.getenv, "RANK")
            calls = [play.call(node, batch, environment={"RANK": str(rank)}) for rank, node in enumerate(nodes)]
            assert [(await play.results(call))[0].value() for call in calls] == ["0", "1"]
            assert (await play.results(play.call(nodes[0], batch)))[0].value() is None

        self._run(test)

    def test_what_is_shared_is_found_by_every_call_and_each_has_its_own_copy(self) -> None:
        async def test(play: Play) -> None:
            def grow(things: Mapping[str, list[int]]) -> int:
                things["here"].append(4)
                return len(things["here"])

            play.engine.share("some-numbers", pack_value([1, 2, 3]))
            play.engine.share("the-function", pack_value(grow))
            node = await play.node(slots=2)
            arguments = pack_arguments(({"here": Shared("some-numbers")},))
            batch = pack_batch(Shared("the-function", keep=True), [arguments])
            needs = ("some-numbers", "the-function")
            calls = [play.call(node, batch, slot=slot, shared=needs) for slot in (0, 1, 0)]
            assert [(await play.results(call))[0].value() for call in calls] == [4, 4, 4]
            for name in needs:
                play.engine.unshare(name)
            assert await play.value(node, lambda: "goes on") == "goes on"

        self._run(test)

    # -- one after the other ----------------------------------------------------------------------------------------

    def test_a_slot_runs_its_calls_one_after_the_other_in_their_order(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            calls = [play.run(node, lambda: None) for _ in range(30)]
            for call in calls:
                await play.outcome(call)
            heard = [words[:2] for words in play.heard.words if words[1] in calls]
            assert heard == [(kind, call) for call in calls for kind in ("began", "ended")]

        self._run(test)

    def test_slots_run_at_the_same_time_and_a_call_behind_another_waits(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node(slots=2)
            first, second = play.hold(node, 0), play.hold(node, 1)
            behind = play.run(node, lambda: "at last")
            await play.until_began(first, second)
            assert play.heard.of(behind) == []
            play.stage.let_go(first)
            assert (await play.results(behind))[0].value() == "at last"
            assert play.heard.outcomes(second) == []
            play.stage.let_go(second)
            assert (await play.outcome(second)).ending == "done"

        self._run(test)

    def test_a_node_that_gets_nothing_more_ends_what_runs_with_exactly_one_start(self) -> None:
        async def test(play: Play) -> None:
            node, other = await play.node(), await play.node()
            call = play.hold(node)
            await play.until_began(call)
            for _ in range(5):  # the node drains: work goes to the other one
                assert await play.value(other, lambda: 1) == 1
            play.stage.let_go(call)
            assert (await play.outcome(call)).ending == "done"
            play.engine.dismiss(node.node)
            await play.until_left(node)
            assert play.starts(call) == 1
            assert [words[0] for words in play.heard.of(call)] == ["began", "ended"]

        self._run(test)

    # -- taking back and ending -------------------------------------------------------------------------------------

    def test_a_call_that_waits_can_be_revoked_and_never_starts(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            running, waiting = play.hold(node), play.hold(node)
            await play.until_began(running)
            play.engine.revoke(waiting)
            outcome = await play.outcome(waiting)
            assert (outcome.ending, outcome.began) == ("revoked", False)
            play.stage.let_go(running)
            assert await play.value(node, lambda: 1) == 1
            assert (play.starts(running), play.starts(waiting)) == (1, 0)

        self._run(test)

    def test_revoking_what_has_begun_or_ended_changes_nothing(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            call = play.hold(node)
            await play.until_began(call)
            play.engine.revoke(call)
            play.stage.let_go(call)
            assert (await play.outcome(call)).ending == "done"
            play.engine.revoke(call)
            play.engine.kill(call)
            assert await play.value(node, lambda: 1) == 1
            assert len(play.heard.outcomes(call)) == 1

        self._run(test)

    def test_a_call_that_is_revoked_at_once_is_either_revoked_or_done(self) -> None:
        async def test(play: Play) -> None:
            node, directory = await play.node(), str(play.stage.directory)
            for _ in range(10):
                call = play.name()
                play.give(Call(call, node.node, 0, batch_of(trace, directory, call)))
                play.engine.revoke(call)
                outcome = await play.outcome(call)
                assert outcome.ending in ("revoked", "done")
                assert play.starts(call) == (outcome.ending == "done")

        self._run(test)

    def test_killing_a_call_ends_it_alone_and_the_slot_comes_back(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node(slots=2)
            victim, behind, beside = play.hold(node), play.hold(node), play.hold(node, 1)
            await play.until_began(victim, beside)
            play.engine.kill(victim)
            assert (await play.outcome(victim)).ending == "killed"
            assert (await play.outcome(behind)).ending == "revoked"
            assert await play.value(node, lambda: "back") == "back"
            assert play.heard.outcomes(beside) == []
            play.stage.let_go(beside)
            assert (await play.outcome(beside)).ending == "done"
            assert len(play.heard.of(node.node)) == 1, "the node left, or joined twice"

        self._run(test)

    def test_a_kill_that_comes_too_late_hits_nobody_else(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            for _ in range(10):
                short, next_one = play.run(node, lambda: None), play.hold(node)
                await play.until_began(short)
                play.engine.kill(short)
                if (await play.outcome(short)).ending == "killed":
                    assert (await play.outcome(next_one)).ending == "revoked"
                    assert play.starts(next_one) == 0
                else:
                    await play.until_began(next_one)
                    play.engine.kill(next_one)
                    assert (await play.outcome(next_one)).ending == "killed"
                    assert play.starts(next_one) <= 1

        self._run(test)

    def test_killing_a_call_that_waits_leaves_the_one_that_runs_alone(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            running, waiting = play.hold(node), play.hold(node)
            await play.until_began(running)
            play.engine.kill(waiting)
            assert (await play.outcome(waiting)).ending == "revoked"
            play.stage.let_go(running)
            assert (await play.outcome(running)).ending == "done"

        self._run(test)

    def test_a_slot_can_be_killed_again_and_again(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            for _ in range(3):
                call = play.hold(node)
                await play.until_began(call)
                play.engine.kill(call)
                assert (await play.outcome(call)).ending == "killed"
            assert await play.value(node, lambda: 1) == 1

        self._run(test)

    # -- loss -------------------------------------------------------------------------------------------------------

    def test_a_host_that_is_killed_loses_its_calls_once_and_the_others_go_on(self) -> None:
        async def test(play: Play) -> None:
            node, other = await play.node(slots=2), await play.node()
            lost = [play.hold(node, 0), play.hold(node, 0), play.hold(node, 1)]  # the second waits behind the first
            kept = play.hold(other)
            await play.until_began(lost[0], lost[2], kept)
            await play.stage.kill_host(node.node)
            await play.until_left(node)
            assert [play.heard.outcomes(call)[0].ending for call in lost] == ["lost"] * 3
            assert [play.heard.outcomes(call)[0].began for call in lost] == [True, False, True]
            assert play.heard.words.index(play.heard.of(node.node)[-1]) > max(
                play.heard.words.index(play.heard.of(call)[-1]) for call in lost
            ), "left is told after the end of the calls"
            if self.processes:
                await play.until_dead(*lost)
            for call in (*lost, kept):
                play.stage.let_go(call)
            assert (await play.outcome(kept)).ending == "done"
            assert await play.value(other, lambda: 1) == 1
            assert play.starts(lost[1]) == 0
            assert all(len(play.heard.outcomes(call)) == 1 and play.starts(call) <= 1 for call in (*lost, kept))

        self._run(test)

    def test_a_slot_that_dies_takes_its_node_along_and_says_how(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node(slots=2)
            beside = play.hold(node, 1)
            await play.until_began(beside)
            call = play.run(node, os._exit, 5)
            await play.until_left(node)
            assert {play.heard.outcomes(one)[0].ending for one in (call, beside)} == {"lost"}
            assert "slot 0" in play.heard.of(node.node)[-1][2]

        if self.processes:
            self._run(test)

    def test_dismissing_a_busy_node_loses_its_calls(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            calls = [play.hold(node), play.hold(node)]
            await play.until_began(calls[0])
            play.engine.dismiss(node.node)
            await play.until_left(node)
            assert [play.heard.outcomes(call)[0].ending for call in calls] == ["lost", "lost"]

        self._run(test)

    # -- the end ----------------------------------------------------------------------------------------------------

    def test_closing_ends_every_call_and_leaves_no_process(self) -> None:
        async def test() -> None:
            stage, heard = await _opened(self.stage())
            play = Play(stage, heard, self.patience)
            try:
                call = play.hold(await play.node(slots=2))
                await play.until_began(call)
                await stage.engine.close()
                assert [outcome.ending for outcome in heard.outcomes(call)] == ["lost"]
                await eventually(stage.leftovers, lambda left: not left, within=self.patience)
            finally:
                await stage.engine.close()
                await stage.break_off()

        self._runner.run(test())

    def test_a_program_killed_with_its_engine_leaves_no_process(self) -> None:
        async def test() -> None:
            mark = f"alone-{os.getpid()}"
            program = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "windlass.testing.engine_alone", self.alone),
                stdout=subprocess.PIPE,
                env={**os.environ, MARK: mark},
            )

            async def left() -> list[tuple[int, str]]:
                return marked(mark)

            try:
                assert program.stdout is not None
                async with asyncio.timeout(self.patience):
                    assert (await program.stdout.readline()).decode().strip() == READY
                assert len(await left()) > 2, "there is nothing to leave behind"
            finally:
                with suppress(ProcessLookupError):
                    program.kill()
                await program.wait()
            try:
                await eventually(left, lambda found: not found, within=self.patience)
            finally:
                end_marked(mark)

        if self.alone:
            self._runner.run(test())


async def _opened(stage: EngineStage) -> tuple[EngineStage, Heard]:
    heard = Heard()
    await stage.engine.start(heard)
    return stage, heard
