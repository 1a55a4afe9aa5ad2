"""What goes wrong with EC2: capacity, quota, throttling, permissions, lost answers, lagging lists, crashes, notices."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.control.worlds import Work, World
from tests.workloads.kubernetes.stage import NODES, PROVISIONERS, Stage, provisioner
from windlass.control.controller import Controller
from windlass.control.report.current import planned_state, read_state
from windlass.control.report.why import Question
from windlass.control.settings import GroupSettings, Leadership, Settings
from windlass.core.model.snapshot import Group, amounts
from windlass.journal import open_journal
from windlass.providers.protocol import (
    AuthFailed,
    ClusterIdentity,
    HostOrder,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    ProviderError,
    QuotaExceeded,
    Throttled,
)
from windlass.testing.clouds import FakeEC2, missing_for_ec2
from windlass.testing.eventually import eventually, refusal_of
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.workloads.protocol import Join

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


def test_refusals_have_different_types_and_leave_nothing(ec2, tmp_path):
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


def test_the_fake_lists_no_address_before_there_is_a_machine(ec2, tmp_path, monkeypatch):
    listed, add = threading.Event(), ec2.hosts.add
    monkeypatch.setattr(ec2.hosts, "add", lambda **given: listed.wait(60) and add(**given))

    async def test(provider: Any) -> None:
        launching = asyncio.create_task(provider.launch(order("s-1"), 1))

        async def bought() -> int:
            return len(ec2.instances)

        async def addresses() -> list[str]:
            return [one.hosts[0].address for one in await provider.list()]

        await eventually(bought)
        assert await addresses() == [""]
        listed.set()
        await launching
        assert await addresses() == [ec2.live[0].host.address]
        await provider.terminate("s-1", 1)

    using(ec2, tmp_path, test)


def test_a_machine_is_followed_to_its_new_address(ec2, tmp_path):
    ec2.faults.unused_address_seconds = 3600.0

    async def test(provider: Any) -> None:
        await provider.launch(order("s-1"), 1)

        async def hosts() -> list[tuple[str, str]]:
            return [(one.phase, one.hosts[0].address) for one in await provider.list()]

        await eventually(hosts, lambda found: found == [("waiting for SSH", ec2.hosts.unused_address)])
        ec2.faults.unused_address_seconds = 0.0
        await eventually(hosts, lambda found: found == [("", ec2.live[0].host.address)], within=60)
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


def test_a_machine_that_ended_its_program_by_its_lease_counts_as_dead(ec2, tmp_path):
    async def test(provider: Any) -> None:
        await provider.launch(order("s-1"), 1)

        async def one() -> Instance | None:
            return next(iter(await provider.list()), None)

        await eventually(one, lambda seen: seen is not None and not seen.phase, within=120)
        (known,) = provider._known.values()
        await known.machine.ask("end", slice="s-1", epoch=1)  # as its supervisor does when the lease is over
        seen = await eventually(one, lambda seen: seen is not None and not seen.hosts[0].running, within=120)
        assert seen is not None
        assert "lease" in seen.trouble
        await provider.terminate("s-1", 1)

    using(ec2, tmp_path, test)


def test_what_a_dead_machine_leaves_is_in_the_journal_and_its_bill_has_the_times_of_ec2(ec2, tmp_path):
    # EC2 knows whole seconds: a machine that lives for less than one may have no lifetime to bill.
    command = ("/bin/sh", "-c", "echo token $TOKEN; echo no such device; sleep 2; exit 3")
    group = Group("gpu", (("gpu", 8000),), 1, price=3600 * 10**9)
    settings = Settings((GroupSettings(group, "ec2"),))
    journal = open_journal(":memory:")

    class Failing(Work):
        """A workload whose nodes end at once."""

        def join(self, *_: Any) -> Join:
            return Join(command, {"TOKEN": SECRET})

    async def test(provider: Any) -> None:
        work = Failing({}, dict, World())
        controller = Controller(
            settings,
            {"ec2": provider},
            work,
            journal,
            now=time.time,
            steady=time.monotonic,
            leadership=Leadership("one"),
        )
        controller.start()
        work.waiting = ["a"]

        async def machines() -> list[str]:
            await controller.tick()
            await controller.actuator.settle()
            if ec2.instances:
                work.waiting = []
            return [*controller.controller_state.fleet.slices, *(one.id for one in ec2.live)]

        await eventually(machines, bool)
        (name,) = controller.controller_state.fleet.slices
        await eventually(machines, lambda left: not left, within=120)
        state = read_state(journal)
        document = Question(name, None, planned_state(state, settings, time.time()), journal, led=True).to_dict()
        (host,) = document["slice"]["dead_hosts"]
        assert (host["exit_code"], host["last_lines"]) == (3, ["token ***", "no such device"])
        (one,) = (await provider._instances(slice_id=name))[:1]
        ended = await provider.confirm_ended([name])
        lifetime = ended[name] - one["LaunchTime"].timestamp()
        await controller.stop()
        assert 0 < lifetime < time.time() - one["LaunchTime"].timestamp() + 1
        bill = sum(account.dollars() for account in controller.controller_state.account.values())
        assert bill == pytest.approx(lifetime), "a dollar a second, and the times are whole seconds"

    using(ec2, tmp_path, test)
    assert SECRET.encode() not in repr(list(journal.read())).encode()


def test_rebalance_and_interruption_notices_become_the_time_at_which_the_machine_goes(ec2, tmp_path):
    async def test(provider: Any) -> None:
        await provider.launch(order("s-1"), 1)

        async def one() -> Instance | None:
            return next(iter(await provider.list()), None)

        await eventually(one, lambda seen: seen is not None and not seen.phase, within=120)
        (instance,) = ec2.live
        ec2.give_notice(instance.id, seconds=0, kind="rebalance")
        noticed = await eventually(one, lambda seen: seen is not None and seen.preempted_at, within=120)
        assert noticed is not None
        assert noticed.preempted_at is not None
        assert noticed.preempted_at < time.time() + 1, "it may go at any time from the notice on"
        ec2.give_notice(instance.id, seconds=3600)
        await eventually(
            one,
            lambda seen: seen is not None and seen.preempted_at and 3000 < seen.preempted_at - time.time() < 3601,
            within=120,
        )
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


# -- Kubernetes --------------------------------------------------------------------------------------------------------

JOINING = """#!/bin/bash
printf '%s\\n' "$WINDLASS_NODE_NAME" "$WINDLASS_NODE_LABELS" > "$HOME/joined"
"""


def test_a_kubernetes_node_joins_by_its_user_data_and_needs_no_connection(ec2, tmp_path):
    """The controller buys an instance for a pod; the instance runs the script of the provisioner with the names and
    labels of its node; the test plays the kubelet that the script would start."""
    settings = {"instance_type": "m5.large", "user_data": JOINING, "instance_profile": "nodes"}
    size = {"cpu": "2", "memory": "8Gi", "pods": "20"}
    spec: dict[str, Any] = {
        "maxNodes": 3,
        "minGPUUtilizationPercent": 100,
        "gpuResource": "cpu",
        "scaleDownDelay": "1s",
    }

    def register(stage: Stage) -> bool:
        for instance in ec2.live:
            said = instance.host.home / "joined"
            if said.exists() and len(lines := said.read_text().splitlines()) == 2 and lines[0] not in stage.nodes:
                ready = {"type": "Ready", "status": "True"}
                node = {
                    "metadata": {"name": lines[0], "labels": dict(one.split("=", 1) for one in lines[1].split(","))},
                    "spec": {"providerID": f"aws:///us-east-1a/{instance.id}"},
                    "status": {"capacity": size, "allocatable": size, "conditions": [ready]},
                }
                stage.fake.put(NODES, node)
        return stage.status().get("currentSize") == 1

    async def test() -> None:
        stage = Stage(FakeApiServer(), open_journal(":memory:"), [time.time()], lambda: made(ec2, tmp_path))
        try:
            stage.fake.put(PROVISIONERS, provisioner(template={"resources": size, "settings": settings}, **spec))
            stage.pending("a", cpu="1")
            await stage.until(lambda: register(stage), passes=300)
            (node,) = stage.nodes
            stage.bind("a", node)
            await stage.restart(lose_journal=True)
            await stage.tick(3)
            assert (len(ec2.live), stage.nodes) == (1, [node])
            stage.finish("a")
            await stage.until(lambda: not ec2.live, passes=100)
            await stage.until(lambda: not stage.nodes and not stage.claims, passes=100)
        finally:
            await stage.close()

    asyncio.run(test())
    assert not ec2.templates
    assert not any("SSH" in one and "Ingress" in one for one in ec2.requests)


def test_a_machine_that_cannot_join_is_not_bought(ec2, tmp_path):
    async def test(provider: Any) -> None:
        bare = LaunchOrder("s-1", "g", (HostOrder((), {}),), amounts({"cpu": 1000}), cluster=OURS)
        assert "user_data" in str(await refusal_of(provider.launch(bare, 1), InvalidRequest))
        long = replace(bare, settings={"user_data": "#!/bin/sh\n" + "x" * 20_000})
        assert "EC2 accepts 16384" in str(await refusal_of(provider.launch(long, 1), InvalidRequest))
        assert not ec2.instances

    using(ec2, tmp_path, test)
