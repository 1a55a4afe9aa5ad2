"""A pool on EC2: real boto3, asyncssh and Dask against a fake EC2 whose instances are hosts with a real sshd."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import windlass as wl
from windlass.testing.clouds import FakeEC2, missing_for_ec2

from .machines_elsewhere import PACKAGE, package_index
from .processes import eventually
from .test_pool_on_ssh import SECRET, begun_on, marked, marks, tripled

pytestmark = [
    pytest.mark.aws,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-"),
]


@pytest.fixture
def ec2(monkeypatch) -> Iterator[FakeEC2]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setattr("windlass.pool.machines.LEASE", 15.0)
    with FakeEC2() as ec2:
        yield ec2


def machines(ec2: FakeEC2, directory: Path, **more) -> wl.AWS:
    settings = {"image_id": "ami-12c6146b", "security_group": "sg-12345678", "user": "root"}
    return wl.AWS(endpoint_url=ec2.url, directory=str(directory), metadata_url=ec2.metadata_url, **{**settings, **more})


def test_200_tasks_with_a_package_a_crashed_machine_a_spot_notice_and_scale_to_zero(ec2, tmp_path):
    file, gate, journal = tmp_path / "marks", tmp_path / "gate", tmp_path / "pool"
    image = wl.Image(pip=[PACKAGE], pip_index=package_index(tmp_path), env={"TOY": SECRET})
    with wl.ComputePool(
        provider=machines(ec2, tmp_path, market="spot"),
        accelerator="A100",
        needs={"gpu": 4},
        nodes=(0, 4),
        image=image,
        directory=journal,
        console=False,
        autoscale_cooldown=1.0,
        autoscale_idle_timeout=2.0,
        reconcile_tick_interval=0.5,
    ) as pool:

        def at_work() -> list[str]:
            """Instances that have begun tasks."""
            return [one.id for one in ec2.live if f"{one.slice_id}/0" in begun_on(file)]

        future = wl.gather(*[tripled(n, str(file), 0.0, str(gate) if n >= 40 else "") for n in range(200)]) > pool
        eventually(lambda: len(marks(file, "end")) >= 30 and len(at_work()) >= 2, 300, lambda: (at_work(), ec2.live))
        first, second, *_ = at_work()
        ec2.give_notice(first, seconds=60)
        ec2.crash(second)
        gate.touch()
        values = future.result()
        assert values == [3 * n for n in range(200)]
        assert {one.type for one in ec2.instances.values()} == {"p4d.24xlarge"}
        assert all(one.spot for one in ec2.instances.values())
        assert pool.status().dollars > 0
        eventually(lambda: not ec2.live, 300, lambda: [one.id for one in ec2.live])
    assert not ec2.templates, "launch templates were left behind"
    secret = SECRET.encode()
    assert secret not in (journal / "journal.db").read_bytes()
    assert not any(SECRET in body for body in ec2.requests)
    assert not any(SECRET in text for text in ec2.user_data.values())


def test_spot_first_takes_an_on_demand_machine_without_spot_capacity_and_a_lost_answer_buys_no_second(ec2, tmp_path):
    ec2.faults.spot_capacity, ec2.faults.lose_answers = 0, 1
    prices = {"c7i.large/spot": 1.0, "c7i.large/on-demand": 3.0}
    given = machines(ec2, tmp_path, market="spot-first", instance_type="c7i.large", prices=prices)
    with wl.ComputePool(given, 1, console=False) as pool:
        assert marked(1, str(tmp_path / "a"), 0) >> pool == 1
        assert [one.spot for one in ec2.instances.values()] == [False]
        assert pool.status().dollars_per_hour == 3.0, "it is billed at the price of the market where it was bought"


def test_the_pool_says_what_it_will_buy_and_for_how_much_or_that_there_is_nothing(ec2, tmp_path):
    pool = wl.ComputePool(machines(ec2, tmp_path), 1, accelerator="A100", console=False)
    notice = pool._shape.notice
    assert "p4d.24xlarge with 8 A100, $21.96/h" in notice
    with pytest.raises(ValueError, match="windlass offers"):
        wl.ComputePool(machines(ec2, tmp_path, max_price=0.5, market="spot"), 1, accelerator="A100")


def test_a_budget_counts_spot_first_machines_at_the_price_on_demand():
    prices = {"c7i.large/spot": 1.0, "c7i.large/on-demand": 3.0}
    given = wl.AWS(market="spot-first", instance_type="c7i.large", prices=prices)
    wl.ComputePool(given, 2, budget=6.0, console=False)
    with pytest.raises(ValueError, match="cost \\$6/h already"):
        wl.ComputePool(given, 2, budget=5.0, console=False)
