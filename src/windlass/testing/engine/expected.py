"""This part of the suite tests what a call on any engine must give: values, failures, what it yields, prints and
shares.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.serialization import (
    ResultTooLarge,
    ResultUnsendable,
    Shared,
    TaskExit,
    pack_arguments,
    pack_batch,
    pack_function,
    pack_shared,
    unpack_value,
)

from .run_case import CaseRun, batch_of
from .suite import EngineSuite

MEGABYTE = 1 << 20


@contextmanager
def data_store() -> Iterator[DataStore]:
    with tempfile.TemporaryDirectory(prefix="windlass-spill-") as disk:
        store = DataStore(Path(disk, "data"))
        try:
            yield store
        finally:
            store.close()


class NotAsWished(Exception):
    """An exception of a user whose ``__init__`` does not accept its ``args``."""

    def __init__(self, wish: str, instead: str) -> None:
        super().__init__(f"wished for {wish}, got {instead}")
        self.wish = wish


class EngineAnswers(EngineSuite):
    """Tests the outcome of a call."""

    def test_a_closure_runs_with_its_arguments(self) -> None:
        async def test(case: CaseRun) -> None:
            node, base = await case.node(), [10, 20]
            assert await case.value(node, lambda number, *, more: [*base, number + more], 1, more=2) == [10, 20, 3]

        self._run(test)

    def test_a_batch_gives_a_result_for_each_item_and_a_failure_spoils_no_other(self) -> None:
        async def test(case: CaseRun) -> None:
            function = pack_function(lambda number: 12 // number)
            batch = pack_batch(function, [pack_arguments((number,)) for number in (3, 0, 4)])
            results = await case.results(case.call(await case.node(), batch, items=3))
            assert [result.kind for result in results] == ["plain", "error", "plain"]
            assert [results[0].value(), results[2].value()] == [4, 3]
            assert isinstance(results[1].error(), ZeroDivisionError)

        self._run(test)

    def test_an_exception_arrives_with_its_own_type_and_the_traceback_of_the_node(self) -> None:
        async def test(case: CaseRun) -> None:
            def wish_for_the_moon() -> None:
                raise NotAsWished("the moon", "cheese")

            (result,) = await case.results(case.run(await case.node(), wish_for_the_moon))
            error = result.error()
            assert isinstance(error, NotAsWished)
            assert (error.wish, str(error)) == ("the moon", "wished for the moon, got cheese")
            assert "in wish_for_the_moon" in str(error.__cause__)

        self._run(test)

    def test_a_task_that_calls_exit_ends_itself_alone(self) -> None:
        async def test(case: CaseRun) -> None:
            node = await case.node()
            (result,) = await case.results(case.run(node, lambda: sys.exit(3)))
            assert isinstance(result.error(), TaskExit)
            assert "SystemExit" in str(result.error())
            assert await case.value(node, lambda: 1) == 1

        self._run(test)

    def test_a_result_that_cannot_be_sent_is_told_in_words(self) -> None:
        async def test(case: CaseRun) -> None:
            import threading

            (result,) = await case.results(case.run(await case.node(), lambda: threading.Lock()))
            assert isinstance(result.error(), ResultUnsendable)
            assert "lock" in str(result.error())

        self._run(test)

    def test_a_result_that_is_too_large_is_told_with_its_size_and_the_limit(self) -> None:
        async def test(case: CaseRun) -> None:
            batch = pack_batch(pack_function(bytes), [pack_arguments((5000,))], limit=4000)
            (result,) = await case.results(case.call(await case.node(), batch))
            assert isinstance(result.error(), ResultTooLarge)
            assert "4,000" in str(result.error())

        self._run(test)

    def test_large_arguments_and_results_come_whole(self) -> None:
        async def test(case: CaseRun) -> None:
            much = os.urandom(20 * MEGABYTE)
            assert await case.value(await case.node(), lambda data: data[::-1], much) == much[::-1]

        self._run(test)

    def test_a_generator_gives_its_values_one_by_one_and_what_it_returns_at_the_end(self) -> None:
        async def test(case: CaseRun) -> None:
            def count(number: int) -> Any:
                yield from range(number)
                return "counted"

            call = case.run(await case.node(), count, 3)
            (result,) = await case.results(call)
            assert (result.kind, result.values, result.value()) == ("streamed", 3, "counted")
            blobs = [event[3] for event in case.events.of(call) if event[0] == "yielded"]
            assert [unpack_value(blob) for blob in blobs] == [0, 1, 2]

        self._run(test)

    def test_what_is_yielded_and_printed_is_heard_while_the_call_runs(self) -> None:
        async def test(case: CaseRun) -> None:
            go = str(case.stage.directory / "go-on")

            def slowly() -> Any:
                import time

                print("here I am")  # noqa: T201
                yield 1
                while not os.path.exists(go):  # noqa: PTH110  # runs on a node
                    time.sleep(0.01)

            call = case.run(await case.node(), slowly)
            await case.until(lambda: {event[0] for event in case.events.of(call)} == {"began", "said", "yielded"})
            (case.stage.directory / "go-on").touch()
            assert (await case.outcome(call)).ending == "done"

        if self.processes:
            self._run(test)

    def test_lines_come_with_their_item_and_stream_and_before_the_end(self) -> None:
        async def test(case: CaseRun) -> None:
            def speak(number: int) -> None:
                print(f"out {number}\nand again")  # noqa: T201
                print("unfinished", end="", file=sys.stderr)  # noqa: T201

            function = pack_function(speak)
            batch = pack_batch(function, [pack_arguments((number,)) for number in (0, 1)])
            call = case.call(await case.node(), batch, items=2)
            await case.outcome(call)
            kinds = [event[0] for event in case.events.of(call)]
            assert kinds[0] == "began"
            assert kinds[-1] == "ended"
            for number in (0, 1):
                lines = [event[3:] for event in case.events.of(call) if event[0] == "said" and event[2] == number]
                out = [line for stream, line in lines if stream == "stdout"]
                assert out == [f"out {number}", "and again"]
                assert [line for stream, line in lines if stream == "stderr"] == ["unfinished"]

        self._run(test)

    def test_what_a_program_prints_that_a_task_has_started_is_heard_too(self) -> None:
        async def test(case: CaseRun) -> None:
            call = case.run(await case.node(), os.system, "echo from afar; echo and astray >&2")
            assert (await case.results(call))[0].value() == 0
            said = {event[3:] for event in case.events.of(call) if event[0] == "said"}
            assert said == {("stdout", "from afar"), ("stderr", "and astray")}

        if self.processes:
            self._run(test)

    def test_the_environment_of_a_call_is_there_for_its_time_only(self) -> None:
        async def test(case: CaseRun) -> None:
            nodes = [await case.node(), await case.node()]
            batch = batch_of(os.getenv, "RANK")
            calls = [case.call(node, batch, environment={"RANK": str(rank)}) for rank, node in enumerate(nodes)]
            assert [(await case.results(call))[0].value() for call in calls] == ["0", "1"]
            assert (await case.results(case.call(nodes[0], batch)))[0].value() is None

        self._run(test)

    def test_a_large_value_of_the_store_is_read_by_every_call_and_each_may_change_its_own(self) -> None:
        async def test(case: CaseRun) -> None:
            def grow(things: Mapping[str, list[int]]) -> int:
                things["here"].append(4)
                return len(things["here"])

            with data_store() as store:
                numbers = store.put(pack_shared([1, 2, 3]))
                function = store.put(pack_shared(grow))
                node = await case.node(slots=2)
                arguments = pack_arguments(({"here": Shared(numbers, store.path(numbers))},))
                batch = pack_batch(Shared(function, store.path(function), keep=True), [arguments])
                calls = [case.call(node, batch, slot=slot) for slot in (0, 1, 0)]
                assert [(await case.results(call))[0].value() for call in calls] == [4, 4, 4]

        self._run(test)

    def test_a_large_result_comes_through_the_store_and_its_file_goes_when_it_is_taken(self) -> None:
        async def test(case: CaseRun) -> None:
            with data_store() as store:
                function = pack_function(lambda size: bytes(size))
                batch = pack_batch(function, [pack_arguments((5 * MEGABYTE,))], place=store.place, call="large")
                call = case.call(await case.node(), batch)
                await case.outcome(call)
                assert sum(len(one) for one in case.events.results(call)) < MEGABYTE, "it went with the message"
                (result,) = await case.results(call)
                assert result.value() == bytes(5 * MEGABYTE)
                assert store.used()[0] < MEGABYTE

        self._run(test)
