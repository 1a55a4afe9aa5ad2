"""This suite tests what every engine of an elastic pool must do: inherit, give a stage, run pytest.

    class TestMyEngine(EngineConformance):
        alone = "my.module:MyEngine"

        def stage(self):
            return ProcessStage(MyEngine)

The tests of a class share one engine and its nodes, because starting one may take seconds; each uses calls of its own,
and a node of its own if it breaks it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import subprocess
import sys
import time
from contextlib import suppress
from mmap import mmap
from pathlib import Path

from windlass.pool.engines.protocol import Call, Engine, NodeFacts
from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.serialization import (
    Shared,
    pack_arguments,
    pack_batch,
    pack_function,
    pack_shared,
    result_of,
    unpack_results,
)
from windlass.testing.eventually import eventually

from .expected import EngineAnswers
from .fixture import MARK, end_marked, marked, trace
from .run_case import Play, batch_of
from .suite import opened
from .without_pytest import READY


def _be_killed() -> None:
    """As by the kernel when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def _filled(value: bytes, number: int) -> bytes:
    return bytes([number]) * len(value)


class EngineConformance(EngineAnswers):
    """Inherit as ``TestSomething`` and give ``stage``."""

    # -- nodes ------------------------------------------------------------------------------------------------------

    def test_it_has_the_shape_of_an_engine(self) -> None:
        assert isinstance(self._shared_stage.engine, Engine)

    def test_a_node_joins_when_all_its_slots_are_there_and_tells_its_facts(self) -> None:
        async def test(play: Play) -> None:
            facts = await play.node(slots=2, own=True)
            assert facts.slots == 2
            assert facts.python == platform.python_version()
            assert facts.address
            assert len(play.heard.of(facts.node)) == 1

        self._run(test)

    def test_a_node_that_is_dismissed_leaves_and_the_others_stay(self) -> None:
        async def test(play: Play) -> None:
            one, other = await play.node(own=True), await play.node()
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

    # -- one after the other ----------------------------------------------------------------------------------------

    def test_a_slot_runs_its_calls_one_after_the_other_in_their_order(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node()
            calls = [play.run(node, lambda: None) for _ in range(30)]
            for call in calls:
                await play.outcome(call)
            heard = [words[:2] for words in play.heard.words if words[1] in calls and words[0] != "progressed"]
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
            node, other = await play.node(own=True), await play.node()
            call = play.hold(node)
            await play.until_began(call)
            for _ in range(5):  # the node drains: work goes to the other one
                assert await play.value(other, lambda: 1) == 1
            play.stage.let_go(call)
            assert (await play.outcome(call)).ending == "done"
            play.engine.dismiss(node.node)
            await play.until_left(node)
            assert play.starts(call) == 1
            assert [words[0] for words in play.heard.of(call) if words[0] != "progressed"] == ["began", "ended"]

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

    def test_a_kill_that_comes_too_late_hits_no_other(self) -> None:
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
            node, other = await play.node(slots=2, own=True), await play.node()
            lost = [play.hold(node, 0), play.hold(node, 0), play.hold(node, 1)]  # the second waits behind the first
            kept = play.hold(other)
            await play.until_began(lost[0], lost[2], kept)
            await play.stage.kill_host(node.node)
            await play.until_left(node)
            assert [play.heard.outcomes(call)[0].ending for call in lost] == ["lost"] * 3
            assert [play.heard.outcomes(call)[0].began for call in lost] == [True, False, True]
            assert play.heard.words.index(play.heard.of(node.node)[-1]) > max(
                play.heard.words.index(play.heard.of(call)[-1]) for call in lost
            ), "left comes after the end of the calls"
            if self.processes:
                await play.until_dead(*lost)
            for call in (*lost, kept):
                play.stage.let_go(call)
            assert (await play.outcome(kept)).ending == "done"
            assert await play.value(other, lambda: 1) == 1
            assert play.starts(lost[1]) == 0
            assert all(len(play.heard.outcomes(call)) == 1 and play.starts(call) <= 1 for call in (*lost, kept))

        self._run(test)

    def test_a_slot_that_dies_comes_back_and_neither_its_neighbours_nor_its_next_call_are_touched(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node(slots=2)
            beside = play.hold(node, 1)
            await play.until_began(beside)
            for function, argument in ((os._exit, 5), (os.abort, None), (_be_killed, None)):
                call = play.run(node, function, *(() if argument is None else (argument,)))
                outcome = await play.outcome(call)
                assert (outcome.ending, outcome.began) == ("crashed", True)
                assert "slot 0" in outcome.detail
                assert await play.value(node, lambda: "back") == "back"
            os.kill(await play.value(node, os.getpid), signal.SIGKILL)
            call = play.run(node, len, "word")  # for a process that died while it was idle
            outcome = await play.outcome(call)
            assert outcome.ending == "done" or not outcome.began, "a call that did not run must not be charged"
            assert play.heard.outcomes(beside) == []
            play.stage.let_go(beside)
            assert (await play.outcome(beside)).ending == "done"

        if self.processes:
            self._run(test)

    def test_a_crash_in_a_batch_keeps_the_results_before_it_and_begins_none_after_it(self) -> None:
        async def test(play: Play) -> None:
            directory = str(play.stage.directory)
            call = play.name()

            def step(number: int) -> int:
                trace(directory, f"{call}.{number}")
                if number == 2:
                    time.sleep(0.2)  # so that what came before has been sent
                    os._exit(1)
                return number

            items = [pack_arguments((number,)) for number in range(5)]
            batch = pack_batch(pack_function(step), items)
            node = await play.node()
            play.give(Call(call, node.node, 0, batch, {}, 5))
            outcome = await play.outcome(call)
            assert (outcome.ending, outcome.began) == ("crashed", True)
            assert [result_of(raw).value() for raw in unpack_results(play.heard.results(call))] == [0, 1]
            assert [play.starts(f"{call}.{number}") for number in range(5)] == [1, 1, 1, 0, 0]

        if self.processes:
            self._run(test)

    # -- batches ----------------------------------------------------------------------------------------------------

    def test_the_results_of_a_batch_come_one_by_one_while_it_runs(self) -> None:
        async def test(play: Play) -> None:
            call = self._batch_that_waits(play, await play.node(), 4, waits=2)
            await play.until(lambda: len(play.heard.results(call)) == 2)
            assert play.heard.outcomes(call) == []
            play.stage.let_go(call)
            assert [result.value() for result in await play.results(call)] == [0, 1, 2, 3]

        if self.processes:
            self._run(test)

    def test_items_that_have_not_begun_are_taken_back_and_never_start(self) -> None:
        async def test(play: Play) -> None:
            call = self._batch_that_waits(play, await play.node(), 50, waits=1)
            await play.until(lambda: len(play.heard.results(call)) == 1)
            play.engine.revoke(call)
            await play.until(lambda: any(words[0] == "shortened" for words in play.heard.of(call)))
            assert [words[2] for words in play.heard.of(call) if words[0] == "shortened"] == [2]
            play.stage.let_go(call)
            assert [result.value() for result in await play.results(call)] == [0, 1]
            assert [play.starts(f"{call}.{number}") for number in range(4)] == [1, 1, 0, 0]

        if self.processes:
            self._run(test)

    def _batch_that_waits(self, play: Play, node: NodeFacts, items: int, *, waits: int) -> str:
        """A call whose item number ``waits`` runs until it is let go."""
        directory, call = str(play.stage.directory), play.name()

        def step(number: int) -> int:
            trace(directory, f"{call}.{number}")
            while number == waits and not Path(directory, f"{call}.go").exists():
                time.sleep(0.01)
            return number

        batch = pack_batch(pack_function(step), [pack_arguments((number,)) for number in range(items)])
        return play.give(Call(call, node.node, 0, batch, {}, items))

    # -- large values -----------------------------------------------------------------------------------------------

    def test_a_large_value_is_read_by_every_slot_and_large_results_come_back_as_files(self) -> None:
        async def test(play: Play) -> None:
            store = DataStore(Path(play.stage.directory) / "values")
            try:
                name = store.put(pack_shared(bytes(1 << 20)))
                items = [pack_arguments((Shared(name, store.path(name)), number)) for number in (1, 2)]
                node, calls = await play.node(slots=2), [play.name(), play.name()]
                for slot, call in enumerate(calls):
                    batch = pack_batch(pack_function(_filled), items, place=store.place, call=call)
                    play.give(Call(call, node.node, slot, batch, {}, 2))
                for call in calls:
                    results = await play.results(call)
                    assert all(isinstance(result.content, mmap) for result in results), "it came as a message"
                    assert [result.value() for result in results] == [bytes([n]) * (1 << 20) for n in (1, 2)]
                left = [one.name for one in store.directory.iterdir() if one.name.startswith("r-")]
                assert left == [], "the file of a result goes when it is read"
            finally:
                store.close()

        self._run(test)

    # -- hanging ----------------------------------------------------------------------------------------------------

    def test_a_host_that_hangs_falls_silent_and_is_heard_again_when_it_goes_on(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node(own=True)
            play.stage.stop_host(node.node)
            await play.until(lambda: play.heard.of(node.node)[-1][0] == "silent")
            play.stage.resume_host(node.node)
            await play.until(lambda: play.heard.of(node.node)[-1][0] == "heard")
            assert await play.value(node, lambda: 1) == 1

        if self.processes:
            self._run(test)

    def test_a_node_that_was_abandoned_has_left_and_its_late_results_are_not_taken(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node(own=True)
            call = play.hold(node)
            await play.until_began(call)
            play.stage.stop_host(node.node)
            play.engine.abandon(node.node, "it hangs")
            await play.until_left(node)
            assert [outcome.ending for outcome in play.heard.outcomes(call)] == ["lost"]
            play.stage.let_go(call)
            play.stage.resume_host(node.node)
            await play.until_dead(call)
            assert len(play.heard.outcomes(call)) == 1
            assert play.heard.of(node.node)[-1][0] == "left"

        if self.processes:
            self._run(test)

    def test_dismissing_a_busy_node_loses_its_calls(self) -> None:
        async def test(play: Play) -> None:
            node = await play.node(own=True)
            calls = [play.hold(node), play.hold(node)]
            await play.until_began(calls[0])
            play.engine.dismiss(node.node)
            await play.until_left(node)
            assert [play.heard.outcomes(call)[0].ending for call in calls] == ["lost", "lost"]

        self._run(test)

    # -- the end ----------------------------------------------------------------------------------------------------

    def test_closing_ends_every_call_and_leaves_no_process(self) -> None:
        async def test() -> None:
            stage, heard = await opened(self.stage())
            play = Play(stage, heard, self.patience)
            try:
                call = play.hold(await play.node(slots=2, own=True))
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
                *(sys.executable, "-m", "windlass.testing.engine.without_pytest", self.alone),
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
