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


@IN_FLIGHT
def test_several_spares_that_are_bought_later_count_for_the_min_of_their_family(state: State) -> None:
    """One machine less for the min lets one more spare be bought, so the min must be left to both spares at once."""
    snapshot = scenario(
        "rank",
        families={"fast": {"min": 3, "max": 4}},
        groups={
            "a": {"resources": {"cpu": 4}, "family": "fast", "max": 2},
            "b": {"resources": {"cpu": 4}, "family": "fast", "spare": 2},
        },
    )
    assert plan(snapshot).launch == {"a": 1, "b": 2}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_machine_that_work_moves_to_is_not_the_spare_of_its_group(state: State) -> None:
    held = {"resources": {"cpu": 2}, "max": 2, "price": 1, "spare": 1}
    snapshot = replace(MOVING, groups=scenario("cheapest", groups={"held": held}).groups + MOVING.groups[:1])
    assert plan(snapshot).launch == {"held": 2}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_work_moves_to_a_machine_that_no_spare_needs(state: State) -> None:
    held = {"resources": {"cpu": 2}, "max": 1, "price": 1, "spare": 1}
    snapshot = replace(MOVING, groups=scenario("cheapest", groups={"held": held}).groups + MOVING.groups)
    assert plan(snapshot).launch == {"held": 1, "small": 1}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_launch_beside_a_booting_spare_is_kept(state: State) -> None:
    """The job could also run on the spare, but the family has no room for another one."""
    snapshot = scenario(
        "best-fit",
        families={"fast": {"max": 2}},
        groups={
            "single": {"resources": {"cpu": 1}, "family": "fast"},
            "held": {"resources": {"cpu": 1}, "family": "fast", "spare": 1, "hosts": 2},
        },
        slices=[{"id": "s", "group": "held", "state": "booting"}],
        demands=[{"id": "job", "needs": {"cpu": 1}}],
    )
    assert plan(snapshot).launch == {"single": 1}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_job_does_not_wait_because_the_launches_for_it_are_there(state: State) -> None:
    snapshot = scenario(
        "best-fit",
        groups={
            "large": {"resources": {"cpu": 6}, "max": 1},
            "small": {"resources": {"cpu": 1}, "max": 2, "spare": 1},
        },
        slices=[{"id": "s", "group": "large", "state": "initializing"}],
        demands=[
            {"id": "gang", "gang": "any", "bundles": [{"needs": {"cpu": 1}, "count": 5}]},
            {"id": "job", "needs": {"cpu": 2}},
        ],
    )
    first = plan(snapshot)
    assert (first.launch, first.waiting) == ({"small": 2}, ())
    following = plan(launches_on_their_way(snapshot, first, state))
    assert (following.cancel, following.waiting) == ((), ())


def test_cpu_work_uses_what_is_left_of_a_gpu_machine_in_use() -> None:
    """The machine has a task whose needs are not known: it is no spare, and neither is what other work has taken."""
    snapshot = scenario(
        "best-fit",
        groups={
            "large": {"resources": {"cpu": 4, "gpu": 1}, "max": 2, "spare": 1},
            "small": {"resources": {"cpu": 1, "gpu": 1}, "max": 2, "spare": 1},
        },
        slices=[{"id": "s", "group": "large", "state": "ready", "nodes": [{"id": "n", "tasks": 1}]}],
        demands=[
            {"id": "train", "needs": {"cpu": 2, "gpu": 1}, "count": 2},
            {"id": "load", "needs": {"cpu": 1}, "count": 2},
        ],
    )
    made = plan(snapshot)
    assert made.launch == {"large": 1, "small": 1}
    assert {one.on for one in made.placements if one.demand == "load"} <= {"s", "new:large:0"}
    assert cancelled_next(snapshot, State.QUEUED) == []


@IN_FLIGHT
def test_a_gang_does_not_use_up_the_last_places_of_a_spare(state: State) -> None:
    """Its members fit on the machines that are bought for the single jobs."""
    snapshot = scenario(
        "cheapest",
        groups={
            "held": {"resources": {"cpu": 1}, "max": 2, "spare": 1, "price": 1},
            "large": {"resources": {"cpu": 8}, "max": 2, "price": 2},
        },
        demands=[
            {"id": "job", "needs": {"cpu": 6}, "count": 2},
            {"id": "gang", "gang": "spread", "bundles": [{"needs": {"cpu": 1}, "count": 2}]},
        ],
    )
    made = plan(snapshot)
    assert made.launch == {"held": 1, "large": 2}
    assert {one.on for one in made.placements} == {"new:large:0", "new:large:1"}
    assert cancelled_next(snapshot, state) == []


def test_a_gang_on_new_spares_leaves_the_only_machine_for_a_job_to_it() -> None:
    snapshot = scenario(
        "rank",
        families={"held": {"max": 2, "spare": 2}},
        groups={
            "middle": {"resources": {"cpu": 2}, "max": 1},
            "small": {"resources": {"cpu": 1}, "family": "held"},
            "large": {"resources": {"cpu": 4}, "max": 1, "rank": 1},
        },
        demands=[
            {"id": "job", "needs": {"cpu": 4}},
            {"id": "gang", "gang": "spread", "bundles": [{"needs": {"cpu": 1}, "count": 2}]},
        ],
    )
    made = plan(snapshot)
    assert made.waiting == ()
    assert {one.on for one in made.placements if one.demand == "job"} == {"new:large:0"}
    assert cancelled_next(snapshot, State.QUEUED) == []


@IN_FLIGHT
def test_a_gang_does_not_move_to_a_spare_in_flight(state: State) -> None:
    snapshot = scenario(
        "cheapest",
        groups={
            "held": {"resources": {"cpu": 1}, "max": 1, "spare": 1, "price": 5, "hosts": 3},
            "single": {"resources": {"cpu": 1}, "max": 3, "price": 2},
        },
        slices=[{"id": "s", "group": "single", "state": "requesting"}],
        demands=[{"id": "gang", "gang": "same-slice", "bundles": [{"needs": {"cpu": 1}, "count": 3}]}],
    )
    assert plan(snapshot).launch == {"held": 1, "single": 2}
    assert cancelled_next(snapshot, state) == []


def test_machines_that_demand_calls_back_are_filled_before_a_spare_is_used() -> None:
    """A spare that is used would be bought again, and cancelled when the next plan fills the machine that is back."""
    snapshot = scenario(
        "best-fit",
        groups={
            "large": {"resources": {"cpu": 8, "gpu": 1}, "max": 1, "hosts": 2},
            "held": {"resources": {"gpu": 1}, "max": 2, "spare": 1},
        },
        slices=[
            {
                "id": "back",
                "group": "large",
                "state": "draining",
                "nodes": [{"id": "a", "used": {"cpu": 8}}, {"id": "b"}],
            },
            {"id": "spare", "group": "held", "state": "ready"},
        ],
        demands=[{"id": "train", "needs": {"gpu": 1}}, {"id": "load", "needs": {"cpu": 1}}],
    )
    made = plan(snapshot)
    assert made.launch == {}
    assert {one.on for one in made.placements} == {"back"}


@pytest.mark.parametrize(
    ("cluster", "wanted"),
    [
        pytest.param({"max_hourly_cost": 4}, {"min": 2}, id="cost for a min"),
        pytest.param({"max_nodes": 2}, {"min": 2}, id="nodes for a min"),
        pytest.param({"max_launching": 2}, {"spare": 2}, id="launches for a spare"),
    ],
)
def test_the_place_of_a_queued_launch_that_is_cancelled_is_used_for_minimums(
    cluster: dict[str, Any], wanted: dict[str, int]
) -> None:
    snapshot = read_plain(
        {
            "cluster": cluster,
            "groups": {
                "wanted": {"resources": {"cpu": 4}, "max": 2, "price": 2, **wanted},
                "other": {"resources": {"cpu": 4}, "max": 1, "price": 1},
            },
            "slices": [{"id": "queued", "group": "other", "state": "queued"}],
        }
    )
    made = plan(snapshot)
    assert made.launch == {"wanted": 2}
    assert [change.slice for change in made.cancel] == ["queued"]


@IN_FLIGHT
def test_demand_that_fits_on_what_requests_and_spares_need_is_not_bought_for(state: State) -> None:
    """The large machine is bought for the last job, when the others have machines already; all fit on it and one."""
    snapshot = scenario(
        "rank",
        families={"fast": {"max": 3, "spare": 1}},
        groups={
            "large": {"resources": {"cpu": 3}, "max": 1},
            "small": {"resources": {"cpu": 1, "gpu": 1}, "rank": 1, "family": "fast"},
        },
        demands=[{"id": "jobs", "needs": {"cpu": 1}, "count": 3}, {"id": "other", "needs": {"cpu": 1}}],
        requests=[{"id": "one", "needs": {"cpu": 1}}, {"id": "two", "needs": {"cpu": 1}, "count": 2}],
    )
    assert plan(snapshot).waiting == ()
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_gang_on_launches_for_a_min_leaves_a_machine_that_is_called_back_to_another(state: State) -> None:
    snapshot = scenario(
        "best-fit",
        groups={
            "held": {"resources": {"gpu": 1}, "max": 2, "spare": 1},
            "large": {"resources": {"cpu": 3}, "max": 2},
            "min": {"resources": {"cpu": 2, "gpu": 1}, "max": 2, "min": 2},
        },
        slices=[{"id": "back", "group": "large", "state": "draining"}],
        demands=[
            {"id": "train", "gang": "any", "bundles": [{"needs": {"gpu": 1}}]},
            {"id": "anywhere", "gang": "any", "bundles": [{"needs": {"cpu": 1}, "count": 3}]},
            {"id": "one-node", "gang": "same-node", "bundles": [{"needs": {"cpu": 1}, "count": 3}]},
            {"id": "impossible", "gang": "spread", "bundles": [{"needs": {"memory": "2Gi"}}]},
        ],
    )
    made = plan(snapshot)
    assert made.launch == {"held": 1, "min": 2}
    assert {one.on for one in made.placements if one.demand == "one-node"} == {"back"}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_job_shares_a_machine_in_use_when_the_one_that_is_called_back_is_the_spare(state: State) -> None:
    snapshot = scenario(
        "best-fit",
        groups={
            "min": {"resources": {"gpu": 1, "memory": "2Gi"}, "max": 1, "min": 1},
            "held": {"resources": {"cpu": 1}, "max": 3, "min": 2, "spare": 1},
            "memory": {"resources": {"memory": "2Gi"}, "max": 2, "spare": 1},
        },
        slices=[
            {"id": "back", "group": "held", "state": "cordoned"},
            {"id": "busy", "group": "held", "state": "ready", "nodes": [{"id": "n", "tasks": 1}]},
        ],
        demands=[
            {"id": "job", "needs": {"cpu": 1}},
            {"id": "gang", "gang": "any", "bundles": [{"needs": {"memory": "2Gi"}}]},
        ],
    )
    made = plan(snapshot)
    assert made.launch == {"min": 1, "memory": 1}
    assert {one.on for one in made.placements if one.demand == "job"} == {"busy"}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_gang_takes_the_spare_of_its_family_rather_than_two_machines_for_a_min(state: State) -> None:
    snapshot = scenario(
        "best-fit",
        families={"fast": {"max": 4, "spare": 2}},
        groups={
            "single": {"resources": {"cpu": 2}, "max": 2, "min": 2, "spare": 1, "family": "fast"},
            "pair": {"resources": {"cpu": 1}, "hosts": 2, "family": "fast"},
        },
        demands=[{"id": "gang", "gang": "same-slice", "bundles": [{"needs": {"cpu": 1}, "count": 2}]}],
    )
    made = plan(snapshot)
    assert made.launch == {"single": 2, "pair": 1}
    assert {one.on for one in made.placements} == {"new:pair:0"}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_demand_does_not_use_up_the_only_launch_that_a_spare_may_have(state: State) -> None:
    """The group may launch one machine at a time: if a job takes it, the spare of the group is missing."""
    snapshot = scenario(
        "rank",
        families={"fast": {"max": 3, "spare": 2}},
        groups={
            "a": {"resources": {"cpu": 1}, "spare": 1, "max_launching": 1, "family": "fast"},
            "b": {"resources": {"cpu": 1, "gpu": 1}, "max": 2},
            "c": {"resources": {"cpu": 1}, "family": "fast"},
        },
        demands=[{"id": "jobs", "needs": {"cpu": 1}, "count": 2}],
    )
    made = plan(snapshot)
    assert made.launch == {"a": 1, "b": 2, "c": 1}
    assert {one.on for one in made.placements} == {"new:b:0", "new:b:1"}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_gang_does_not_take_the_spare_that_a_machine_being_called_back_leaves(state: State) -> None:
    snapshot = scenario(
        "rank",
        groups={
            "held": {"resources": {"cpu": 2}, "max": 2, "spare": 2},
            "mixed": {"resources": {"cpu": 2, "gpu": 1}, "max": 2},
        },
        slices=[{"id": "back", "group": "held", "state": "draining"}],
        demands=[
            {"id": "job", "needs": {"cpu": 1}, "priority": 1},
            {"id": "gang", "gang": "any", "bundles": [{"needs": {"cpu": 1, "gpu": 1}}, {"needs": {"cpu": 2}}]},
        ],
    )
    assert plan(snapshot).launch == {"held": 1, "mixed": 2}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_gang_that_may_go_anywhere_leaves_a_machine_that_is_called_back_to_the_job_that_needs_it(
    state: State,
) -> None:
    """No minimum is held here."""
    snapshot = scenario(
        "cheapest",
        groups={
            "large": {"resources": {"cpu": 8}, "max": 1, "price": 1},
            "zoned": {"resources": {"cpu": 4}, "max": 2, "price": 1, "labels": {"zone": "b"}},
        },
        slices=[{"id": "back", "group": "zoned", "state": "draining"}],
        demands=[
            {"id": "gang", "gang": "any", "bundles": [{"needs": {"cpu": 4}, "count": 2}]},
            {"id": "job", "needs": {"cpu": 1}, "where": ["zone == b"]},
        ],
    )
    assert plan(snapshot).waiting == ()
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_gang_without_accelerators_does_not_use_launches_of_a_spare_that_has_them(state: State) -> None:
    """The group of the machine that is called back launches nothing, because it is in back-off."""
    snapshot = scenario(
        "cheapest",
        now=1000,
        groups={
            "gpu": {"resources": {"cpu": 1, "gpu": 1}, "max": 2, "spare": 1, "price": 1},
            "refused": {
                "resources": {"cpu": 1},
                "max": 1,
                "price": 1,
                "availability": {"state": "backoff", "until": 2000},
            },
            "small": {"resources": {"cpu": 1}, "max": 2, "price": 1},
        },
        slices=[{"id": "back", "group": "refused", "state": "cordoned"}],
        demands=[
            {"id": "job", "needs": {"cpu": 1}},
            {"id": "gang", "gang": "same-slice", "bundles": [{"needs": {"cpu": 1}, "count": 2}]},
        ],
    )
    made = plan(snapshot)
    assert made.waiting == ()
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_a_cost_ceiling_is_not_used_up_by_a_machine_that_the_next_plan_does_not_need(state: State) -> None:
    snapshot = read_plain(
        {
            "cluster": {"max_hourly_cost": 6},
            "groups": {
                "small": {"resources": {"cpu": 1}, "max": 1, "price": 1},
                "held": {"resources": {"cpu": 2}, "max": 2, "spare": 1, "price": 3},
            },
            "slices": [{"id": "s", "group": "held", "state": "requesting"}],
            "demands": [{"id": "jobs", "needs": {"cpu": 1}, "count": 2}],
        }
    )
    assert plan(snapshot).launch == {"held": 1}
    assert cancelled_next(snapshot, state) == []


@IN_FLIGHT
def test_work_moves_to_a_machine_that_is_launched_for_a_min(state: State) -> None:
    """The min counts busy machines too, so one launch serves both."""
    wanted = {"resources": {"cpu": 2}, "max": 2, "price": 1, "min": 1}
    snapshot = replace(MOVING, groups=scenario("cheapest", groups={"wanted": wanted}).groups + MOVING.groups[:1])
    made = plan(snapshot)
    assert made.launch == {"wanted": 1}
    assert [change.slice for change in made.drain] == ["b"]
    assert cancelled_next(snapshot, state) == []


def test_work_moves_to_no_machine_that_is_the_spare_of_its_group_and_counts_for_its_min() -> None:
    wanted = {"resources": {"cpu": 2}, "max": 2, "price": 1, "min": 1, "spare": 1}
    snapshot = replace(MOVING, groups=scenario("cheapest", groups={"wanted": wanted}).groups + MOVING.groups[:1])
    assert plan(snapshot).launch == {"wanted": 2}
    assert cancelled_next(snapshot, State.QUEUED) == []


def test_a_gang_is_served_at_once_if_the_launch_of_a_spare_makes_it_possible() -> None:
    """The next plan would place half of it on the spare, and buy the rest within the limit."""
    snapshot = read_plain(
        {
            "cluster": {"max_nodes": 3},
            "groups": {
                "held": {"resources": {"cpu": 8}, "max": 1, "spare": 1},
                "gpu": {"resources": {"cpu": 4, "gpu": 2}, "max": 3, "labels": {"zone": "b"}},
            },
            "demands": [
                {
                    "id": "gang",
                    "gang": "any",
                    "bundles": [{"needs": {"cpu": 1, "gpu": 2}, "count": 2}, {"needs": {"cpu": 4}, "count": 2}],
                    "prefer": ["zone == b"],
                }
            ],
        }
    )
    made = plan(snapshot)
    assert made.waiting == ()
    assert made.launch == {"held": 1, "gpu": 2}
    assert plan(launches_on_their_way(snapshot, made, State.QUEUED)).launch == {}
