"""The frontier of a system, and what it costs at another's wait."""

from __future__ import annotations

import pytest
from benchmarks.frontier import Point, cost_at, frontier
from benchmarks.traces import least_saving

FAST, MIDDLE, SLOW = Point("fast", 0, 200), Point("middle", 100, 100), Point("slow", 200, 90)
BAD = Point("bad", 150, 150)


def test_a_point_that_another_one_beats_is_not_on_the_frontier():
    assert frontier([SLOW, BAD, FAST, MIDDLE]) == [FAST, MIDDLE, SLOW]
    assert MIDDLE.beats(BAD)
    assert not FAST.beats(SLOW)


def test_between_two_points_the_cost_is_on_the_line_and_beyond_the_last_as_much_as_there():
    assert cost_at([SLOW, BAD, FAST, MIDDLE], 50) == 150
    assert cost_at([SLOW, FAST, MIDDLE], 100) == 100
    assert cost_at([FAST, MIDDLE, SLOW], 1000) == 90


def test_the_cost_beyond_the_fastest_point_is_unknown():
    assert cost_at([MIDDLE, SLOW], 50) is None


def test_the_saving_is_against_the_best_of_those_that_are_as_fast():
    peers = [Point("quick", 100, 125), Point("slow but dear", 200, 1000)]
    # 100 at 100 s and 90 at 200 s, both against 125.
    assert least_saving([FAST, MIDDLE, SLOW], peers) == pytest.approx(20)


def test_where_we_were_never_so_fast_our_fastest_point_counts():
    assert least_saving([MIDDLE, SLOW], [Point("at once", 0, 50)]) == -100
