"""Each peer decides as its system does, on snapshots that are small enough to check by hand."""

from __future__ import annotations

import json

import pytest
from benchmarks.peers.cluster_autoscaler import ClusterAutoscaler
from benchmarks.peers.deciding import controller_of, without_rules
from benchmarks.peers.fixed_size import fixed_size
from benchmarks.peers.karpenter import Karpenter
from benchmarks.peers.peer import Peer
from benchmarks.peers.pool_rule import PoolRule
from benchmarks.peers.ray import Ray
from benchmarks.shared_data import MachineType
from benchmarks.trace_world import World, listed, world_of

import windlass as wl
from windlass.builders import NamedGroup
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Bundle, Demand, Gang, Snapshot, amounts
from windlass.core.plan_laws import broken_laws
from windlass.sim.trace.run import run_trace
from windlass.sim.workload.jobs import Job

PEERS = (Ray, ClusterAutoscaler, Karpenter, PoolRule)
ONE = wl.group("one", cpu=8, gpu=1, max=100, price=1.0)
FOUR = wl.group("four", cpu=32, gpu=4, max=100, price=5.0)
GPU = {"cpu": 6, "gpu": 1}


def asked(peer: Peer, snapshot: Snapshot) -> Plan:
    """What it does, which is a lawful plan."""
    plan = peer(snapshot)
    assert list(broken_laws(snapshot, plan)) == []
    return plan


def at(now: float, *, count: int = 0, slices: tuple = (), groups: tuple[NamedGroup, ...] = (ONE, FOUR)) -> Snapshot:
    demands = [wl.demand("job", GPU, count=count)] if count else []
    return wl.snapshot(groups, slices=slices, demands=demands, now=now)


def idle(name: str, group: str, since: float) -> dict:
    return wl.slice_(name, group, since=since, nodes=[wl.node(f"{name}-0", idle_since=since)])


def busy(name: str, group: str, **used: float) -> dict:
    return wl.slice_(name, group, since=0, nodes=[wl.node(f"{name}-0", used=used or GPU, tasks=1)])


def drained(plan: Plan) -> list[str]:
    return [change.slice for change in plan.drain]


# -- what all have in common -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", PEERS)
def test_work_that_fits_on_what_is_there_or_in_flight_buys_nothing(peer):
    slices = (wl.slice_("s-1", "one", "booting"), idle("s-2", "one", 0))
    plan = asked(peer(), at(100, count=2, slices=slices))
    assert not plan.launches
    assert not plan.drain


@pytest.mark.parametrize("peer", PEERS)
def test_a_slice_with_work_is_never_given_back(peer):
    one, later = peer(), 100_000
    for now in (0, 10, later, later + 10, later + 20):
        assert not asked(one, at(now, slices=(busy("s-1", "four"),))).drain


@pytest.mark.parametrize("peer", PEERS)
def test_work_that_fits_nowhere_is_waited_with_and_nothing_is_bought(peer):
    snapshot = wl.snapshot([ONE], demands=[wl.demand("huge", {"gpu": 9})], now=0)
    one = peer()
    asked(one, snapshot)
    assert not asked(one, wl.snapshot([ONE], demands=[wl.demand("huge", {"gpu": 9})], now=20)).launches


# -- Ray ---------------------------------------------------------------------------------------------------------------


def test_ray_plans_every_five_seconds():
    ray = Ray()
    assert not asked(ray, at(1001, count=1)).launches
    assert ray.due == 1005
    assert asked(ray, at(1005, count=1)).launch == {"one": 1}


def test_ray_takes_the_type_that_is_used_best_whatever_it_costs():
    dear = wl.group("dear", cpu=6, gpu=1, max=9, price=100)
    assert asked(Ray(), at(1000, count=1, groups=(ONE, dear))).launch == {"dear": 1}


def test_ray_doubles_a_type_at_each_look():
    ray = Ray()
    there: list[dict] = []
    for now, expected in ((0, 1), (5, 1), (10, 2), (15, 4)):
        plan = asked(ray, at(now, count=20, slices=tuple(there), groups=(ONE,)))
        assert plan.launch == {"one": expected}
        assert ray.due == now + 5
        there += [wl.slice_(f"s-{len(there) + i}", "one", "booting") for i in range(expected)]


def test_ray_ends_a_node_that_was_idle_for_five_minutes():
    ray = Ray()
    assert not asked(ray, at(1100, slices=(idle("s-1", "one", 1001),))).drain
    assert ray.due == 1305
    assert drained(asked(ray, at(1305, slices=(idle("s-1", "one", 1001),)))) == ["s-1"]


# -- Cluster Autoscaler ------------------------------------------------------------------------------------------------


def test_cluster_autoscaler_scans_every_ten_seconds():
    scaler = ClusterAutoscaler()
    assert not asked(scaler, at(1001, count=1)).launches
    assert scaler.due == 1010
    assert asked(scaler, at(1010, count=1)).launch == {"one": 1}


def test_cluster_autoscaler_takes_the_option_with_the_least_waste_and_one_option_a_scan():
    snug = wl.group("snug", cpu=12, max=9, price=100)
    wide = wl.group("wide", cpu=64, max=9, price=1)
    demands = [wl.demand("cpu", {"cpu": 6}, count=2), wl.demand("gpu", {"cpu": 6, "gpu": 1})]
    scaler = ClusterAutoscaler()
    plan = asked(scaler, wl.snapshot([snug, wide, ONE], demands=demands, now=1000))
    assert plan.launch == {"snug": 1}
    assert scaler.due == 1010  # the pod with a GPU waits for the next scan


def test_cluster_autoscaler_gives_back_what_was_unneeded_for_ten_minutes():
    scaler, slices = ClusterAutoscaler(), (idle("s-1", "one", 1000),)
    assert not asked(scaler, at(1010, slices=slices)).drain
    assert scaler.due == 1610
    assert not asked(scaler, at(1600, slices=slices)).drain
    assert drained(asked(scaler, at(1610, slices=slices))) == ["s-1"]


def test_cluster_autoscaler_gives_nothing_back_within_ten_minutes_of_a_scale_up():
    scaler, slices = ClusterAutoscaler(), (idle("s-1", "four", 1000),)
    need = [wl.demand("cpu", {"cpu": 64})]
    cpu = wl.group("cpu", cpu=64, max=9, price=1)
    asked(scaler, wl.snapshot([FOUR, cpu], slices=slices, now=1000))
    assert asked(scaler, wl.snapshot([FOUR, cpu], slices=slices, demands=need, now=1500)).launch == {"cpu": 1}
    coming = (*slices, wl.slice_("s-2", "cpu", "booting"))
    assert not asked(scaler, wl.snapshot([FOUR, cpu], slices=coming, demands=need, now=1610)).drain
    assert scaler.due == 2100
    assert drained(asked(scaler, wl.snapshot([FOUR, cpu], slices=coming, demands=need, now=2100))) == ["s-1"]


def test_cluster_autoscaler_moves_pods_off_a_node_of_which_less_than_half_is_used_if_they_may_be_evicted():
    slices = (busy("s-1", "four"), busy("s-2", "four", cpu=12, gpu=2))
    scaler = ClusterAutoscaler(evicts=True)
    asked(scaler, at(1000, slices=slices))
    assert scaler.due == 1600
    assert drained(asked(scaler, at(1600, slices=slices))) == ["s-1"]


def test_cluster_autoscaler_moves_nothing_when_half_is_used_or_nothing_has_room():
    scaler = ClusterAutoscaler(evicts=True)
    halves = (busy("s-1", "four", cpu=12, gpu=2), busy("s-2", "four", cpu=12, gpu=2))
    full = (busy("s-1", "four"), busy("s-2", "four", cpu=24, gpu=4))
    for slices in (halves, full):
        asked(scaler, at(1000, slices=slices))
        assert not asked(scaler, at(1600, slices=slices)).drain


# -- Karpenter ---------------------------------------------------------------------------------------------------------


def test_karpenter_gathers_pods_until_none_has_come_for_a_second():
    karpenter = Karpenter()
    first, second = wl.demand("a", GPU), wl.demand("b", GPU)
    assert not asked(karpenter, wl.snapshot([ONE, FOUR], demands=[first], now=1000)).launches
    assert karpenter.due == 1001
    assert not asked(karpenter, wl.snapshot([ONE, FOUR], demands=[first, second], now=1000.5)).launches
    assert karpenter.due == 1001.5
    assert asked(karpenter, wl.snapshot([ONE, FOUR], demands=[first, second], now=1001.5)).launches


def test_karpenter_gathers_for_ten_seconds_at_the_most():
    karpenter, demands = Karpenter(), []
    for step in range(20):
        demands.append(wl.demand(f"pod-{step}", GPU))
        plan = asked(karpenter, wl.snapshot([ONE, FOUR], demands=demands, now=1000 + step / 2))
        assert not plan.launches
    assert karpenter.due == 1010
    assert asked(karpenter, wl.snapshot([ONE, FOUR], demands=demands, now=1010)).launches


def test_karpenter_puts_simultaneous_pods_on_few_large_nodes_of_the_cheapest_type_that_holds_them():
    karpenter = Karpenter()
    asked(karpenter, at(1000, count=5))
    # Four on the only type with four GPUs, though four small nodes would be cheaper; the fifth on a small one.
    assert asked(karpenter, at(1001, count=5)).launch == {"four": 1, "one": 1}


def test_karpenter_gives_an_empty_node_back_after_its_poll_and_a_second_look():
    karpenter, slices = Karpenter(), (idle("s-1", "one", 1003),)
    assert not asked(karpenter, at(1003, slices=slices)).drain
    assert karpenter.due == 1025  # found at the poll at 1010, looked at again 15 s later
    assert drained(asked(karpenter, at(1025, slices=slices))) == ["s-1"]


def test_karpenter_deletes_a_node_whose_pods_fit_on_another_if_they_may_be_disrupted():
    karpenter, slices = Karpenter(evicts=True), (busy("s-1", "four"), busy("s-2", "four", cpu=12, gpu=2))
    assert not asked(karpenter, at(1000, slices=slices)).drain
    assert karpenter.due == 1015
    assert drained(asked(karpenter, at(1015, slices=slices))) == ["s-1"]


def test_karpenter_replaces_a_node_by_a_cheaper_one_and_moves_the_pods_when_it_is_there():
    karpenter, slices = Karpenter(evicts=True), [busy("s-1", "four")]
    asked(karpenter, at(1000, slices=tuple(slices)))
    plan = asked(karpenter, at(1015, slices=tuple(slices)))
    assert plan.launch == {"one": 1}
    assert not plan.drain
    slices.append(idle("s-2", "one", 1200))
    assert drained(asked(karpenter, at(1200, slices=tuple(slices)))) == ["s-1"]


# -- the pool rule -----------------------------------------------------------------------------------------------------


def test_the_pool_rule_asks_for_all_at_once():
    assert asked(PoolRule(), at(1000, count=7)).launch == {"one": 7}


def test_the_pool_rule_goes_to_the_least_when_nothing_has_run_for_a_minute():
    pool, slices = PoolRule(), (idle("s-1", "one", 1010),)
    assert not asked(pool, at(1069, slices=slices)).drain
    assert pool.due == 1070
    assert drained(asked(pool, at(1070, slices=slices))) == ["s-1"]


def test_the_pool_rule_keeps_one_more_than_it_needs_when_little_is_used():
    slices = (busy("s-1", "one"), *(idle(f"s-{i}", "one", 1000) for i in range(2, 6)))
    assert drained(asked(PoolRule(), at(1001, slices=slices))) == ["s-3", "s-4", "s-5"]


def test_the_pool_rule_does_not_change_size_at_thirty_per_cent():
    slices = (busy("s-1", "one"), idle("s-2", "one", 0), idle("s-3", "one", 0))
    assert not asked(PoolRule(), at(100_000, slices=slices)).drain


def test_the_pool_rule_does_not_shrink_within_its_cooldown():
    pool = PoolRule()
    asked(pool, at(1000, count=1))
    slices = (busy("s-1", "one"), *(idle(f"s-{i}", "one", 1000) for i in range(2, 6)))
    assert not asked(pool, at(1010, slices=slices)).drain
    assert pool.due == 1030
    assert asked(pool, at(1030, slices=slices)).drain


# -- in the simulated world --------------------------------------------------------------------------------------------

KINDS = (
    MachineType("small", 8_000, 32_768, 1, "T4", 1_000_000_000),
    MachineType("large", 32_000, 131_072, 4, "T4", 4_500_000_000),
    MachineType("dear", 32_000, 131_072, 4, "T4", 9_000_000_000),
    MachineType("plain", 8_000, 32_768, 0, "", 400_000_000),
)


def job(name: str, arrives: float, duration: float, gpu: int = 1, count: int = 1) -> Job:
    needs = amounts({"cpu": 6_000 * max(gpu, 1), "memory": 2**30, **({"gpu": gpu * 1000} if gpu else {})})
    return Job(Demand(name, (Bundle(needs, count),), Gang.ANY if count > 1 else None), arrives, duration)


@pytest.fixture
def place() -> World:
    jobs = [job(f"job-{i:02}", 100.0 * i, 900.0, gpu=(1, 0, 4)[i % 3], count=2 if i == 6 else 1) for i in range(12)]
    return world_of("small", jobs, KINDS)


def test_the_machines_follow_from_the_jobs(place):
    assert [kind.name for kind in listed([job("a", 0, 1), job("b", 0, 1, gpu=4)], KINDS)] == ["large", "small"]
    settings = place.settings()
    assert sorted(settings.by_name) == ["large", "plain", "small"]
    assert [one.group.name for one in settings.groups if one.group.taints] == ["large", "small"]
    assert place.left_out == 0


@pytest.mark.parametrize("peer", PEERS)
def test_every_job_ends_and_no_invariant_is_violated_under_each_policy(peer, place):
    _, found = run_trace(without_rules(place.settings()), place.trace, controller=controller_of(peer))
    assert found.breaches == ()
    assert (found.finished, found.killed_by_us) == (12, 0)
    assert found.dollars >= place.bound > 0


@pytest.mark.parametrize("peer", [ClusterAutoscaler, Karpenter])
def test_a_job_that_is_evicted_starts_again_and_ends(peer):
    # The large machine is bought for the wide job; a small one found room there, and stays when the wide one is over.
    jobs = [job("wide", 0, 600, gpu=3), job("small", 300, 20_000)]
    place = world_of("moving", jobs, KINDS)
    settings = without_rules(place.settings("policy.allow_eviction=true", "policy.drain_timeout=1s"))
    _, found = run_trace(settings, place.trace, controller=controller_of(lambda: peer(evicts=True)), leaping=False)
    assert found.breaches == ()
    assert found.finished == 2
    assert found.evicted == (1 if peer is Karpenter else 0)  # there is no other node that would take it


def sizes_of(policy: str) -> dict[str, int]:
    groups = json.loads(policy)["groups"]
    assert all(limits["min"] == limits["max"] for limits in groups.values())
    return {name: limits["min"] for name, limits in groups.items()}


def test_fixed_size_buys_what_runs_at_once_and_never_changes(place):
    policy = fixed_size(without_rules(place.settings()), place.trace.jobs)
    sizes = sizes_of(policy)
    # Jobs of 900 s that come every 300 s: three of them at once.
    assert sizes["large"] == sizes["plain"] == 3
    _, found = run_trace(place.settings(policy=policy), place.trace)
    assert found.launches == sum(sizes.values())
    assert found.finished == 12


def test_fixed_size_holds_the_largest_gang_however_rare_it_is():
    jobs = [job("gang", 0, 10, count=5), job("end", 10_000, 10)]
    place = world_of("rare", jobs, KINDS)
    assert sizes_of(fixed_size(place.settings(), place.trace.jobs))["small"] == 5
