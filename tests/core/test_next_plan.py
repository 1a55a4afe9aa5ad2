"""One plan never launches what the next one cancels, cause by cause; the law itself is in ``test_plan_laws``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.applying import launches_on_their_way
from windlass import plan
from windlass.core.model.lifecycle import State
from windlass.core.model.snapshot import Snapshot
from windlass.scenario import read_plain

IN_FLIGHT = pytest.mark.parametrize("state", [State.QUEUED, State.REQUESTING])


def scenario(choose: str, **parts: Any) -> Snapshot:
    return read_plain({"cluster": {"choose": choose}, **parts})


def cancelled_next(snapshot: Snapshot, state: State) -> list[str]:
    """What the next plan cancels of the launches of this one, while the demand still waits."""
    following = plan(launches_on_their_way(snapshot, plan(snapshot), state))
    return [change.slice for change in following.cancel]


@IN_FLIGHT
def test_a_spare_of_a_group_counts_for_the_min_of_its_family(state: State) -> None:
    snapshot = scenario(
        "rank",
        families={"fast": {"min": 1, "max": 2}},
        groups={
            "a": {"resources": {"cpu": 4}, "family": "fast", "rank": 1},
            "b": {"resources": {"cpu": 4}, "family": "fast", "rank": 2, "spare": 1},
        },
    )
    assert plan(snapshot).launch == {"b": 1}
    assert cancelled_next(snapshot, state) == []


def test_a_machine_for_demand_counts_for_the_min_of_its_family() -> None:
    snapshot = scenario(
        "rank",
        families={"fast": {"min": 1, "max": 2}},
        groups={
            "a": {"resources": {"cpu": 4}, "family": "fast", "rank": 1},
            "b": {"resources": {"gpu": 4}, "family": "fast", "rank": 2},
        },
        demands=[{"id": "job", "needs": {"gpu": 4}}],
    )
    assert plan(snapshot).launch == {"b": 1}


def test_the_place_of_a_machine_that_no_min_needs_is_used_for_another_spare() -> None:
    """Each machine that is not bought for the min of the family makes room for a spare under its max."""
    snapshot = scenario(
        "rank",
        families={"fast": {"min": 2, "max": 3}},
        groups={
            "a": {"resources": {"cpu": 4}, "family": "fast", "rank": 1},
            "b": {"resources": {"cpu": 4}, "family": "fast", "rank": 2, "spare": 3},
        },
    )
    assert plan(snapshot).launch == {"b": 3}
    assert cancelled_next(snapshot, State.QUEUED) == []


def test_a_free_machine_counts_for_the_min_of_its_family_whatever_is_cheaper_without_it() -> None:
    """A candidate that ignores the free machine first would buy two of the cheaper group, and no spare."""
    snapshot = read_plain(
        {
            "cluster": {"choose": "cheapest", "max_launching": 2},
            "families": {"fast": {"min": 2, "max": 5}},
            "groups": {
                "held": {"resources": {"gpu": 2}, "max": 2, "spare": 2, "price": 3, "family": "fast"},
                "small": {"resources": {"cpu": 2}, "max": 2, "price": 1, "family": "fast"},
            },
            "slices": [{"id": "s", "group": "held", "state": "ready"}],
        }
    )
    assert plan(snapshot).launch == {"held": 1}
    assert cancelled_next(snapshot, State.QUEUED) == []


def test_the_min_of_a_family_is_bought_before_demand_takes_the_last_place() -> None:
    snapshot = read_plain(
        {
            "cluster": {"max_nodes": 1},
            "families": {"fast": {"min": 1, "max": 2}},
            "groups": {
                "a": {"resources": {"cpu": 4}, "family": "fast"},
                "other": {"resources": {"gpu": 4}, "max": 1},
            },
            "demands": [{"id": "job", "needs": {"gpu": 4}}],
        }
    )
    assert plan(snapshot).launch == {"a": 1}


@IN_FLIGHT
@pytest.mark.parametrize("choose", ["rank", "cheapest"])
def test_demand_does_not_move_to_a_spare_in_flight_that_could_not_be_bought_again(choose: str, state: State) -> None:
    """The spare is at the max of its group. It is the tighter of the two, and comes first by name."""
    snapshot = scenario(
        choose,
        groups={
            "large": {"resources": {"cpu": 8}, "max": 1, "rank": 1, "price": 1},
            "held": {"resources": {"cpu": 4}, "max": 1, "rank": 2, "price": 5, "spare": 1},
        },
        demands=[{"id": "job", "needs": {"cpu": 1}}],
    )
    assert plan(snapshot).launch == {"held": 1, "large": 1}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_request_does_not_move_to_a_spare_in_flight(state: State) -> None:
    snapshot = scenario(
        "rank",
        groups={
            "held": {"resources": {"cpu": 4}, "max": 1, "rank": 2, "spare": 1},
            "other": {"resources": {"cpu": 4}, "max": 1, "rank": 1},
        },
        requests=[{"id": "room", "needs": {"cpu": 1}}],
    )
    assert plan(snapshot).launch["other"] == 1
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_request_does_not_move_to_a_machine_that_was_bought_for_demand_after_it(state: State) -> None:
    snapshot = scenario(
        "rank",
        groups={
            "gpu": {"resources": {"cpu": 8, "gpu": 4}, "max": 1, "rank": 1},
            "memory": {"resources": {"cpu": 4, "memory": "8Gi"}, "max": 1, "rank": 2},
        },
        demands=[{"id": "job", "needs": {"memory": "8Gi"}}],
        requests=[{"id": "room", "needs": {"cpu": 1}}],
    )
    assert sorted(plan(snapshot).launch) == ["gpu", "memory"]
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_request_on_a_machine_for_a_min_keeps_it(state: State) -> None:
    """The request takes the machine that was bought for the min of the family, before there are others."""
    snapshot = scenario(
        "cheapest",
        families={"slow": {"min": 1, "max": 5}},
        groups={
            "held": {"resources": {"cpu": 4}, "max": 2, "price": 5, "spare": 1, "family": "slow"},
            "small": {"resources": {"cpu": 2}, "max": 3, "price": 1, "family": "slow"},
        },
        requests=[{"id": "room", "needs": {"cpu": 1}}],
    )
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_launches_are_cancelled_as_soon_as_the_demand_is_gone(state: State) -> None:
    """With the rest of the demand, a plan without the launches in flight would buy fewer of them."""
    snapshot = scenario(
        "rank",
        groups={
            "large": {"resources": {"cpu": 8}, "max": 3, "rank": 1},
            "held": {"resources": {"cpu": 4}, "max": 1, "rank": 2, "spare": 1},
        },
        demands=[{"id": "job", "needs": {"cpu": 8}, "count": 3}],
    )
    first = plan(snapshot)
    assert first.launch == {"large": 3, "held": 1}
    following = launches_on_their_way(snapshot, first, state)
    [job] = following.demands
    fewer = replace(following, demands=(replace(job, bundles=(replace(job.bundles[0], count=1),)),))
    assert [change.slice for change in plan(fewer).cancel] == ["new:large:1", "new:large:2"]
    gone = plan(replace(following, demands=()))
    assert [change.slice for change in gone.cancel] == ["new:large:0", "new:large:1", "new:large:2"]


def test_of_two_launches_for_one_job_the_one_that_is_further_along_is_used() -> None:
    """A plan without them would buy the cheaper one, but that comes later."""
    snapshot = scenario(
        "cheapest",
        groups={
            "cheap": {"resources": {"cpu": 4}, "max": 1, "price": 1},
            "dear": {"resources": {"cpu": 4}, "max": 1, "price": 5},
        },
        slices=[
            {"id": "c", "group": "cheap", "state": "queued"},
            {"id": "d", "group": "dear", "state": "requesting"},
        ],
        demands=[{"id": "job", "needs": {"cpu": 4}}],
    )
    made = plan(snapshot)
    assert [one.on for one in made.placements] == ["d"]
    assert [change.slice for change in made.cancel] == ["c"]


MOVING = scenario(
    "cheapest",
    groups={
        "big": {"resources": {"cpu": 16}, "max": 3, "price": 5, "scale_down": {"consolidate": True}},
        "small": {"resources": {"cpu": 2}, "max": 3, "price": 1},
    },
    slices=[
        {"id": "b", "group": "big", "state": "ready", "nodes": [{"id": "n", "used": {"cpu": 1}, "tasks": 1}]},
    ],
)


@IN_FLIGHT
def test_a_machine_that_work_moves_to_is_kept_while_the_work_is_there(state: State) -> None:
    first = plan(MOVING)
    assert first.launch == {"small": 1}
    assert [change.slice for change in first.drain] == ["b"]
    following = launches_on_their_way(MOVING, first, state)
    extra = replace(following.slices[-1], id="z")
    second = plan(replace(following, slices=(*following.slices, extra)))
    assert [change.slice for change in second.cancel] == ["z"]
    assert "the work of b moves to it" in {change.slice: change.reason.why for change in second.keep}["new:small:0"]


def test_a_machine_that_work_moves_to_is_cancelled_when_the_work_has_ended() -> None:
    following = launches_on_their_way(MOVING, plan(MOVING), State.QUEUED)
    old, new = following.slices
    [node] = old.nodes
    ended = replace(old, nodes=(replace(node, used=(), tasks=0),))
    assert [change.slice for change in plan(replace(following, slices=(ended, new))).cancel] == ["new:small:0"]
