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
from .run_case import CaseRun, batch_of
from .suite import opened
from .without_pytest import READY


def _be_killed() -> None:
    """Kill the process, as the kernel does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def _filled(value: bytes, number: int) -> bytes:
    return bytes([number]) * len(value)


class EngineConformance(EngineAnswers):
    """Inherit as ``TestSomething`` and give ``stage``."""

    # -- nodes ------------------------------------------------------------------------------------------------------

    def test_it_has_the_shape_of_an_engine(self) -> None:
        assert isinstance(self._shared_stage.engine, Engine)

    def test_a_node_joins_when_all_its_slots_are_there_and_tells_its_facts(self) -> None:
        async def test(case: CaseRun) -> None:
            facts = await case.node(slots=2, own=True)
            assert facts.slots == 2
            assert facts.python == platform.python_version()
            assert facts.address
            assert len(case.events.of(facts.node)) == 1

        self._run(test)

    def test_a_call_on_this_machine_runs_in_the_working_directory_of_the_program(self) -> None:
        async def test(case: CaseRun) -> None:
            assert await case.value(await case.node(), os.getcwd) == os.getcwd()  # noqa: PTH109

        self._run(test)

    def test_a_node_that_is_dismissed_leaves_and_the_others_stay(self) -> None:
        async def test(case: CaseRun) -> None:
            one, other = await case.node(own=True), await case.node()
            case.engine.dismiss(one.node)
            await case.until_left(one)
            assert await case.value(other, lambda: 7) == 7
            late = case.run(one, lambda: 8)
            assert (await case.outcome(late)).ending == "lost"

        self._run(test)

    def test_a_call_for_a_node_that_never_was_is_lost(self) -> None:
        async def test(case: CaseRun) -> None:
            outcome = await case.outcome(case.run(NodeFacts("never", 1, "3", ""), lambda: 1))
            assert (outcome.ending, outcome.began) == ("lost", False)
            assert "never" in outcome.detail

        self._run(test)

    # -- one after the other ----------------------------------------------------------------------------------------

    def test_a_slot_runs_its_calls_one_after_the_other_in_their_order(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node()
            calls = [case.run(node, lambda: None) for _ in range(30)]
            for call in calls:
                await case.outcome(call)
            events = [event[:2] for event in case.events.all if event[1] in calls and event[0] != "progressed"]
            assert events == [(kind, call) for call in calls for kind in ("began", "ended")]

        self._run(test)

    def test_slots_run_at_the_same_time_and_a_call_behind_another_waits(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node(slots=2)
            first, second = case.hold(node, 0), case.hold(node, 1)
            behind = case.run(node, lambda: "at last")
            await case.until_began(first, second)
            assert case.events.of(behind) == []
            case.stage.let_go(first)
            assert (await case.results(behind))[0].value() == "at last"
            assert case.events.outcomes(second) == []
            case.stage.let_go(second)
            assert (await case.outcome(second)).ending == "done"

        self._run(test)

    def test_a_node_that_gets_nothing_more_ends_what_runs_with_exactly_one_start(self) -> None:
        async def test(case: CaseRun) -> None:
            node, other = await case.node(own=True), await case.node()
            call = case.hold(node)
            await case.until_began(call)
            for _ in range(5):  # the node drains: work goes to the other one
                assert await case.value(other, lambda: 1) == 1
            case.stage.let_go(call)
            assert (await case.outcome(call)).ending == "done"
            case.engine.dismiss(node.node)
            await case.until_left(node)
            assert case.starts(call) == 1
            assert [event[0] for event in case.events.of(call) if event[0] != "progressed"] == ["began", "ended"]

        self._run(test)

    # -- taking back and ending -------------------------------------------------------------------------------------

    def test_a_call_that_waits_can_be_revoked_and_never_starts(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node()
            running, waiting = case.hold(node), case.hold(node)
            await case.until_began(running)
            case.engine.revoke(waiting)
            outcome = await case.outcome(waiting)
            assert (outcome.ending, outcome.began) == ("revoked", False)
            case.stage.let_go(running)
            assert await case.value(node, lambda: 1) == 1
            assert (case.starts(running), case.starts(waiting)) == (1, 0)

        self._run(test)

    def test_revoking_what_has_begun_or_ended_changes_nothing(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node()
            call = case.hold(node)
            await case.until_began(call)
            case.engine.revoke(call)
            case.stage.let_go(call)
            assert (await case.outcome(call)).ending == "done"
            case.engine.revoke(call)
            case.engine.kill(call)
            assert await case.value(node, lambda: 1) == 1
            assert len(case.events.outcomes(call)) == 1

        self._run(test)

    def test_a_call_that_is_revoked_at_once_is_either_revoked_or_done(self) -> None:
        async def test(case: CaseRun) -> None:
            node, directory = await case.node(), str(case.stage.directory)
            for _ in range(10):
                call = case.name()
                case.give(Call(call, node.node, 0, batch_of(trace, directory, call)))
                case.engine.revoke(call)
                outcome = await case.outcome(call)
                assert outcome.ending in ("revoked", "done")
                assert case.starts(call) == (outcome.ending == "done")

        self._run(test)

    def test_killing_a_call_ends_it_alone_and_the_slot_comes_back(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node(slots=2)
            victim, behind, beside = case.hold(node), case.hold(node), case.hold(node, 1)
            await case.until_began(victim, beside)
            case.engine.kill(victim)
            assert (await case.outcome(victim)).ending == "killed"
            assert (await case.outcome(behind)).ending == "revoked"
            assert await case.value(node, lambda: "back") == "back"
            assert case.events.outcomes(beside) == []
            case.stage.let_go(beside)
            assert (await case.outcome(beside)).ending == "done"
            assert len(case.events.of(node.node)) == 1, "the node left, or joined twice"

        self._run(test)

    def test_a_kill_that_comes_too_late_hits_no_other(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node()
            for _ in range(10):
                short, next_one = case.run(node, lambda: None), case.hold(node)
                await case.until_began(short)
                case.engine.kill(short)
                if (await case.outcome(short)).ending == "killed":
                    assert (await case.outcome(next_one)).ending == "revoked"
                    assert case.starts(next_one) == 0
                else:
                    await case.until_began(next_one)
                    case.engine.kill(next_one)
                    assert (await case.outcome(next_one)).ending == "killed"
                    assert case.starts(next_one) <= 1

        self._run(test)

    def test_killing_a_call_that_waits_leaves_the_one_that_runs_alone(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node()
            running, waiting = case.hold(node), case.hold(node)
            await case.until_began(running)
            case.engine.kill(waiting)
            assert (await case.outcome(waiting)).ending == "revoked"
            case.stage.let_go(running)
            assert (await case.outcome(running)).ending == "done"

        self._run(test)

    def test_a_slot_can_be_killed_again_and_again(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node()
            for _ in range(3):
                call = case.hold(node)
                await case.until_began(call)
                case.engine.kill(call)
                assert (await case.outcome(call)).ending == "killed"
            assert await case.value(node, lambda: 1) == 1

        self._run(test)

    # -- loss -------------------------------------------------------------------------------------------------------

    def test_a_host_that_is_killed_loses_its_calls_once_and_the_others_go_on(self) -> None:
        async def test(case: CaseRun) -> None:
            node, other = await case.node(slots=2, own=True), await case.node()
            lost = [case.hold(node, 0), case.hold(node, 0), case.hold(node, 1)]  # the second waits behind the first
            kept = case.hold(other)
            await case.until_began(lost[0], lost[2], kept)
            await case.stage.kill_host(node.node)
            await case.until_left(node)
            assert [case.events.outcomes(call)[0].ending for call in lost] == ["lost"] * 3
            assert [case.events.outcomes(call)[0].began for call in lost] == [True, False, True]
            assert case.events.all.index(case.events.of(node.node)[-1]) > max(
                case.events.all.index(case.events.of(call)[-1]) for call in lost
            ), "left comes after the end of the calls"
            if self.processes:
                await case.until_dead(*lost)
            for call in (*lost, kept):
                case.stage.let_go(call)
            assert (await case.outcome(kept)).ending == "done"
            assert await case.value(other, lambda: 1) == 1
            assert case.starts(lost[1]) == 0
            assert all(len(case.events.outcomes(call)) == 1 and case.starts(call) <= 1 for call in (*lost, kept))

        self._run(test)

    def test_a_slot_that_dies_comes_back_and_neither_its_neighbours_nor_its_next_call_are_touched(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node(slots=2)
            beside = case.hold(node, 1)
            await case.until_began(beside)
            for function, argument in ((os._exit, 5), (os.abort, None), (_be_killed, None)):
                call = case.run(node, function, *(() if argument is None else (argument,)))
                outcome = await case.outcome(call)
                assert (outcome.ending, outcome.began) == ("crashed", True)
                assert "slot 0" in outcome.detail
                assert await case.value(node, lambda: "back") == "back"
            os.kill(await case.value(node, os.getpid), signal.SIGKILL)
            call = case.run(node, len, "word")  # for a process that died while it was idle
            outcome = await case.outcome(call)
            assert outcome.ending == "done" or not outcome.began, "a call that did not run must not be charged"
            assert case.events.outcomes(beside) == []
            case.stage.let_go(beside)
            assert (await case.outcome(beside)).ending == "done"

        if self.processes:
            self._run(test)

    def test_a_crash_in_a_batch_keeps_the_results_before_it_and_begins_none_after_it(self) -> None:
        async def test(case: CaseRun) -> None:
            directory = str(case.stage.directory)
            call = case.name()

            def step(number: int) -> int:
                trace(directory, f"{call}.{number}")
                if number == 2:
                    time.sleep(0.2)  # so that what came before has been sent
                    os._exit(1)
                return number

            items = [pack_arguments((number,)) for number in range(5)]
            batch = pack_batch(pack_function(step), items)
            node = await case.node()
            case.give(Call(call, node.node, 0, batch, {}, 5))
            outcome = await case.outcome(call)
            assert (outcome.ending, outcome.began) == ("crashed", True)
            assert [result_of(raw).value() for raw in unpack_results(case.events.results(call))] == [0, 1]
            assert [case.starts(f"{call}.{number}") for number in range(5)] == [1, 1, 1, 0, 0]

        if self.processes:
            self._run(test)

    # -- batches ----------------------------------------------------------------------------------------------------

    def test_the_results_of_a_batch_come_one_by_one_while_it_runs(self) -> None:
        async def test(case: CaseRun) -> None:
            call = self._batch_that_waits(case, await case.node(), 4, waits=2)
            await case.until(lambda: len(case.events.results(call)) == 2)
            assert case.events.outcomes(call) == []
            case.stage.let_go(call)
            assert [result.value() for result in await case.results(call)] == [0, 1, 2, 3]

        if self.processes:
            self._run(test)

    def test_items_that_have_not_begun_are_taken_back_and_never_start(self) -> None:
        async def test(case: CaseRun) -> None:
            call = self._batch_that_waits(case, await case.node(), 50, waits=1)
            await case.until(lambda: len(case.events.results(call)) == 1)
            case.engine.revoke(call)
            await case.until(lambda: any(event[0] == "shortened" for event in case.events.of(call)))
            assert [event[2] for event in case.events.of(call) if event[0] == "shortened"] == [2]
            case.stage.let_go(call)
            assert [result.value() for result in await case.results(call)] == [0, 1]
            assert [case.starts(f"{call}.{number}") for number in range(4)] == [1, 1, 0, 0]

        if self.processes:
            self._run(test)

    def _batch_that_waits(self, case: CaseRun, node: NodeFacts, items: int, *, waits: int) -> str:
        """Return a call whose item number ``waits`` runs until it is let go."""
        directory, call = str(case.stage.directory), case.name()

        def step(number: int) -> int:
            trace(directory, f"{call}.{number}")
            while number == waits and not Path(directory, f"{call}.go").exists():
                time.sleep(0.01)
            return number

        batch = pack_batch(pack_function(step), [pack_arguments((number,)) for number in range(items)])
        return case.give(Call(call, node.node, 0, batch, {}, items))

    # -- large values -----------------------------------------------------------------------------------------------

    def test_a_large_value_is_read_by_every_slot_and_large_results_come_back_as_files(self) -> None:
        async def test(case: CaseRun) -> None:
            store = DataStore(Path(case.stage.directory) / "values")
            try:
                name = store.put(pack_shared(bytes(1 << 20)))
                items = [pack_arguments((Shared(name, store.path(name)), number)) for number in (1, 2)]
                node, calls = await case.node(slots=2), [case.name(), case.name()]
                for slot, call in enumerate(calls):
                    batch = pack_batch(pack_function(_filled), items, place=store.place, call=call)
                    case.give(Call(call, node.node, slot, batch, {}, 2))
                for call in calls:
                    results = await case.results(call)
                    assert all(isinstance(result.content, mmap) for result in results), "it came as a message"
                    assert [result.value() for result in results] == [bytes([n]) * (1 << 20) for n in (1, 2)]
                left = [one.name for one in store.directory.iterdir() if one.name.startswith("r-")]
                assert left == [], "the file of a result goes when it is read"
            finally:
                store.close()

        self._run(test)

    # -- hanging ----------------------------------------------------------------------------------------------------

    def test_a_host_that_hangs_falls_silent_and_is_heard_again_when_it_goes_on(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node(own=True)
            case.stage.stop_host(node.node)
            await case.until(lambda: case.events.of(node.node)[-1][0] == "silent")
            case.stage.resume_host(node.node)
            await case.until(lambda: case.events.of(node.node)[-1][0] == "heard")
            assert await case.value(node, lambda: 1) == 1

        if self.processes:
            self._run(test)

    def test_a_node_that_was_abandoned_has_left_and_its_late_results_are_not_taken(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node(own=True)
            call = case.hold(node)
            await case.until_began(call)
            case.stage.stop_host(node.node)
            case.engine.abandon(node.node, "it hangs")
            await case.until_left(node)
            assert [outcome.ending for outcome in case.events.outcomes(call)] == ["lost"]
            case.stage.let_go(call)
            case.stage.resume_host(node.node)
            await case.until_dead(call)
            assert len(case.events.outcomes(call)) == 1
            assert case.events.of(node.node)[-1][0] == "left"

        if self.processes:
            self._run(test)

    def test_dismissing_a_busy_node_loses_its_calls(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node(own=True)
            calls = [case.hold(node), case.hold(node)]
            await case.until_began(calls[0])
            case.engine.dismiss(node.node)
            await case.until_left(node)
            assert [case.events.outcomes(call)[0].ending for call in calls] == ["lost", "lost"]

        self._run(test)

    # -- the end ----------------------------------------------------------------------------------------------------

    def test_closing_ends_every_call_and_leaves_no_process(self) -> None:
        async def test() -> None:
            stage, events = await opened(self.stage())
            case = CaseRun(stage, events, self.patience)
            try:
                call = case.hold(await case.node(slots=2, own=True))
                await case.until_began(call)
                await stage.engine.close()
                assert [outcome.ending for outcome in events.outcomes(call)] == ["lost"]
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
