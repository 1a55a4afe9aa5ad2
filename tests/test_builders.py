"""The short ways to write a snapshot give what a file would have given."""

from __future__ import annotations

import pytest

import windlass as wl

FILE = """
now: 100
cluster: {max_nodes: 9, choose: rank}
groups:
  gpu-a:
    resources: {cpu: 32, memory: 128Gi, gpu: 4}
    labels: {zone: us-1a}
    max: 8
    price: 12.0
    scale_down: {idle_timeout: 60}
    protected: [s-0, s-1]
  pod: {resources: {"example.com/card": 1}, hosts: 2, max: 3, frozen: true}
slices:
  - {id: s-1, group: gpu-a, state: ready, nodes: [{used: {gpu: 2}, tasks: 2}]}
  - {id: s-2, group: pod, state: booting, since: 90}
  - {id: s-3, group: pod, state: ready, nodes: [{id: n-1, idle_since: 5}, {id: n-2, healthy: false}]}
demands:
  - {id: train, needs: {cpu: 4, gpu: 1}, count: 3, where: ["zone == us-1a"]}
  - {id: pg-7, gang: same-slice, bundles: [{needs: {gpu: 1}, count: 8}, {needs: {cpu: 1}, count: 1}], deadline: 500}
requests:
  - {id: room, needs: {cpu: 1}, count: 8}
"""


def test_builders_and_file_give_the_same_snapshot():
    snapshot = wl.snapshot(
        groups=[
            wl.group(
                "gpu-a",
                cpu=32,
                memory="128Gi",
                gpu=4,
                labels={"zone": "us-1a"},
                max=8,
                price=12.0,
                scale_down={"idle_timeout": 60},
                protected={"s-1", "s-0"},
            ),
            wl.group("pod", resources={"example.com/card": 1}, hosts=2, max=3, frozen=True),
        ],
        slices=[
            wl.slice_("s-1", "gpu-a", used={"gpu": 2}, tasks=2),
            wl.slice_("s-2", "pod", "booting", since=90),
            wl.slice_("s-3", "pod", nodes=[wl.node("n-1", idle_since=5), wl.node("n-2", healthy=False)]),
        ],
        demands=[
            wl.demand("train", {"cpu": 4, "gpu": 1}, count=3, where=("zone == us-1a",)),
            wl.gang("pg-7", [({"gpu": 1}, 8), {"cpu": 1}], kind="same-slice", deadline=500),
        ],
        requests=[wl.demand("room", {"cpu": 1}, count=8)],
        now=100,
        max_nodes=9,
        choose="rank",
    )
    assert snapshot == wl.read_scenario(FILE)


def test_a_mistake_is_reported_as_in_a_file():
    with pytest.raises(wl.ScenarioError) as raised:
        wl.snapshot(
            groups=[wl.group("a", cpu=-1, max=1), wl.group("b", cpu=1, max=1), wl.group("b", cpu=1, max=1)],
            demands=[wl.demand("d", {"gpu": 1.5})],
        )
    assert [mistake.partition(":")[0] for mistake in raised.value.mistakes] == [
        "groups.b",
        "groups.a.resources.cpu",
        "demands.d.needs.gpu",
    ]


def test_nodes_and_what_the_only_node_uses_are_not_given_together():
    with pytest.raises(TypeError, match=r"slice s: give either nodes=\[\.\.\.\] or used"):
        wl.slice_("s", "g", nodes=[wl.node()], used={"cpu": 1})


def test_a_plan_takes_three_lines():
    snapshot = wl.snapshot(groups=[wl.group("g", cpu=4, max=5)], demands=[wl.demand("d", {"cpu": 4}, count=2)])
    assert wl.plan(snapshot).launch == {"g": 2}
