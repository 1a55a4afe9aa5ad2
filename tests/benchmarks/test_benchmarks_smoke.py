"""The benchmarks run, on inputs so small that nothing is measured: their plans are sound, their tables can be shown."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from types import ModuleType

import pytest
from benchmarks.assignment_bound import assignment_bound
from benchmarks.inputs import Size, as_snapshot, listed, make, one_each
from benchmarks.simple_packers import best_value_type, cheapest_type, first_fit_decreasing
from benchmarks.table import Table, as_markdown, as_text, of_checks, seconds
from benchmarks.targets import at_least, at_most, below

import windlass
from benchmarks import (
    against_ray,
    cost_bound,
    document,
    growth,
    karpenter_mix,
    karpenter_pods,
    parts,
    shared_data,
    spot,
    traces,
)
from windlass.core.model.snapshot import Choose
from windlass.core.plan_laws import broken_laws

STRATEGIES: tuple[Choose, ...] = ("best-fit", "cheapest")

MODULES: dict[str, ModuleType] = {
    module.NAME: module
    for module in (growth, karpenter_mix, karpenter_pods, cost_bound, against_ray, traces, parts, spot)
}


def shown(result: dict) -> str:
    """The result as text and as a page, as it comes back from disk."""
    machine = {"date": "2000-01-01", "processor": "one", "cores": 1, "python": "3", "numpy": "2"}
    kept = json.loads(json.dumps({**result, "which": "quick", "machine": machine}))
    module = MODULES[kept["name"]]
    text = "\n".join(as_text(table) for table in [*module.tables(kept), of_checks(kept["checks"])])
    page = document.tables_page({kept["name"]: kept}, MODULES)
    for check in kept["checks"]:
        assert check["what"] in text
        assert check["what"] in page
    assert module.TITLE in page
    return text


# -- targets and tables ------------------------------------------------------------------------------------------------


def test_a_target_is_judged_by_its_own_words():
    assert below("time", 1.0, 1)["reached"] is False
    assert at_most("nodes", 0, 0)["reached"] is True
    assert at_least("ratio", 499.9, 500, "x")["reached"] is False


def test_what_is_only_known_from_below_is_never_called_missed():
    assert at_least("ratio", 600, 500, lower=True)["reached"] is True
    assert at_least("ratio", 400, 500, lower=True)["reached"] is None


def test_times_have_three_digits_that_matter():
    assert [seconds(value) for value in (0.00123, 0.0123, 0.123, 1.23, 12.3, 123)] == [
        *("1.23 ms", "12.3 ms", "123 ms"),
        *("1.23 s", "12.3 s", "123 s"),
    ]


def test_a_table_reads_the_same_in_a_terminal_and_in_markdown():
    table = Table("Title", ("who", "nodes"), (("a", "10"), ("bb", "5")), note="Note.")
    assert as_text(table).splitlines()[2:6] == ["who  nodes", "---  -----", "a       10", "bb       5"]
    assert as_markdown(table).splitlines()[2:6] == ["| who | nodes |", "| --- | ---: |", "| a | 10 |", "| bb | 5 |"]


# -- inputs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gangs", ["none", "strict-spread", "pack", "strict-pack"])
def test_an_input_has_as_many_demands_as_its_size_says(gangs):
    problem = make(Size(200, 10, gangs=gangs))
    assert problem.demands == 200
    assert problem == make(Size(200, 10, gangs=gangs))


@pytest.mark.parametrize("fill", ["full", "half"])
@pytest.mark.parametrize(("choose", "price"), [("best-fit", None), ("cheapest", one_each), ("cheapest", listed)])
def test_plans_of_the_inputs_are_sound_and_serve_everything(fill, choose, price):
    snapshot = as_snapshot(make(Size(300, 10, fill)), choose, price)
    plan = windlass.plan(snapshot)
    assert list(broken_laws(snapshot, plan)) == []
    assert plan.waiting == ()


# -- growth ------------------------------------------------------------------------------------------------------------


def test_growth_measures_every_axis():
    rows = []
    for choose in STRATEGIES:
        rows += [growth.demand_row(count, choose, shapes=5, types=5) for count in (50, 500)]
        rows += [growth.node_row(count, choose, demands=100) for count in (5, 10)]
        rows.append(growth.file_row(200, choose, shapes=5))
    result = {"name": growth.NAME, "rows": rows, "checks": growth.checks(rows)}
    assert "JSON" in shown(result)
    assert all(row["waiting"] == 0 for row in rows)


def test_memory_is_measured_in_a_process_of_its_own():
    row = growth.largest_row("best-fit", Size(100, 5, shapes=5, types=5))
    assert 10 < row["peak_mb"] < 200
    assert row["seconds"] > 0


def test_the_file_has_an_entry_for_every_demand():
    snapshot = windlass.read_scenario(growth.scenario_text(150, 5, "cheapest"))
    assert len(snapshot.demands) == 150
    assert len({demand.bundles for demand in snapshot.demands}) == 5


# -- Karpenter's mix ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choose", STRATEGIES)
def test_the_mix_has_a_fifth_of_each_kind_and_is_served(choose):
    snapshot = karpenter_mix.mix(200, choose, types=8)
    pods = dict.fromkeys(karpenter_mix.KINDS, 0)
    for demand in snapshot.demands:
        kind = next(kind for kind in pods if demand.id.startswith(kind.replace(" ", "-")))
        pods[kind] += demand.count
    assert set(pods.values()) == {40}
    plan = windlass.plan(snapshot)
    assert list(broken_laws(snapshot, plan)) == []
    assert plan.waiting == ()


def test_the_mix_is_measured_in_pods_per_second():
    rows = [karpenter_mix.row(100, choose, types=4) for choose in STRATEGIES]
    text = shown({"name": karpenter_mix.NAME, "rows": rows, "checks": karpenter_mix.checks(rows)})
    assert "its own pods" in text


# -- Karpenter's pods --------------------------------------------------------------------------------------------------


def few_pods() -> list[karpenter_pods.Pod]:
    kinds = ("plain", "spread-zone", "spread-host", "same-zone", "one-per-host")
    return [
        karpenter_pods.Pod(f"pod-{at:05}", kinds[at % 5], 100 + 100 * (at % 3), 256, label, label)
        for at in range(50)
        for label in ("alone" if at % 5 == 4 else f"app-{at % 4}",)
    ]


def test_karpenters_pods_are_placed_within_their_constraints_and_the_checker_sees_a_wrong_one():
    pods = few_pods()
    snapshot = karpenter_pods.as_snapshot(pods, types=6)
    plan = windlass.plan(snapshot)
    assert list(karpenter_pods.wrong(pods, snapshot, plan)) == []
    crowded = [replace(pod, cpu=pod.cpu * 100) for pod in pods]
    assert list(karpenter_pods.wrong(crowded, snapshot, plan))


def test_karpenters_pods_are_measured_next_to_karpenter():
    rows = [{**karpenter_pods.row(few_pods(), types=4), "pods": 2_000}]
    text = shown({"name": karpenter_pods.NAME, "rows": rows, "checks": karpenter_pods.checks(rows)})
    assert "Karpenter 1.15" in text


def test_without_the_data_karpenters_pods_are_not_measured(monkeypatch, tmp_path):
    monkeypatch.setenv("WINDLASS_DATA", str(tmp_path))
    result = karpenter_pods.measure()
    assert "set WINDLASS_DATA" in result["skipped"]
    assert not result["checks"]


# -- cost --------------------------------------------------------------------------------------------------------------

KINDS = (
    shared_data.MachineType("small", 4_000, 16_384, 0, "", 200_000_000),
    shared_data.MachineType("large", 16_000, 65_536, 0, "", 700_000_000),
    shared_data.MachineType("gpu", 16_000, 65_536, 2, "T4", 2_000_000_000),
)
WORK = (
    shared_data.Pods(4_000, 1_024, 500, ("T4",), 5),
    shared_data.Pods(4_000, 8_192, 0, (), 7),
    shared_data.Pods(2_000, 8_192, 2_000, (), 1),
)


@pytest.mark.parametrize("choice", [best_value_type, cheapest_type])
def test_simple_packers_put_every_pod_on_a_machine_that_holds_it(choice):
    bought = first_fit_decreasing(WORK, KINDS, choice)
    # Two GPUs for the pod that needs both, and 4 shares of a half on the two of another machine, and one more.
    assert sum(kind.name == "gpu" for kind in bought) == 3
    assert sum(kind.cpu for kind in bought) >= sum(pods.cpu * pods.count for pods in WORK)


def test_no_plan_is_below_the_assignment_bound():
    pytest.importorskip("scipy", reason="scipy is not installed: pip install '.[bench]'")
    bound = assignment_bound(WORK, KINDS)
    row = cost_bound.windlass_row(WORK, KINDS, "cheapest")
    assert 0 < bound <= row["dollars"]
    assert row["waiting"] == 0


@pytest.mark.skipif(shared_data.missing() is not None, reason=str(shared_data.missing()))
def test_cost_is_measured_on_the_machines_that_the_bound_is_for():
    kinds = shared_data.catalogue()
    assert len(kinds) == 112
    left_out = [shared_data.pods(name, kinds)[1] for name in shared_data.POD_FILES]
    assert left_out == [0, 1]


@pytest.mark.skipif(shared_data.missing() is not None, reason=str(shared_data.missing()))
def test_cost_against_the_bound_can_be_shown():
    kinds = shared_data.catalogue()
    name = shared_data.POD_FILES[0]
    work = shared_data.pods(name, kinds)[0]
    rows = [
        cost_bound.windlass_row(work, kinds, "cheapest"),
        cost_bound.simple_row(work, kinds, next(iter(cost_bound.SIMPLE))),
    ]
    given = {"pods": name, "count": 1, "left_out": 0, "types": len(kinds)}
    rows = [{**given, **row, "ratio": row["dollars"] / shared_data.bounds()[name].lower} for row in rows]
    result = {"name": cost_bound.NAME, "rows": rows, "checks": cost_bound.checks(rows)}
    assert "lower bound" in shown(result)
    assert all(row["ratio"] >= 1 for row in rows)


def test_without_the_data_cost_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("WINDLASS_DATA", str(tmp_path))
    assert "WINDLASS_DATA" in cost_bound.measure()["skipped"]


# -- traces ------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(shared_data.missing(traces.FILES) is not None, reason=str(shared_data.missing(traces.FILES)))
def test_the_peers_are_compared_on_real_jobs_and_it_can_be_shown(monkeypatch):
    few = ({"file": traces.FILES[0], "first_day": 1, "jobs": 6}, {"file": traces.FILES[1], "first_day": 40, "jobs": 6})
    monkeypatch.setitem(traces.WINDOWS, "quick", few)
    result = traces.measure("quick")
    text = shown(result)
    assert all(who in text for who in (traces.DEFAULT, *traces.PREMIUMS, traces.FIXED, *traces.PEERS, "offline bound"))
    assert all(row["finished"] == 6 and row["ratio"] >= 1 and not row["breaches"] for row in result["rows"])


def test_without_the_traces_the_comparison_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("WINDLASS_DATA", str(tmp_path))
    assert "WINDLASS_DATA" in traces.measure()["skipped"]


# -- Ray ---------------------------------------------------------------------------------------------------------------

needs_ray = pytest.mark.skipif(against_ray.ray_missing() is not None, reason=str(against_ray.ray_missing()))


@needs_ray
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("size", [Size(40, 4), Size(40, 4, "full"), Size(48, 4, gangs="strict-spread")], ids=str)
def test_ray_gets_the_same_input_and_serves_it(size):
    result = against_ray.measure_sizes([size], lambda _: None, limit=20)
    (row,) = result["rows"]
    assert row["ray"]["unserved"] == row["windlass"]["best-fit"]["unserved"] == 0
    assert row["ray"]["launched"] > 0
    assert shown(result)


@needs_ray
@pytest.mark.filterwarnings("default")
def test_a_peer_that_takes_too_long_is_ended_and_larger_inputs_are_not_tried():
    small, large = Size(300, 400), Size(400, 400)
    rows = against_ray.measure_sizes([small, large], lambda _: None, limit=0)["rows"]
    assert [row["ray"] for row in rows] == [None, None]
    assert [row["ray_skipped_because_of"] for row in rows] == [None, asdict(small)]


def test_without_ray_the_comparison_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(against_ray, "ray_missing", lambda: "Ray is not installed: pip install '.[bench]'")
    assert "pip install" in against_ray.measure()["skipped"]


@pytest.mark.skipif(shared_data.missing(traces.FILES) is not None, reason=str(shared_data.missing(traces.FILES)))
def test_other_parts_are_compared_with_the_cheapest_peer(monkeypatch):
    monkeypatch.setitem(parts.WINDOWS, "quick", ({"file": traces.FILES[1], "first_day": 60, "jobs": 5},))
    result = parts.measure("quick")
    assert "philly, day 60" in shown(result)
    assert [row["who"] for row in result["rows"]] == [traces.DEFAULT, *traces.PREMIUMS, parts.PEER]
    assert all(check["reached"] for check in result["checks"][1:])


# -- spot --------------------------------------------------------------------------------------------------------------


NO_SPOT = shared_data.missing((spot.JOBS, spot.STOCK))


@pytest.mark.skipif(NO_SPOT is not None, reason=str(NO_SPOT))
def test_spot_machines_are_half_of_those_that_can_be_bought(monkeypatch):
    monkeypatch.setitem(spot.INPUTS, "quick", 4)
    result = spot.measure("quick")
    text = shown(result)
    assert all(who in text for who in (spot.FIRM, spot.SPOT))
    assert all(check["reached"] for check in result["checks"])
    groups = [one.group for one in spot.with_spot(spot.world_for(3600, 40)).groups]
    firm = {one.name: one for one in groups if not one.preemptible}
    cheaper = {one.name.removesuffix("-spot"): one for one in groups if one.preemptible}
    assert firm.keys() == cheaper.keys()
    assert all((cheaper[name].price or 0) < (one.price or 0) for name, one in firm.items())


def test_without_a_recording_it_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("WINDLASS_DATA", str(tmp_path))
    assert "WINDLASS_DATA" in spot.measure()["skipped"]
