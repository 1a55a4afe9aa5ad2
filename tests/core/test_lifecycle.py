"""The states of a slice: the table and what is derived from it."""

from __future__ import annotations

import pytest

from windlass.core.model.lifecycle import (
    COSTLY,
    COUNTED,
    ENDED,
    ENDING,
    IN_FLIGHT,
    OFFERING,
    PROGRESS,
    RECALLABLE,
    TABLE,
    TRANSITIONS,
    State,
    is_legal,
    reachable,
)


def test_every_state_has_its_row() -> None:
    assert set(TABLE) == set(State)


def test_a_ready_slice_is_never_ended_directly() -> None:
    assert not is_legal(State.READY, State.TERMINATING)
    ways = [edge.source for edge in TRANSITIONS if edge.target == State.TERMINATING]
    assert State.READY not in ways
    assert State.CORDONED not in ways


def test_every_state_can_be_reached_and_comes_to_an_end() -> None:
    assert reachable(State.QUEUED) | {State.QUEUED} == set(State)
    for state in set(State) - ENDED:
        assert reachable(state) & ENDED


def test_only_what_is_confirmed_gone_ends_a_life() -> None:
    assert {State.TERMINATED, State.LAUNCH_FAILED} == ENDED
    assert all(edge.source not in ENDED for edge in TRANSITIONS)


def test_the_derived_sets_part_the_states() -> None:
    assert {State.QUEUED, State.REQUESTING, State.BOOTING, State.INITIALIZING} == IN_FLIGHT
    assert IN_FLIGHT | {State.READY} == OFFERING
    assert {State.CORDONED, State.DRAINING} == RECALLABLE
    assert set(State) == OFFERING | RECALLABLE | ENDING
    assert set(State) - ENDED == COUNTED
    assert set(State) - ENDED - {State.QUEUED} == COSTLY
    assert PROGRESS == (State.INITIALIZING, State.BOOTING, State.REQUESTING, State.QUEUED)


@pytest.mark.parametrize("state", [state for state in State if TABLE[state].after_limit])
def test_what_happens_when_a_limit_passes_is_a_legal_change(state: State) -> None:
    after = TABLE[state].after_limit
    assert after is not None
    assert TABLE[state].limit is not None
    assert is_legal(state, after)


def test_every_transition_names_its_cause_once() -> None:
    pairs = [(edge.source, edge.target) for edge in TRANSITIONS]
    assert len(pairs) == len(set(pairs)) == 32
    assert all(edge.cause for edge in TRANSITIONS)
