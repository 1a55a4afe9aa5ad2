"""What goes wrong with EC2: capacity, quota, throttling, permissions, lost answers, lagging lists, crashes, notices."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from windlass.core.model.snapshot import amounts
from windlass.providers.protocol import (
    AuthFailed,
    ClusterIdentity,
    HostOrder,
    Instance,
    InsufficientCapacity,
    LaunchOrder,
    ProviderError,
    QuotaExceeded,
    Throttled,
)
from windlass.testing.clouds import FakeEC2, missing_for_ec2
from windlass.testing.eventually import eventually, refusal_of

pytestmark = [pytest.mark.aws, pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-")]
OURS = ClusterIdentity("ours", "c0ffee01")
SECRET = "a-token-that-nobody-must-see"


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEC2]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with FakeEC2() as ec2:
        yield ec2


def order(name: str, **settings: Any) -> LaunchOrder:
    host = HostOrder(("sleep", "600"), {"TOKEN": SECRET})
    return LaunchOrder(name, "g", (host,), amounts({"cpu": 1000}), settings=settings, cluster=OURS)


def made(ec2: FakeEC2, directory: Any, **more: Any) -> Any:
    from windlass.providers.aws.buying import AWSSettings
    from windlass.providers.aws.provider import AWSProvider

    base = {"user": "root", "image_id": "ami-12c6146b", "security_group": "sg-1", "instance_type": "m5.large"}
    settings = AWSSettings(
        endpoint_url=ec2.url, directory=str(directory), metadata_url=ec2.metadata_url, **{**base, **more}
    )
    provider = AWSProvider(settings)
    provider.bind(OURS)
    return provider


def using(ec2: FakeEC2, directory: Any, test: Callable[[Any], Awaitable[None]], **more: Any) -> None:
    async def run() -> None:
        provider = made(ec2, directory, **more)
        try:
            await test(provider)
        finally:
            await provider.close()

    asyncio.run(run())


def test_refusals_are_told_apart_and_leave_nothing(ec2, tmp_path):
    async def test(provider: Any) -> None:
        ec2.faults.capacity = {"m5.large": 0}
        refusal = await refusal_of(provider.launch(order("s-1"), 1), InsufficientCapacity)
        assert "m5.large" in str(refusal)
        ec2.faults.capacity, ec2.faults.quota = {}, 0
        await refusal_of(provider.launch(order("s-1"), 1), QuotaExceeded)
        ec2.faults.quota, ec2.faults.throttle = None, 1
        assert (await refusal_of(provider.launch(order("s-1"), 1), Throttled)).retry_after > 0
        ec2.faults.unauthorized = ("CreateFleet",)
        assert "--policy" in str(await refusal_of(provider.launch(order("s-1"), 1), AuthFailed))
        ec2.faults.unauthorized = ()
        assert not ec2.instances
        await provider.launch(order("s-1"), 1)
        assert len(ec2.live) == 1, "an id that was refused may be asked for again"
        await provider.terminate("s-1", 1)
        assert not ec2.live
        assert not ec2.templates

    using(ec2, tmp_path, test)


def test_another_type_is_taken_where_the_first_has_no_capacity(ec2, tmp_path):
    async def test(provider: Any) -> None:
        ec2.faults.capacity = {"m5.large": 0}
        await provider.launch(order("s-1", instance_type=["m5.large", "m5.xlarge"]), 1)
        assert len(ec2.live) == 1
        await provider.terminate("s-1", 1)

    using(ec2, tmp_path, test)


def test_a_list_that_lags_and_an_answer_that_is_lost_buy_one_machine(ec2, tmp_path):
    ec2.faults.lag_seconds, ec2.faults.lose_answers, ec2.faults.pending_seconds = 1.0, 1, 1.5

    async def test(provider: Any) -> None:
        await refusal_of(provider.launch(order("s-1"), 1), ProviderError)
        await provider.launch(order("s-1"), 1)
        await provider.launch(order("s-1"), 1)
        assert len(ec2.instances) == 1

        async def states() -> list[str]:
            return [one.state for one in await provider.list()]

        await eventually(states, lambda found: found == ["pending"])
        await eventually(states, lambda found: found == ["running"])
        await provider.terminate("s-1", 1)

    using(ec2, tmp_path, test)


def test_a_controller_that_crashes_before_or_after_any_call_buys_once_and_leaks_nothing(ec2, tmp_path, monkeypatch):
    """A crash after a call leaves what a crash before the next call leaves: so many calls were carried out."""
    from windlass.providers.aws.api import EC2Api

    class Crash(BaseException):
        """Not an error that the provider could handle."""

    real = EC2Api._call

    def life(name: str, carried_out: int) -> int:
        calls = 0

        def call(self: EC2Api, operation: str, arguments: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls > carried_out:
                raise Crash
            return real(self, operation, arguments)

        async def whole(provider: Any) -> None:
            await provider.launch(order(name), 1)
            await provider.terminate(name, 1)

        monkeypatch.setattr(EC2Api, "_call", call)
        with suppress(Crash):
            using(ec2, tmp_path, whole)
        monkeypatch.setattr(EC2Api, "_call", real)
        return calls

    calls = life("s-all", sys.maxsize)
    assert calls >= 5
    for carried_out in range(calls):
        name = f"s-{carried_out}"
        life(name, carried_out)

        async def next_controller(provider: Any, name: str = name) -> None:
            await provider.launch(order(name), 2)
            assert sum(one.slice_id == name for one in ec2.instances.values()) == 1, name
            await provider.terminate(name, 2)

        using(ec2, tmp_path, next_controller)
        assert not ec2.live, name
        assert not ec2.templates, name


def test_an_interruption_notice_becomes_the_time_at_which_the_machine_goes(ec2, tmp_path):
    async def test(provider: Any) -> None:
        await provider.launch(order("s-1"), 1)

        async def one() -> Instance | None:
            return next(iter(await provider.list()), None)

        await eventually(one, lambda seen: seen is not None and not seen.phase, within=60)
        (instance,) = ec2.live
        ec2.give_notice(instance.id, seconds=120)
        seen = await eventually(one, lambda seen: seen is not None and seen.preempted_at, within=30)
        assert seen is not None
        assert seen.preempted_at is not None
        assert 60 < seen.preempted_at - time.time() < 130
        await provider.terminate("s-1", 1)

    using(ec2, tmp_path, test)


def test_instances_are_closed_to_others_and_user_data_holds_two_keys_and_no_secret(ec2, tmp_path):
    async def test(provider: Any) -> None:
        await provider.launch(order("s-1"), 1)
        (text,) = ec2.user_data.values()
        assert text.count("PRIVATE KEY") == 2, "the beginning and the end of the host key"
        assert SECRET not in "".join(ec2.requests)
        template = next(body for body in ec2.requests if "CreateLaunchTemplate" in body)
        assert "MetadataOptions.HttpTokens=required" in template
        assert "Ebs.Encrypted=true" in template
        assert (tmp_path / "ssh_key").stat().st_mode & 0o077 == 0
        await provider.terminate("s-1", 1)

    using(ec2, tmp_path, test)


def test_what_ec2_says_is_cut_and_freed_of_control_characters():
    from windlass.providers.aws.api import error_of, fleet_error

    said = {"Code": "Odd\x1b[31m" * 50, "Message": "\x07bad\n" * 10_000}
    texts = [str(error_of("CreateFleet", said))]
    override = {"Overrides": {"InstanceType": "m5\x1b[31m" * 100}}
    texts.append(
        str(
            fleet_error(
                [{"ErrorCode": said["Code"], "ErrorMessage": said["Message"], "LaunchTemplateAndOverrides": override}]
            )
        )
    )
    for text in texts:
        assert text.isprintable()
        assert len(text) < 1000


def test_a_slice_with_a_long_id_has_a_token_that_ec2_takes():
    from windlass.providers.aws.buying import client_token

    assert client_token("s-1") == "s-1"
    long = [client_token(f"gpu-p4de.24xlarge-on-demand-with-a-very-long-name-indeed-{number}") for number in (1, 2)]
    assert all(len(one) <= 64 for one in long)
    assert len(set(long)) == 2
