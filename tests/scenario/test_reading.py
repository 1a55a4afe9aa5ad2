"""What a scenario file says, key by key, and what it means when it says nothing."""

from __future__ import annotations

import json
import time
from fractions import Fraction

import pytest

from windlass import read_scenario
from windlass._gc_pause import uncollected
from windlass.core.model.conditions import Condition, Taint, Toleration
from windlass.core.model.lifecycle import State
from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import (
    Availability,
    Bundle,
    Cluster,
    Demand,
    Gang,
    Group,
    LowUtilization,
    Node,
    ScaleDown,
    Slice,
    UtilizationTarget,
)
from windlass.core.planner import plan

GI = 2**30
EVERY_KEY = """
now: 1000
cluster: {max_nodes: 50, max_hourly_cost: 40.0, max_launching: 100, choose: best-fit, effort: 7}
groups:
  gpu-a:
    resources: {cpu: 32, memory: 128Gi, gpu: 4}
    labels: {zone: us-1a, gpu-model: A100, ready: true, version: 2, share: 0.5}
    taints: [{key: gpu, value: "yes", effect: NoExecute}, {key: new}]
    hosts: 1
    min: 1
    max: 8
    spare: 2
    rank: 0
    price: 12.5
    preemptible: true
    max_launching: 4
    scale_down:
      idle_timeout: 60
      low_utilization: {below: 0.30, keep: 1}
      utilization: {percent: 80, delay: 600, spare_nodes: 3, resource: gpu}
      consolidate: true
    availability: {state: backoff, until: 1200, why: refused}
    protected: [s-0]
    boot_seconds: 90.5
    frozen: true
slices:
  - id: s-1
    group: gpu-a
    state: ready
    since: 800
    marked_until: 1300
    nodes:
      - {id: n-1, used: {gpu: 2.5, cpu: 500m}, tasks: 2, idle_since: 7, labels: {rack: r7}, healthy: false}
demands:
  - id: train
    needs: {cpu: 4, gpu: 0.5}
    count: 3
    where: ["zone in (us-1a, us-1b)", "gpu-model == A100"]
    prefer: ["preemptible == true"]
    tolerates: [{key: gpu, operator: Exists}, {key: a, value: b, effect: NoSchedule}]
    priority: -5
    since: 950
  - id: pg-7
    gang: spread
    deadline: 1600
    bundles:
      - {needs: {cpu: 1}, count: 2}
      - {needs: {gpu: 1}}
requests:
  - {id: keep-8-cpus, needs: {cpu: 1}, count: 8}
  - {id: keep-a-pair, gang: same-node, bundles: [{needs: {gpu: 1}, count: 2}]}
  - {id: keep-both, bundles: [{needs: {gpu: 1}}, {needs: {cpu: 8}}]}
"""


def test_every_key_is_read():
    snapshot = read_scenario(EVERY_KEY)
    assert snapshot.now == 1000
    assert snapshot.cluster == Cluster(50, 40 * NANO, 100, "best-fit", 7)
    assert snapshot.groups == (
        Group(
            name="gpu-a",
            resources=(("cpu", 32_000), ("gpu", 4000), ("memory", 128 * GI)),
            max=8,
            labels={"zone": "us-1a", "gpu-model": "A100", "ready": "true", "version": "2", "share": "0.5"},
            taints=(Taint("gpu", "yes", "NoExecute"), Taint("new", "", "NoSchedule")),
            hosts=1,
            min=1,
            spare=2,
            rank=0,
            price=12_500_000_000,
            preemptible=True,
            max_launching=4,
            scale_down=ScaleDown(
                idle_timeout=60,
                low_utilization=LowUtilization(Fraction(3, 10), 1),
                utilization=UtilizationTarget(80, 600, 3, "gpu"),
                consolidate=True,
            ),
            availability=Availability("backoff", 1200, "refused"),
            protected=frozenset({"s-0"}),
            boot_seconds=90.5,
            frozen=True,
        ),
    )
    node = Node("n-1", (("cpu", 500), ("gpu", 2500)), 2, 7, {"rack": "r7"}, False)
    assert snapshot.slices == (Slice("s-1", "gpu-a", State.READY, 800, 1300, (node,)),)
    assert snapshot.demands == (
        Demand(
            id="train",
            bundles=(Bundle((("cpu", 4000), ("gpu", 500)), 3),),
            where=(Condition("zone", "in", ("us-1a", "us-1b")), Condition("gpu-model", "==", ("A100",))),
            prefer=(Condition("preemptible", "==", ("true",)),),
            tolerates=(Toleration("gpu", "Exists"), Toleration("a", "Equal", "b", "NoSchedule")),
            priority=-5,
            since=950,
        ),
        Demand(
            id="pg-7",
            bundles=(Bundle((("cpu", 1000),), 2), Bundle((("gpu", 1000),), 1)),
            gang=Gang.SPREAD,
            deadline=1600,
        ),
    )
    assert snapshot.requests == (
        Demand("keep-8-cpus", (Bundle((("cpu", 1000),), 8),)),
        Demand("keep-a-pair", (Bundle((("gpu", 1000),), 2),), Gang.SAME_NODE),
        Demand("keep-both", (Bundle((("gpu", 1000),)), Bundle((("cpu", 8000),))), Gang.ANY),
    )


def test_what_is_left_out_has_its_default():
    snapshot = read_scenario("""
        groups: {g: {resources: {cpu: 4}, max: 5}}
        slices: [{id: s, group: g, state: ready}]
        demands: [{id: d, needs: {}}]
    """)
    assert snapshot.now == 0
    assert snapshot.cluster == Cluster()
    assert snapshot.groups == (Group("g", (("cpu", 4000),), 5),)
    assert snapshot.slices == (Slice("s", "g", State.READY, nodes=(Node("s/0"),)),)
    assert snapshot.demands == (Demand("d", (Bundle((), 1),)),)


def test_null_is_the_same_as_leaving_the_key_out():
    text = """
        now:
        cluster: {max_nodes: , choose: }
        groups: {g: {resources: {cpu: 4}, max: 5, min: , labels: , taints: , scale_down: , availability: , price: }}
        slices: [{id: s, group: g, state: ready, since: , nodes: }]
        demands: [{id: d, needs: {cpu: 1}, count: , where: , gang: , bundles: , deadline: }]
        requests:
    """
    assert read_scenario(text) == read_scenario("""
        groups: {g: {resources: {cpu: 4}, max: 5}}
        slices: [{id: s, group: g, state: ready}]
        demands: [{id: d, needs: {cpu: 1}}]
    """)


def test_a_slice_has_as_many_nodes_as_its_group_has_hosts():
    snapshot = read_scenario("""
        groups: {pod: {resources: {tpu: 4}, max: 5, hosts: 3}}
        slices:
          - {id: a, group: pod, state: ready}
          - {id: b, group: pod, state: initializing, nodes: [{id: first}]}
          - {id: c, group: elsewhere, state: ready}
          - {id: d, group: elsewhere, state: ready, nodes: [{}, {used: {any: 3}}]}
    """)
    assert [[node.id for node in one.nodes] for one in snapshot.slices] == [
        ["a/0", "a/1", "a/2"],
        ["first", "b/1", "b/2"],
        ["c/0"],
        ["d/0", "d/1"],
    ]


@pytest.mark.parametrize(
    ("node", "tasks"), [("{}", 0), ("{used: {cpu: 1}}", 1), ("{used: {cpu: 0}}", 0), ("{used: {cpu: 1}, tasks: 0}", 0)]
)
def test_a_node_that_uses_something_has_one_task_by_default(node, tasks):
    snapshot = read_scenario(f"""
        groups: {{g: {{resources: {{cpu: 4}}, max: 5}}}}
        slices: [{{id: s, group: g, state: ready, nodes: [{node}]}}]
    """)
    assert snapshot.slices[0].nodes[0].tasks == tasks


def test_states_are_read_in_both_ways_of_writing():
    for state in State:
        for written in (state.value, state.value.upper()):
            text = f"groups: {{}}\nslices: [{{id: s, group: g, state: {written}}}]"
            assert read_scenario(text).slices[0].state is state


def test_a_count_of_zero_is_no_demand():
    snapshot = read_scenario("""
        groups: {}
        demands:
          - {id: none, needs: {cpu: 1}, count: 0}
          - {id: nobody, gang: any, bundles: [{needs: {cpu: 1}, count: 0}]}
          - {id: some, gang: any, bundles: [{needs: {cpu: 1}, count: 0}, {needs: {cpu: 2}}]}
    """)
    assert snapshot.demands == (Demand("some", (Bundle((("cpu", 2000),)),), Gang.ANY),)


def test_numbers_as_ids_and_names_are_the_text_that_was_written():
    snapshot = read_scenario("""
        groups: {1.10: {resources: {007: 1}, labels: {yes: no}, max: 1}}
        slices: [{id: 7, group: 8, state: lost}]
    """)
    assert snapshot.groups[0].name == "1.10"
    assert snapshot.groups[0].resources == (("007", 1000),)
    assert snapshot.groups[0].labels == {"yes": "false"}
    assert (snapshot.slices[0].id, snapshot.slices[0].group) == ("7", "8")


def test_a_date_is_the_text_that_was_written():
    snapshot = read_scenario("groups: {g: {resources: {cpu: 1}, max: 1, labels: {built: 2024-01-31}}}")
    assert snapshot.groups[0].labels == {"built": "2024-01-31"}


def test_resources_of_zero_are_not_there():
    snapshot = read_scenario("groups: {g: {resources: {cpu: 4, gpu: 0}, max: 5}}\ndemands: [{id: d, needs: {gpu: 0}}]")
    assert snapshot.groups[0].resources == (("cpu", 4000),)
    assert snapshot.demands[0].bundles == (Bundle((), 1),)


def test_a_scale_down_without_any_rule_is_none():
    for rules in ("{}", "{consolidate: false}", "{idle_timeout: }"):
        text = f"groups: {{g: {{resources: {{cpu: 1}}, max: 1, scale_down: {rules}}}}}"
        assert read_scenario(text).groups[0].scale_down is None


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_yaml_flow_yaml_block_and_json_give_the_same(mark):
    data = {"groups": {"g": {"resources": {"cpu": 4}, "max": 5}}, "demands": [{"id": "d", "needs": {"cpu": 1}}]}
    block = "groups:\n  g:\n    resources: {cpu: 4}\n    max: 5\ndemands:\n- id: d\n  needs: {cpu: 1}\n"
    flow = "{groups: {g: {resources: {cpu: 4}, max: 5}}, demands: [{id: d, needs: {cpu: 1}}]}"
    snapshots = [read_scenario(mark + text) for text in (json.dumps(data), json.dumps(data, indent=2), block, flow)]
    assert snapshots.count(snapshots[0]) == 4
    assert read_scenario((mark + block).encode()) == snapshots[0]


def test_anchors_and_merges_save_repeating():
    snapshot = read_scenario("""
        groups:
          a: &base {resources: {cpu: 4}, max: 5, labels: &labels {zone: x}}
          b: {<<: *base, max: 6}
          c: {<<: [{max: 1, rank: 3}, *base], labels: *labels}
    """)
    assert [(group.max, group.rank, group.labels["zone"]) for group in snapshot.groups] == [
        (5, 100, "x"),
        (6, 100, "x"),
        (1, 3, "x"),
    ]


def test_one_and_true_are_not_the_same_amount_though_python_says_so():
    text = '{"groups": {}, "demands": [{"id": "a", "needs": {"cpu": 1}}, {"id": "b", "needs": {"cpu": 1.0}}]}'
    one, also_one = read_scenario(text).demands
    assert one.bundles == also_one.bundles
    with pytest.raises(ValueError, match=r"demands\.b\.needs\.cpu: .*true"):
        read_scenario(text.replace("1.0", "true"))


def many_demands(count: int) -> str:
    shapes = [{"cpu": cpu, "memory": f"{cpu * 2}Gi"} for cpu in range(1, 20)]
    return json.dumps(
        {
            "groups": {"g": {"resources": {"cpu": 32, "memory": "128Gi"}, "max": 1000}},
            "demands": [
                {
                    "id": f"task-{index}",
                    "needs": shapes[index % 19],
                    "count": 1 + index % 3,
                    "where": ["zone in (us-1a, us-1b)"],
                    "since": index,
                }
                for index in range(count)
            ],
        }
    )


@pytest.mark.alone
def test_a_hundred_thousand_separate_demands_are_read_and_planned_in_fourteen_times_the_time_of_json_loads():
    """Less than two seconds on the machine of docs/benchmark-tables.md. ``json.loads`` tells how fast this one is."""
    text = many_demands(100_000)
    parsing, working = [], []
    for _ in range(5):
        with uncollected():  # as ``windlass plan`` does it
            start = time.process_time()
            json.loads(text)
            parsed = time.process_time()
            snapshot = read_scenario(text)
            answer = plan(snapshot)
            parsing.append(parsed - start)
            working.append(time.process_time() - parsed)
    assert sum(answer.launch.values()) or answer.waiting
    assert len(snapshot.demands) == 100_000
    assert snapshot.demands[41] == Demand(
        "task-41",
        (Bundle((("cpu", 4000), ("memory", 8 * GI)), 3),),
        where=(Condition("zone", "in", ("us-1a", "us-1b")),),
        since=41,
    )
    assert min(working) < 14 * min(parsing), f"best of five: {min(parsing):.2f} and {min(working):.2f} s of CPU time"
