"""What comes out of a pool has a type: mypy reads this file in the lint step, and a wrong type is an error there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from typing import assert_type

import windlass as wl

from .quick import quick_pool


@wl.compute
def half(number: int) -> float:
    return number / 2


@wl.compute(retries=2)
def text(number: int) -> str:
    return str(number)


@wl.compute
def count(limit: int) -> Iterator[int]:
    yield from range(limit)


def test_the_value_of_a_task_has_the_type_that_its_function_returns() -> None:
    with quick_pool(2) as pool:
        assert assert_type(half(3) >> pool, float) == 1.5
        assert assert_type(text(3) >> pool, str) == "3"
        assert assert_type(half(3) > pool, Future[float]).result(60) == 1.5
        assert assert_type(text(3) @ pool, list[str]) == ["3", "3"]
        assert list(assert_type(count(3) >> pool, Iterator[int])) == [0, 1, 2]


def test_many_tasks_have_types_too() -> None:
    with quick_pool(2) as pool:
        assert assert_type((half(1) & text(2)) >> pool, tuple[float, str]) == (0.5, "2")
        assert assert_type((half(1) & text(2) & half(4)) >> pool, tuple[float, str, float]) == (0.5, "2", 2.0)
        assert assert_type(wl.gather(half(1), half(2)) >> pool, list[float]) == [0.5, 1.0]
        assert assert_type(wl.gather(*[text(1)]) > pool, Future[list[str]]).result(60) == ["1"]
        assert list(assert_type(wl.gather(half(1), stream=True) >> pool, Iterator[float])) == [0.5]
        found = wl.gather(half(1), return_exceptions=True) >> pool
        assert assert_type(found, list[float | BaseException]) == [0.5]
        assert assert_type(wl.gang(text, size=2)(1) >> pool, list[str]) == ["1", "1"]
