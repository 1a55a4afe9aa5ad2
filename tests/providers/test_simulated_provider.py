"""The simulated cloud keeps the contract, injects each of its faults, and is deterministic."""

from __future__ import annotations

import asyncio

import pytest

from windlass.core.model.quantities import NANO
from windlass.core.model.snapshot import amounts
from windlass.providers.protocol import (
    HostOrder,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    ProviderError,
    QuotaExceeded,
    Throttled,
)
from windlass.sim.cloud.machines import MachineKind
from windlass.sim.cloud.provider import SimulatedProvider
from windlass.sim.faults.catalogue import Fault
from windlass.testing.eventually import run
from windlass.testing.provider_conformance import ProviderConformance

GPU = amounts({"cpu": 8000, "gpu": 1000})
HOST = HostOrder(("agent",))


class Clock:
    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def kind(name: str = "g", *, hosts: int = 1, preemptible: bool = False, zones: tuple[str, ...] = (), **more):
    return MachineKind(Offering(name, GPU, hosts, 2 * NANO, zones, preemptible), boot=60, join=20, **more)


def cloud(clock: Clock, *faults: Fault, kinds=None, seed: int | str = 1, **more) -> SimulatedProvider:
    return SimulatedProvider(kinds or [kind()], now=clock, seed=seed, faults=faults, **more)


def order(slice_id: str, group: str = "g", hosts: int = 1, **settings) -> LaunchOrder:
    return LaunchOrder(slice_id, group, (HOST,) * hosts, GPU, settings=settings)


def states(provider: SimulatedProvider) -> dict[str, str]:
    return {one.slice_id: one.state for one in run(provider.list())}


class TestSimulatedProvider(ProviderConformance):
    faults: tuple[Fault, ...] = ()
    shared = False

    def provider(self):
        if not hasattr(self, "cloud"):
            self.clock = Clock()
            kinds = [kind("one", spread=0.5), kind("many", hosts=self.most_hosts, zones=("a", "b"))]
            self.cloud = cloud(self.clock, *self.faults, kinds=kinds)
        return self.cloud

    def order(self, slice_id, hosts=1, **more):
        return order(slice_id, "one" if hosts == 1 else "many", hosts)

    async def pass_time(self):
        self.clock.now += 7

    async def make_foreign(self):
        self.cloud.create_by_hand(order("someone-elses", "one"), tagged=False)
        return True

    async def leftovers(self, slice_id):
        return [host for host in self.cloud.live_hosts() if host.slice_id == slice_id]


class TestSimulatedProviderWithALaggingList(TestSimulatedProvider):
    """The truth may lag a little: the contract holds all the same."""

    faults = (Fault("new-missing", seconds=10), Fault("ended-shown", seconds=20), Fault("terminate-slow", seconds=40))

    def test_the_same_id_ordered_many_times_at_once_is_one_slice(self):
        async def test():
            async with self._opened() as provider:
                await asyncio.gather(*(provider.launch(self.order("c-1"), 7) for _ in range(5)))
                assert await provider.list() == ()
                await self._until(provider, "c-1", "running")
                assert [one.slice_id for one in await provider.list()] == ["c-1"]

        run(test())


# -- a life --------------------------------------------------------------------------------------------------------


def test_a_machine_boots_joins_and_ends_at_the_instants_it_was_given():
    clock = Clock()
    provider = cloud(clock)
    run(provider.launch(order("s"), 1))
    assert states(provider) == {"s": "pending"}
    assert provider.next_event() == 60
    clock.now = 60
    assert states(provider) == {"s": "running"}
    assert (list(provider.live_hosts()), provider.next_event()) == ([], 80)
    clock.now = 80
    assert [host.id for host in provider.live_hosts()] == ["s/0"]
    assert provider.next_event() is None
    run(provider.terminate("s", 1))
    assert (states(provider), provider.next_event()) == ({"s": "ending"}, 85)
    clock.now = 85
    assert (states(provider), list(provider.live_hosts())) == ({}, [])
    assert provider.history["s"].by == "terminate"


def test_an_id_buys_once_ever():
    clock = Clock()
    provider = cloud(clock)
    run(provider.launch(order("s"), 1))
    provider.preempt("s")
    assert states(provider) == {}
    run(provider.launch(order("s"), 1))
    assert states(provider) == {}


def test_the_same_seed_gives_the_same_simulation_and_another_seed_another():
    def world(seed):
        clock = Clock()
        fault_set = [Fault("stock-out", 0.3), Fault("boot-slow", 0.3), Fault("preempted", 0.5, seconds=500, notice=30)]
        provider = cloud(clock, *fault_set, kinds=[kind(preemptible=True, spread=0.8)], seed=seed)
        seen = []
        for number in range(40):
            clock.now += 10
            try:
                run(provider.launch(order(f"s-{number}"), 1))
            except InsufficientCapacity as error:
                seen.append(str(error))
            seen.append(repr(run(provider.list())))
        return seen, provider.history

    assert world(1) == world(1)
    assert world(1) != world(2)


def test_one_roll_more_here_changes_nothing_there():
    def boots(first: str) -> float | None:
        clock = Clock()
        provider = cloud(clock, kinds=[kind(spread=1.0)])
        for name in (first, "s"):
            run(provider.launch(order(name), 1))
        provider.delete_by_hand(first)
        return provider.next_event()

    assert boots("a") == boots("b")


# -- launches ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("stock-out"), InsufficientCapacity),
        (Fault("quota"), QuotaExceeded),
        (Fault("throttled", seconds=9), Throttled),
    ],
)
def test_a_refused_launch_makes_nothing(fault, error):
    provider = cloud(Clock(), fault)
    with pytest.raises(error) as caught:
        run(provider.launch(order("s"), 1))
    assert getattr(caught.value, "retry_after", 9) == 9
    assert states(provider) == {}


def test_a_launch_whose_answer_is_lost_has_bought_and_asking_again_buys_no_second():
    provider = cloud(Clock(), Fault("launch-lost", rate=1))
    with pytest.raises(ProviderError):
        run(provider.launch(order("s"), 1))
    run(provider.launch(order("s"), 1))
    assert states(provider) == {"s": "pending"}


def test_a_launch_that_hangs_has_bought_and_can_be_given_up():
    async def test():
        provider = cloud(Clock(), Fault("launch-hangs"))
        call = asyncio.create_task(provider.launch(order("s"), 1))
        await asyncio.sleep(0)
        assert not call.done()
        call.cancel()
        assert [one.slice_id for one in await provider.list()] == ["s"]

    run(test())


def test_a_stock_out_in_one_zone_leads_to_the_next():
    provider = cloud(Clock(), Fault("stock-out", zones=frozenset({"a"})), kinds=[kind(zones=("a", "b"))])
    run(provider.launch(order("s"), 1))
    assert [one.zone for one in run(provider.list())] == ["b"]
    with pytest.raises(InsufficientCapacity, match="in a"):
        run(provider.launch(order("s-2", zone="a"), 1))


def test_stock_and_quota_are_used_up_and_returned():
    clock = Clock()
    provider = cloud(clock, kinds=[kind(zones=("a",), stock={"a": 2}), kind("h")], quota=3)
    for name in ("s-1", "s-2"):
        run(provider.launch(order(name), 1))
    with pytest.raises(InsufficientCapacity):
        run(provider.launch(order("s-3"), 1))
    run(provider.launch(order("s-4", "h"), 1))
    with pytest.raises(QuotaExceeded, match="may have 3"):
        run(provider.launch(order("s-5", "h"), 1))
    run(provider.terminate("s-1", 1))
    clock.now = 5
    run(provider.launch(order("s-3"), 1))


@pytest.mark.parametrize(
    ("bad", "remedy"),
    [
        (order("s", "nothing"), "this cloud sells g"),
        (order("s", hosts=2), "order 1"),
        (order("s", zone="z"), "choose from a"),
    ],
)
def test_an_invalid_order_is_refused_with_a_remedy(bad, remedy):
    with pytest.raises(InvalidRequest, match=remedy):
        run(cloud(Clock(), kinds=[kind(zones=("a",))]).launch(bad, 1))


def test_a_new_price_is_for_new_machines():
    provider = cloud(Clock())
    run(provider.launch(order("s-1"), 1))
    provider.set_price("g", 5 * NANO)
    run(provider.launch(order("s-2"), 1))
    assert [one.price for one in run(provider.list())] == [2 * NANO, 5 * NANO]


def test_a_fault_strikes_only_in_its_window_and_its_groups():
    clock = Clock()
    provider = cloud(clock, Fault("quota", start=10, end=20, groups=frozenset({"g"})), kinds=[kind(), kind("h")])
    run(provider.launch(order("s-1"), 1))
    clock.now = 10
    run(provider.launch(order("s-2", "h"), 1))
    with pytest.raises(QuotaExceeded):
        run(provider.launch(order("s-3"), 1))
    clock.now = 20
    run(provider.launch(order("s-3"), 1))


# -- lists ---------------------------------------------------------------------------------------------------------


def test_the_list_lags_behind_launches_and_ends():
    clock = Clock()
    provider = cloud(clock, Fault("new-missing", seconds=8), Fault("ended-shown", seconds=12))
    run(provider.launch(order("s"), 1))
    assert states(provider) == {}
    clock.now = 8
    assert states(provider) == {"s": "pending"}
    clock.now = 100
    provider.preempt("s")
    assert states(provider) == {"s": "ending"}
    assert list(provider.live_hosts()) == []
    clock.now = 112
    assert states(provider) == {}


def test_a_list_fails_or_is_stale_but_never_shortened():
    clock = Clock()
    provider = cloud(clock, Fault("list-fails", start=10, end=20), Fault("list-stale", start=20, end=30))
    run(provider.launch(order("s-1"), 1))
    assert states(provider) == {"s-1": "pending"}
    clock.now = 10
    with pytest.raises(ProviderError):
        run(provider.list())
    clock.now = 20
    run(provider.launch(order("s-2"), 1))
    assert states(provider) == {"s-1": "pending"}
    clock.now = 30
    assert states(provider) == {"s-1": "pending", "s-2": "pending"}


def test_a_machine_made_by_hand_is_listed_with_our_tag_and_not_without_it():
    provider = cloud(Clock())
    provider.create_by_hand(order("tagged"), tagged=True)
    provider.create_by_hand(order("untagged"), tagged=False)
    assert states(provider) == {"tagged": "pending"}
    run(provider.terminate("untagged", 1))
    provider.delete_by_hand("tagged")
    assert states(provider) == {}
    assert provider.history["tagged"].by == "hand"


# -- boots and ends ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "joined"),
    [("never-joins", 0), ("host-missing", 2), ("boot-never", 0), ("no-accelerator", 3), ("boot-slow", 0)],
)
def test_hosts_that_do_not_join_as_they_should(fault, joined):
    clock = Clock()
    provider = cloud(clock, Fault(fault), kinds=[kind(hosts=3)])
    run(provider.launch(order("s", hosts=3), 1))
    clock.now = 500
    hosts = provider.live_hosts()
    assert len(hosts) == joined
    assert states(provider) == {"s": "pending" if fault in ("boot-never", "boot-slow") else "running"}
    bare = (("cpu", 8000),) if fault == "no-accelerator" else None
    assert all(host.present == bare for host in hosts)
    clock.now = 620
    assert len(provider.live_hosts()) == (3 if fault == "boot-slow" else joined)


@pytest.mark.parametrize("notice", [0, 30])
def test_a_preemption_is_announced_if_there_is_notice(notice):
    clock = Clock(100)
    provider = cloud(clock)
    run(provider.launch(order("s"), 1))
    clock.now = 200
    provider.preempt("s", notice)
    output = [one.preempted_at for one in run(provider.list())]
    assert output == ([230] if notice else [])
    clock.now = 230
    assert states(provider) == {}
    assert provider.history["s"].by == "preemption"


def test_only_what_may_be_preempted_is_and_a_zone_goes_together():
    clock = Clock()
    kinds = [kind("spot", preemptible=True, zones=("a",)), kind("firm", zones=("a",)), kind("far", zones=("b",))]
    provider = cloud(clock, Fault("preempted", seconds=100), kinds=kinds)
    for name in ("spot", "firm", "far"):
        run(provider.launch(order(name, name), 1))
    clock.now = 10_000
    assert states(provider) == {"firm": "running", "far": "running"}
    provider.preempt_zone("a")
    assert states(provider) == {"far": "running"}


def test_an_end_that_fails_leaves_the_machine_running():
    clock = Clock(100)
    provider = cloud(clock, Fault("terminate-fails", end=200))
    run(provider.launch(order("s"), 1))
    clock.now = 190
    with pytest.raises(ProviderError):
        run(provider.terminate("s", 1))
    assert states(provider) == {"s": "running"}
    clock.now = 200
    run(provider.terminate("s", 1))
    clock.now = 205
    assert states(provider) == {}
