"""A full placement, if there is one."""

from __future__ import annotations

from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.placement.host_matching import match


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[int], list[list[bool]]]:
    kinds, places = draw(st.integers(1, 3)), draw(st.integers(0, 6))
    counts = draw(st.lists(st.integers(0, 3), min_size=kinds, max_size=kinds))
    row = st.lists(st.booleans(), min_size=places, max_size=places)
    return counts, draw(st.lists(row, min_size=kinds, max_size=kinds))


def possible(counts: list[int], fits: list[list[bool]]) -> bool:
    tasks = [kind for kind, count in enumerate(counts) for _ in range(count)]
    return any(
        all(fits[kind][place] for kind, place in zip(tasks, order, strict=True))
        for order in permutations(range(len(fits[0])), len(tasks))
    )


@given(problems())
def test_there_is_a_match_exactly_when_trying_every_way_finds_one(problem: tuple[list[int], list[list[bool]]]) -> None:
    counts, fits = problem
    found = match(counts, [np.array(row, np.bool_) for row in fits])
    assert (found is not None) == possible(counts, fits)
    if found is not None:
        taken = [place for places in found for place in places]
        assert len(taken) == len(set(taken))
        assert [len(places) for places in found] == counts
        assert all(fits[kind][place] for kind, places in enumerate(found) for place in places)


def test_a_slice_of_thousands_of_hosts_is_matched_at_once() -> None:
    many = 4096
    found = match([many // 2, many // 2], [np.ones(many, np.bool_), np.arange(many) % 2 == 0])
    assert found is not None
    assert sorted(place for places in found for place in places) == list(range(many))
