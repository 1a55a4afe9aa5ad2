"""The garbage collector is paused, and always enabled again."""

from __future__ import annotations

import gc

import pytest
from click.testing import CliRunner

from windlass._gc_pause import MANY, uncollected
from windlass.cli import windlass
from windlass.scenario import ScenarioError, read_scenario

RIGHT = "groups: {g: {resources: {cpu: 4}, max: 5}}\ndemands: [{id: d, needs: {cpu: 1}}]"


@pytest.fixture(autouse=True)
def collecting():
    assert gc.isenabled()
    yield
    assert gc.isenabled()


def test_the_collector_pauses_for_many_objects_and_not_for_few():
    with uncollected(MANY):
        assert not gc.isenabled()
    with uncollected(MANY - 1):
        assert gc.isenabled()


def test_an_error_does_not_keep_the_collector_paused():
    with pytest.raises(KeyError), uncollected():
        raise KeyError


def test_a_collector_that_the_caller_switched_off_stays_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_within_another_the_outer_one_ends_it():
    with uncollected():
        with uncollected():
            pass
        assert not gc.isenabled()


@pytest.mark.parametrize("text", [RIGHT, "groups: 3"])
def test_it_works_again_when_a_scenario_was_read_and_when_it_was_refused(text):
    try:
        read_scenario(text)
    except ScenarioError:
        assert text != RIGHT
    assert gc.isenabled()


@pytest.mark.parametrize(("text", "status"), [(RIGHT, 2), ("groups: 3", 1)])
def test_it_works_again_when_a_plan_was_shown_inside_a_longer_program(text, status):
    done = CliRunner().invoke(windlass, ["plan", "-", "--detailed-exitcode"], input=text)
    assert done.exit_code == status
    assert gc.isenabled()
