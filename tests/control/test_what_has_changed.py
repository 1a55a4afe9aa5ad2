"""A pass processes only what has changed, with the same result as a pass over everything."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from windlass.control.observe.observed import Observed, observed_after
from windlass.control.observe.validation import InvalidAnswer, Lists, Views
from windlass.control.reconcile import cycle
from windlass.control.settings import Settings
from windlass.control.state.active_slices import ActiveSlices
from windlass.control.state.diff import diff, updated
from windlass.control.state.fleet import Fleet, SliceRecord
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason
from windlass.core.model.snapshot import Bundle, Demand, Node
from windlass.providers.protocol import Host, Instance
from windlass.sim.fuzz.random_script import arbitrary_script
from windlass.sim.run.simulation import Simulation, simulate
from windlass.workloads.protocol import WorkloadView, WorkNode

WHY = Reason(Code.DEMAND, "for a test")


def a_record(name: str, state: State = State.READY, tasks: int = 1, **more: Any) -> SliceRecord:
    nodes = (Node(f"{name}/0", tasks=tasks),) if state == State.READY else ()
    more.setdefault("billed_since", 0.0)
    return SliceRecord(name, more.pop("group", "gpu"), "cloud", state, 0, WHY, WHY, 7, nodes=nodes, **more)


def an_instance(name: str, **more: Any) -> Instance:
    return Instance(name, "gpu", "running", (Host(f"{name}/0"),), **more)


# -- the roll ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what",
    [
        {"state": State.BOOTING},
        {"tasks": 0},
        {"fence": 1},
        {"quarantine": "odd"},
        {"absent_since": 1.0},
        {"unwell_since": 1.0},
        {"leaving": WHY},
        {"marked_until": 9.0},
    ],
    ids=str,
)
def test_a_slice_for_which_a_clock_runs_or_a_call_is_due_is_astir(what: dict[str, Any]) -> None:
    fleet = Fleet().with_records(a_record("a"), a_record("b", **what))
    assert list(fleet.activity.active) == ["b"]
    assert fleet.activity.steady["gpu"].slices == 1


def test_the_cost_of_slices_at_work_is_a_sum_for_each_group() -> None:
    half = replace(a_record("b"), nodes=(Node("b/0", tasks=1), Node("b/1")))
    activity = Fleet().with_records(a_record("a"), half, a_record("c", group="tpu")).activity
    assert (activity.steady["gpu"].price, activity.steady["gpu"].work) == (14, 7 + 3)
    assert (activity.steady["tpu"].price, activity.steady["tpu"].work) == (7, 7)


def test_a_record_with_other_values_is_what_replace_makes_of_it() -> None:
    record = a_record("a")
    assert record.steady
    assert record.planned_with.state == State.READY
    other = record.replace(state=State.CORDONED, fence=3)
    assert other == replace(record, state=State.CORDONED, fence=3)
    assert (other.steady, other.planned_with.state, other.nodes) == (False, State.CORDONED, record.nodes)
    assert record.steady
    with pytest.raises(TypeError, match="no fields of SliceRecord: \\['fenec'\\]"):
        record.replace(fenec=3)


@pytest.mark.parametrize("seed", range(20))
def test_updated_active_slices_equal_those_built_from_scratch(seed: int) -> None:
    dice, fleet = Random(seed), Fleet()
    assert fleet.activity.active == {}
    for _ in range(60):
        names = dice.sample([f"s-{number}" for number in range(12)], dice.randint(0, 4))
        states = (State.READY, State.READY, State.BOOTING, State.DRAINING)
        records = {
            name: a_record(name, dice.choice(states), dice.randint(0, 2), group=dice.choice("ab")) for name in names
        }
        over = [name for name in fleet.slices if name not in records and dice.random() < 0.2]
        fleet = fleet.after(records, over)
        assert fleet.activity == ActiveSlices.of(fleet.slices.values())
        assert fleet.planned_with == Fleet(fleet.slices).planned_with


def test_a_book_that_nothing_was_done_to_is_the_same_book() -> None:
    fleet = Fleet().with_records(a_record("a"))
    assert fleet.after({}, provider_health=fleet.provider_health, gone=fleet.gone) is fleet


# -- what shows ----------------------------------------------------------------------------------------------------


def test_a_list_that_shows_the_same_again_is_the_same_table_with_the_same_instances() -> None:
    lists = Lists()
    first = lists([an_instance("a"), an_instance("b")])
    again = lists([an_instance("b"), an_instance("a")])
    assert again is first


def test_of_a_list_only_what_has_changed_is_another_object() -> None:
    lists = Lists()
    a, b = an_instance("a"), an_instance("b")
    first = lists((a, b))
    second = lists((a, an_instance("c"), replace(b, state="ending")))
    assert (second["a"] is a, second["b"].state, second["c"].slice_id) == (True, "ending", "c")
    assert dict(lists((a,))) == {"a": a}
    assert dict(first) == {"a": a, "b": b}, "what was handed out is not changed"


@pytest.mark.parametrize("again", [lambda a: a, lambda a: replace(a, zone="z"), lambda a: an_instance("a")])
def test_a_list_that_shows_a_slice_twice_is_garbage_whatever_it_showed_before(again: Any) -> None:
    lists, a = Lists(), an_instance("a")
    lists((a, an_instance("b")))
    for _ in range(2):
        with pytest.raises(InvalidAnswer, match="shows a twice"):
            lists((a, an_instance("b"), again(a)))
    assert set(lists((a,))) == {"a"}


def test_a_wrong_demand_is_reported_at_every_observation_and_left_out() -> None:
    views, good = Views(), Demand("good", (Bundle((("gpu", 1),)),))
    bad = Demand("bad", (Bundle((("gpu", 1.5),)),))  # type: ignore[arg-type]
    assert views(WorkloadView((good,))).mistakes == ()
    for _ in range(3):
        work = views(WorkloadView((good, bad)))
        assert list(work.demand) == ["good"]
        [mistake] = work.mistakes
        assert mistake.startswith("demand bad is not valid")
    assert views(WorkloadView((good,))).mistakes == ()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_shown_the_tables_are_those_of_a_first_look(seed: int) -> None:
    dice, views = Random(seed), Views()
    nodes = [WorkNode(f"n-{number}", f"s-{number % 3}", tasks=number % 2) for number in range(8)]
    observed = Observed()
    assert observed.nodes_of == {}
    for _ in range(40):
        for place, node in enumerate(nodes):
            if dice.random() < 0.2:
                nodes[place] = replace(node, tasks=dice.randint(0, 2), slice_id=f"s-{dice.randint(0, 3)}")
        some = tuple(dice.sample(nodes, dice.randint(0, len(nodes))))
        if dice.random() < 0.5:  # most answers come in one order
            some = tuple(node for node in nodes if node in some)
        shown = some if dice.random() < 0.5 else tuple(replace(node) for node in some)
        work = views(WorkloadView(nodes=shown))
        assert dict(work.node) == {node.id: node for node in shown}
        assert work.view.nodes == shown
        following = _seen(observed, work)
        assert {name: set(map(id, many)) for name, many in following.nodes_of.items()} == {
            name: set(map(id, many)) for name, many in Observed(node=work.node).nodes_of.items()
        }
        assert following.touched_since(observed) == _by_hand(observed.node, work.node)
        observed = following


def _seen(before: Observed, work: Any) -> Observed:
    return observed_after(before, {"cloud": {}}, work, {}, None, Settings(()))


def _by_hand(before: Any, after: Any) -> set[str]:
    found = set()
    for name in {*before, *after}:
        if before.get(name) is not after.get(name):
            found |= {one.slice_id for one in (before.get(name), after.get(name)) if one is not None}
    return found


def test_two_tables_differ_in_what_is_new_another_or_gone() -> None:
    one, other = object(), object()
    before = {"same": one, "other": one, "gone": one}
    after = {"same": one, "other": other, "new": other}
    found = diff(before, after)
    assert (sorted(found.changed), found.gone) == (["new", "other"], ["gone"])
    assert diff(before, before) == ((), ())


@pytest.mark.parametrize("seed", range(10))
def test_the_diff_over_several_steps_equals_the_full_diff_of_both_ends(seed: int) -> None:
    dice = Random(seed)
    first = table = {f"s-{number}": object() for number in range(20)}
    for _ in range(dice.randint(1, 12)):
        touched = dice.sample([f"s-{number}" for number in range(25)], 4)
        news = {name: dice.choice((object(), first.get(name) or object())) for name in touched[:3]}
        table = updated(table, news, touched[3:])
    found = diff(first, table)
    assert set(found.changed) == {name for name, one in table.items() if first.get(name) is not one}
    assert set(found.gone) == first.keys() - table.keys()


def test_controllers_on_several_threads_do_not_disturb_each_other() -> None:
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work(name: str) -> int:
        tables: list[dict[str, object]] = [{}]
        for number in range(3_000):
            after = updated(tables[-1], {f"{name}-{number % 50}": object()})
            tables = [*tables[-9:], after]
            assert len(diff(tables[0], after).changed) == len(tables) - 1
        return len(after)

    try:
        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(work, "abcd")) == [50] * 4
    finally:
        sys.setswitchinterval(usual)


# -- the whole pass ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(600, 620))
def test_a_pass_over_everything_decides_and_writes_the_same(seed: int, monkeypatch: Any) -> None:
    quick = simulate(arbitrary_script(seed, hours=0.5), thorough=False)
    monkeypatch.setattr(cycle, "_touched", lambda *_: None)
    assert simulate(arbitrary_script(seed, hours=0.5), thorough=False).digest == quick.digest


@pytest.mark.parametrize("seed", range(620, 630))
def test_through_faults_and_restarts_all_that_is_brought_along_is_right(seed: int) -> None:
    def look(engine: Simulation) -> None:
        for leader in engine.leaders:
            controller_state = leader.controller.controller_state
            assert controller_state.fleet.activity == ActiveSlices.of(controller_state.fleet.slices.values())
            assert {name: set(map(id, many)) for name, many in controller_state.observed.nodes_of.items()} == {
                name: set(map(id, many))
                for name, many in Observed(node=controller_state.observed.node).nodes_of.items()
            }

    assert simulate(arbitrary_script(seed, hours=0.5), thorough=False, watch=look).breaches == ()
