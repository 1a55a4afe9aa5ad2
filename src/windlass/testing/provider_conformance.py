"""This suite tests the contract of a provider: inherit it, define ``provider``, run pytest.

Only ``provider`` must be defined. All other methods and settings have defaults and can be overridden. Each test ends
the slices that it has launched, also when it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

from windlass.core.model.snapshot import amounts
from windlass.providers.protocol import (
    ClusterConflict,
    ClusterIdentity,
    EndConfirmingProvider,
    HostOrder,
    Instance,
    InvalidRequest,
    LaunchOrder,
    Provider,
    ProviderError,
    StaleEpoch,
)

from .eventually import a_moment, eventually, refusal_of, run

EPOCH = 7
"""Not the first epoch, so that there is a lower one to refuse."""


class ProviderConformance:
    """Inherit as ``TestSomething`` and define ``provider``."""

    patience: float = 20.0
    """The time limit in seconds for a state to appear in the list."""
    most_hosts: int = 3
    """The number of hosts of the largest slice; 1 if the provider has single nodes only."""
    fences: bool = True
    """Whether it stores the highest epoch. A provider that cannot must say so in its documentation."""
    burst: int = 20
    """The number of launches at once."""
    cluster = ClusterIdentity("conformance", "c0ffee0001")
    """The cluster of the tests."""
    shared: bool = True
    """Whether two clusters can use one account. False only if an account can never be shared."""

    # -- to define or override --------------------------------------------------------------------------------------

    def provider(self) -> Provider:
        """Return a provider. A second call in one test must use the same account, as after a restart."""
        raise NotImplementedError("define provider(), which returns the provider under test")

    def onlooker(self) -> Provider:
        """Return a read-only provider on the same account, as ``plan --live`` uses it. By default an ordinary one.

        Override it for a provider whose ``list`` repairs something, unless it is read-only.
        """
        return self.provider()

    def order(
        self,
        slice_id: str,
        hosts: int = 1,
        *,
        group: str = "conformance",
        settings: Mapping[str, Any] | None = None,
    ) -> LaunchOrder:
        """Return a valid order for a slice that runs until it is ended."""
        host = HostOrder(("sleep", "3600"), {"WINDLASS_CONFORMANCE": "1"})
        return LaunchOrder(
            slice_id, group, (host,) * hosts, amounts({"cpu": 1000}), settings=settings or {}, cluster=self.cluster
        )

    def bad_order(self, slice_id: str) -> LaunchOrder:
        """Return an order that can never succeed."""
        return LaunchOrder(slice_id, "conformance", (), (), cluster=self.cluster)

    async def pass_time(self) -> None:
        """Let some time pass between two polls. Override it to advance a virtual clock."""
        await a_moment()

    async def make_foreign(self) -> bool:
        """Create something in the account that is not ours; return False if that is impossible."""
        return False

    async def leftovers(self, slice_id: str) -> Sequence[object]:  # noqa: ARG002  # for those who override it
        """Return what is left of a slice and not in the list: processes, files, disks."""
        return ()

    # -- polling ----------------------------------------------------------------------------------------------------

    def _bound(self, provider: Provider | None = None, cluster: ClusterIdentity | None = None) -> Provider:
        provider = provider or self.provider()
        self._made.append(provider)
        provider.bind(cluster or self.cluster)
        return provider

    @asynccontextmanager
    async def _opened(self) -> AsyncIterator[Provider]:
        self._made: list[Provider] = []
        provider = self._bound()
        try:
            yield provider
        finally:
            for instance in await self._retried(provider.list):
                await self._gone(provider, instance.slice_id)
            for one in self._made:
                await one.close()

    async def _retried(self, call: Any) -> Sequence[Instance]:
        with suppress(ProviderError):
            found: Sequence[Instance] = await call()
            return found
        return ()

    async def _shown(self, provider: Provider, slice_id: str) -> Instance | None:
        found = [one for one in await self._listed(provider) if one.slice_id == slice_id]
        assert len(found) <= 1, f"{slice_id} is listed {len(found)} times"
        return found[0] if found else None

    async def _listed(self, provider: Provider) -> Sequence[Instance]:
        """Return the list without ended slices, which a provider may still show."""
        return [one for one in await provider.list() if one.state != "ended"]

    async def _until(self, provider: Provider, slice_id: str, state: str | None) -> Instance | None:
        """Wait until the list shows a slice in a state; None: until the slice is gone from the list."""

        async def read() -> Instance | None:
            return await self._shown(provider, slice_id)

        def wanted(seen: Instance | None) -> bool:
            if state is None or seen is None:
                return state is None and (seen is None or seen.state == "ended")
            return seen.state == state and not seen.phase

        return await eventually(read, wanted, within=self.patience, pass_time=self.pass_time)

    async def _up(self, provider: Provider, slice_id: str, hosts: int = 1) -> Instance:
        await provider.launch(self.order(slice_id, hosts), EPOCH)
        instance = await self._until(provider, slice_id, "running")
        assert instance is not None
        return instance

    async def _gone(self, provider: Provider, slice_id: str) -> None:
        await provider.terminate(slice_id, EPOCH)
        await self._until(provider, slice_id, None)

    def _run(self, test: Coroutine[Any, Any, None]) -> None:
        run(test)

    # -- the tests --------------------------------------------------------------------------------------------------

    def test_it_has_the_shape_of_a_provider(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                assert isinstance(provider, Provider)
                assert all(offering.hosts >= 1 for offering in await provider.offerings())

        self._run(test())

    def test_a_slice_is_listed_from_its_order_until_it_is_gone(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                order = self.order("c-1")
                await provider.launch(order, EPOCH)
                shown = await eventually(
                    lambda: self._shown(provider, "c-1"), within=self.patience, pass_time=self.pass_time
                )
                assert shown is not None
                assert shown.group == order.group
                while shown.state != "running":
                    assert shown.state == "pending"
                    await self.pass_time()
                    now = await self._shown(provider, "c-1")
                    assert now is not None, "a listed slice vanished while it started"
                    shown = now
                assert [host.running for host in shown.hosts] == [True]
                await self._gone(provider, "c-1")
                assert list(await self.leftovers("c-1")) == []

        self._run(test())

    def test_launching_again_with_the_same_id_buys_nothing(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                first = await self._up(provider, "c-1")
                await provider.launch(self.order("c-1"), EPOCH)
                await asyncio.gather(*(provider.launch(self.order("c-1"), EPOCH) for _ in range(3)))
                await self.pass_time()
                again = await self._until(provider, "c-1", "running")
                assert again == first
                await self._gone(provider, "c-1")
                await self.pass_time()
                assert await self._shown(provider, "c-1") is None, "a second one was there"

        self._run(test())

    def test_an_id_that_has_ended_buys_nothing_any_more(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                await self._up(provider, "c-1")
                await self._gone(provider, "c-1")
                await provider.launch(self.order("c-2", self.most_hosts), EPOCH)
                await self._gone(provider, "c-2")
                # Late, twice, at once, and by a controller that has just started: an order of the past stays one.
                for one in (provider, self._bound()):
                    await asyncio.gather(*(one.launch(self.order("c-1"), EPOCH) for _ in range(2)))
                    await one.launch(self.order("c-2", self.most_hosts), EPOCH)
                await self._up(provider, "c-3")
                assert [one.slice_id for one in await self._listed(provider)] == ["c-3"]
                for name in ("c-1", "c-2"):
                    assert list(await self.leftovers(name)) == []

        self._run(test())

    def test_who_only_looks_sees_what_is_there_and_changes_nothing(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                onlooker = self._bound(self.onlooker())
                assert list(await self._listed(onlooker)) == []
                up = await self._up(provider, "c-1")
                for one in (onlooker, onlooker, provider):
                    assert await self._shown(one, "c-1") == up
                await self._gone(provider, "c-1")
                await self._until(onlooker, "c-1", None)
                await onlooker.close()

        self._run(test())

    def test_the_same_id_ordered_many_times_at_once_is_one_slice(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                await asyncio.gather(*(provider.launch(self.order("c-1"), EPOCH) for _ in range(5)))
                await self._until(provider, "c-1", "running")
                assert [one.slice_id for one in await self._listed(provider)] == ["c-1"]

        self._run(test())

    def test_a_slice_with_several_hosts_comes_whole_and_goes_whole(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                instance = await self._up(provider, "c-1", self.most_hosts)
                assert [host.running for host in instance.hosts] == [True] * self.most_hosts
                assert len({host.id for host in instance.hosts}) == self.most_hosts
                await self._gone(provider, "c-1")
                assert list(await self.leftovers("c-1")) == []

        self._run(test())

    def test_an_order_that_can_never_be_is_refused_and_leaves_nothing(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                refusal = await refusal_of(provider.launch(self.bad_order("c-1"), EPOCH), InvalidRequest)
                assert len(str(refusal).split()) > 3, "the refusal must say what to change"
                assert await self._shown(provider, "c-1") is None
                assert list(await self.leftovers("c-1")) == []

        self._run(test())

    def test_terminating_twice_or_what_never_was_is_quiet(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                await provider.terminate("c-never", EPOCH)
                await self._up(provider, "c-1")
                await asyncio.gather(provider.terminate("c-1", EPOCH), provider.terminate("c-1", EPOCH))
                await self._until(provider, "c-1", None)
                await provider.terminate("c-1", EPOCH)
                assert list(await self.leftovers("c-1")) == []

        self._run(test())

    def test_a_slice_can_be_terminated_while_it_comes_up(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                await provider.launch(self.order("c-1", self.most_hosts), EPOCH)
                await self._gone(provider, "c-1")
                assert list(await self.leftovers("c-1")) == []

        self._run(test())

    def test_ending_one_slice_leaves_the_others_alone(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                await self._up(provider, "c-1")
                other = await self._up(provider, "c-10")
                await self._gone(provider, "c-1")
                assert await self._shown(provider, "c-10") == other

        self._run(test())

    def test_what_is_not_ours_is_never_listed(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                await self.make_foreign()
                assert list(await self._listed(provider)) == []
                await self._up(provider, "c-1")
                assert [one.slice_id for one in await self._listed(provider)] == ["c-1"]

        self._run(test())

    def test_clusters_that_share_an_account_do_not_see_or_end_each_others_slices(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                up = await self._up(provider, "c-1")
                theirs = ClusterIdentity("neighbour", "c0ffee0002")
                other = self._bound(cluster=theirs)
                try:
                    assert list(await self._listed(other)) == []
                    await other.launch(replace(self.order("n-1"), cluster=theirs), 1)  # epochs are not compared
                    await self._until(other, "n-1", "running")
                    assert [one.slice_id for one in await self._listed(provider)] == ["c-1"]
                    with suppress(ProviderError):
                        await other.terminate("c-1", 1)
                    await self.pass_time()
                    assert await self._shown(provider, "c-1") == up
                finally:
                    await other.terminate("n-1", 1)
                    await self._until(other, "n-1", None)
                    await other.close()

        if self.shared:
            self._run(test())

    def test_a_second_journal_under_the_same_name_is_refused(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                up = await self._up(provider, "c-1")
                second = ClusterIdentity(self.cluster.name, "c0ffee0003")
                other = self._bound(cluster=second)
                refusal = await refusal_of(other.list(), ClusterConflict)
                assert self.cluster.name in str(refusal)
                await refusal_of(other.launch(replace(self.order("s-1"), cluster=second), EPOCH + 1), ClusterConflict)
                await refusal_of(other.terminate("c-1", EPOCH + 1), ClusterConflict)
                await self.pass_time()
                assert list(await self._listed(provider)) == [up]
                await other.close()

        if self.shared:
            self._run(test())

    def test_a_cluster_keeps_its_slices_when_its_name_changes(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                up = await self._up(provider, "c-1")
                provider.bind(replace(self.cluster, name="renamed"))
                assert list(await self._listed(provider)) == [up]
                await self._gone(provider, "c-1")

        self._run(test())

    def test_a_controller_of_the_past_is_refused(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                await self._up(provider, "c-1")
                for provider_of_today in (provider, self._bound()):
                    await refusal_of(provider_of_today.launch(self.order("c-2"), EPOCH - 1), StaleEpoch)
                    await refusal_of(provider_of_today.terminate("c-1", EPOCH - 1), StaleEpoch)
                assert [one.slice_id for one in await self._listed(provider)] == ["c-1"]

        if self.fences:
            self._run(test())

    def test_a_launch_that_was_cancelled_is_seen_in_the_list_or_never(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                call = asyncio.create_task(provider.launch(self.order("c-1", self.most_hosts), EPOCH))
                await asyncio.sleep(0)
                call.cancel()
                with suppress(asyncio.CancelledError):
                    await call
                # Whatever came of it, the same order again gives exactly one, whole.
                instance = await self._up(provider, "c-1", self.most_hosts)
                assert len(instance.hosts) == self.most_hosts
                await self._gone(provider, "c-1")
                assert list(await self.leftovers("c-1")) == []

        self._run(test())

    def test_many_launches_at_once_are_all_carried_out(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                names = [f"c-{number:03}" for number in range(self.burst)]
                await asyncio.gather(*(provider.launch(self.order(name), EPOCH) for name in names))
                for name in names:
                    await self._until(provider, name, "running")
                assert sorted(one.slice_id for one in await self._listed(provider)) == names
                await asyncio.gather(*(provider.terminate(name, EPOCH) for name in names))
                for name in names:
                    await self._until(provider, name, None)

        self._run(test())

    def test_the_end_of_a_slice_is_confirmed_when_nothing_of_it_is_left_and_of_no_other(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                if not isinstance(provider, EndConfirmingProvider):
                    return
                await self._up(provider, "c-1")
                await self._up(provider, "c-2", self.most_hosts)
                names = ("c-1", "c-2", "c-never")
                assert list(await provider.confirm_ended(names)) == []
                await self._gone(provider, "c-2")

                async def look() -> list[str]:
                    return sorted(await provider.confirm_ended(names))

                await eventually(look, lambda seen: seen == ["c-2"], within=self.patience, pass_time=self.pass_time)
                other = self._bound()
                assert isinstance(other, EndConfirmingProvider)
                assert "c-1" not in await other.confirm_ended(names), "it runs"

        self._run(test())

    def test_closing_leaves_the_slices_and_the_next_controller_finds_them(self) -> None:
        async def test() -> None:
            async with self._opened() as provider:
                before = await self._up(provider, "c-1")
                await provider.close()
                after = self._bound()
                assert await self._shown(after, "c-1") == before
                await after.launch(self.order("c-1"), EPOCH)
                assert await self._shown(after, "c-1") == before
                await self._gone(after, "c-1")

        self._run(test())
