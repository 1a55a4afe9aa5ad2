"""How a pool is used: operators, streams, futures, other forms. On the in-process engine."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from concurrent.futures import Future, as_completed

import pytest

import windlass as wl
from windlass.pool.errors import CannotSend

from .processes import eventually
from .quick import quick_pool


@wl.compute
def square(value):
    return value * value


@wl.compute
def fails(value):
    raise ValueError(value)


@wl.compute
def count_to(limit):
    yield from range(limit)


def test_calling_makes_a_lazy_task_and_local_runs_it_here():
    assert repr(square(3)) == "<task square>"
    assert square.local(3) == 9
    assert square.__name__ == "square"
    assert inspect.signature(square) == inspect.signature(square.function)


def test_the_operators():
    with quick_pool((1, 4)) as pool:
        assert square(3) >> pool == 9
        assert (square(2) & square(3) & square(4)) >> pool == (4, 9, 16)
        assert ((square(2) & square(3)) > pool).result(10) == (4, 9)
        assert (square(1) & wl.gather(square(2), square(3))) >> pool == (1, 4, 9)
        assert (wl.gather(square(1), square(2)) & wl.gather(square(3))) >> pool == (1, 4, 9)
        assert (square(5) > pool).result(10) == 25
        assert wl.gather(*map(square, range(30))) >> pool == [n * n for n in range(30)]
        assert (wl.gather(square(1), square(2)) > pool).result(10) == [1, 4]
        assert wl.gather() >> pool == []
        assert list(wl.gather(stream=True) >> pool) == []


def test_a_gather_of_different_things():
    with quick_pool((1, 4)) as pool:
        gang = wl.gang(square, size=2)(3)
        assert wl.gather(square(2), gang, count_to(3)) >> pool == [4, [9, 9], [0, 1, 2]]


def test_the_same_function_once_on_every_node_by_rank():
    @wl.compute
    def where():
        return os.environ["WINDLASS_NODE_RANK"]

    with quick_pool(3) as pool:
        assert where() @ pool == ["0", "1", "2"]
        assert wl.compute(lambda: None)() @ pool == [None, None, None]
    with quick_pool((0, 3)) as pool:
        assert where() @ pool == ["0"], "a pool without nodes starts its first"


def test_values_of_every_kind_are_returned_unchanged_by_every_way():
    same = wl.compute(lambda value: value)
    values = [None, 0, True, 1.5, "text", b"bytes", [1, [2]], {"a": {3}}, (4, None), "x" * 5000, 1 << 9000, b"y" * 5000]
    tasks = [same(value) for value in values]
    with quick_pool(2) as pool:
        assert [task >> pool for task in tasks] == values
        assert wl.gather(*tasks) >> pool == values
        assert wl.gather(*tasks, return_exceptions=True) >> pool == values
        assert list(wl.gather(*tasks, stream=True) >> pool) == values
        assert (wl.gather(*tasks) > pool).result(10) == values
        assert [(task > pool).result(10) for task in tasks] == values
        assert list(pool.as_executor().map(same.function, values)) == values
        assert asyncio.run(pool.as_asyncio().gather(*tasks)) == values
        assert [wl.gang(same, size=2)(value) >> pool for value in values] == [[value, value] for value in values]
        assert [type(value) for value in wl.gather(*tasks) >> pool] == [type(value) for value in values]


def test_many_failures_among_values_stand_where_they_belong():
    @wl.compute
    def even(number):
        if number % 2:
            raise ValueError(number)
        return number

    with quick_pool(2) as pool:
        found = wl.gather(*[even(number) for number in range(100)], return_exceptions=True) >> pool
    assert [one.args[0] if isinstance(one, ValueError) else one for one in found] == list(range(100))
    assert [isinstance(one, ValueError) for one in found] == [False, True] * 50


def test_streams_in_order_and_as_they_come():
    with quick_pool((1, 4)) as pool:
        tasks = [square(n) for n in range(40)]
        assert list(wl.gather(*tasks, stream=True) >> pool) == [n * n for n in range(40)]
        assert sorted(wl.gather(*tasks, stream=True, ordered=False) >> pool) == [n * n for n in range(40)]


def test_a_generator_streams_its_values_and_its_error():
    @wl.compute
    def breaks():
        yield 1
        raise ValueError("two")

    with quick_pool() as pool:
        assert list(count_to(3) >> pool) == [0, 1, 2]
        values = breaks() >> pool
        assert next(values) == 1
        with pytest.raises(ValueError, match="two"):
            next(values)


def test_the_first_exception_of_a_gather_is_raised_and_the_rest_cancelled():
    with quick_pool() as pool:
        with pytest.raises(ValueError, match="7"):
            wl.gather(fails(7), *map(square, range(2000))) >> pool
        eventually(lambda: pool.status().waiting == 0, 5)


def test_exceptions_may_stand_where_values_would():
    with quick_pool() as pool:
        one, two = wl.gather(square(2), fails(7), return_exceptions=True) >> pool
        assert one == 4
        assert isinstance(two, ValueError)
        first, last = (wl.gather(fails(7), square(2), return_exceptions=True) > pool).result(10)
        assert isinstance(first, ValueError)
        assert last == 4


def test_futures_are_ordinary_futures():
    with quick_pool() as pool:
        futures = [square(n) > pool for n in range(5)]
        assert sorted(future.result() for future in as_completed(futures, timeout=10)) == [0, 1, 4, 9, 16]
        bad = fails(3) > pool
        assert isinstance(bad.exception(10), ValueError)
        with pytest.raises(ValueError, match="3"):
            bad.result()


def test_a_future_of_many_fails_with_the_first_and_is_cancelled_as_one():
    with quick_pool() as pool:
        failing = wl.gather(*map(square, range(50)), fails(8), *map(square, range(50))) > pool
        assert isinstance(failing.exception(10), ValueError)
        assert (wl.gather() > pool).result(10) == []
        pool.resize((0, 1))
        many = wl.gather(*map(square, range(50))) > pool
        many.cancel()
        many.exception(10)
        assert many.done()


def test_all_of_a_pool_is_cancelled_without_naming_anything():
    with quick_pool((0, 1), groups=None) as pool:
        pool.resize((0, 1))
        futures = [square(n) > pool for n in range(3)]
        cancelled = pool.cancel()
        assert cancelled + sum(future.done() and not future.cancelled() for future in futures) >= 3


def test_options_change_a_copy():
    named = square.options(name="other", needs={"slots": 1}, retries=2)
    assert (named.name, square.name) == ("other", "square")
    with quick_pool() as pool:
        assert named(4) >> pool == 16
        assert pool.why("other").startswith("other: 0 waiting, 0 running")


def test_a_closure_travels_with_what_it_holds_at_that_time():
    factor = 2
    scaled = wl.compute(lambda value: value * factor)
    with quick_pool() as pool:
        assert scaled(10) >> pool == 20
        factor = 3
        assert scaled(10) >> pool == 30


def test_leaving_waits_for_what_was_started_and_leaving_by_an_exception_does_not():
    with quick_pool() as pool:
        future = square(3) > pool
    assert future.result(0) == 9
    started: list[Future] = []
    with pytest.raises(KeyError):
        _left_by_an_exception(started)
    assert started[0].done()


def _left_by_an_exception(started):
    with quick_pool((0, 1)) as pool:
        started.append(square(3) > pool)
        raise KeyError


def test_as_an_executor():
    with quick_pool((1, 2)) as pool:
        with pool.as_executor() as executor:
            assert list(executor.map(pow, [2, 3], [3, 2])) == [8, 9]
            assert list(executor.map(abs, [-1], timeout=10)) == [1]
            assert executor.submit(pow, 2, exp=3).result(10) == 8
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.submit(abs, 1)
        with pytest.raises(RuntimeError, match="after shutdown"):
            executor.map(abs, [1])
        assert square(2) >> pool == 4, "the pool lives on"


def test_an_executor_waits_at_its_end_for_calls_whose_values_are_not_read(tmp_path):
    def note(number):
        time.sleep(0.02)
        (tmp_path / str(number)).touch()

    with quick_pool(1) as pool:
        with pool.as_executor() as executor:
            executor.map(note, range(5))
            with pytest.raises(CannotSend):
                executor.map(abs, [threading.Lock()])
            assert list(executor.map(abs, [])) == []
        assert len(list(tmp_path.iterdir())) == 5


def test_with_asyncio():
    async def used(pool):
        waiting = pool.as_asyncio()
        assert await waiting.run(square(3)) == 9
        assert await waiting.run(wl.gather(square(1), square(2))) == [1, 4]
        assert await waiting.run(square(1) & square(2)) == (1, 4)
        assert await waiting.map(pow, [2, 3], [2, 2]) == [4, 9]
        assert [value async for value in waiting.stream(square(1), square(2))] == [1, 4]
        with pytest.raises(ValueError, match="5"):
            await waiting.run(fails(5))
        with pytest.raises(ValueError, match="6"):
            await waiting.gather(square(1), fails(6))

    with quick_pool((1, 2)) as pool:
        asyncio.run(used(pool))


def test_a_pool_may_be_entered_with_asyncio():
    from windlass.testing.fake_engine import FakeEngine

    from .worlds import Machines

    async def used():
        engine = FakeEngine()
        made = wl.ComputePool(Machines(engine, boot=0.0), engine=engine, console=False)
        async with made.as_asyncio() as pool:
            return await pool.run(square(4))

    assert asyncio.run(used()) == 16


def test_as_a_backend_of_joblib():
    joblib = pytest.importorskip("joblib")
    with quick_pool((1, 2)) as pool, pool.as_joblib():
        assert joblib.Parallel()(joblib.delayed(pow)(n, 2) for n in range(60)) == [n * n for n in range(60)]
        with pytest.raises(ZeroDivisionError):
            joblib.Parallel()(joblib.delayed(divmod)(1, n) for n in range(3))


def test_status_and_why_agree_with_the_journal():
    with quick_pool((1, 3)) as pool:
        wl.gather(*map(square, range(20))) >> pool
        eventually(lambda: pool.status().count("ready"), 5)
        status = pool.status()
        assert status.done == 20
        assert "rule: pool:" in str(status)
        assert status.to_dict()["done"] == 20
        assert "started for MIN: pool keeps at least 1 machine" in pool.why(0)
        assert pool.why("square").startswith("square: 0 waiting")
        assert "min 1, max 3" in pool.why("pool")


def test_what_is_over_cannot_be_cancelled():
    with quick_pool() as pool:
        slow = pool.submit(time.sleep, 0.01)
        slow.result(10)
        assert not slow.cancel(), "it is over"
