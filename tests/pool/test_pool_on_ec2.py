"""A pool on EC2: real boto3, asyncssh and Dask against a fake EC2 whose instances are hosts with a real sshd."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import windlass as wl
from windlass.testing.clouds import FakeEC2, missing_for_ec2

from .machines_elsewhere import PACKAGE, package_index
from .processes import eventually
from .test_pool_on_ssh import SECRET, marked, marks, tripled

pytestmark = [
    pytest.mark.aws,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-"),
]


@pytest.fixture
def ec2(monkeypatch) -> Iterator[FakeEC2]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setattr("windlass.pool.machines.LEASE", 15.0)  # a busy computer pings late
    with FakeEC2() as ec2:
        yield ec2


def machines(ec2: FakeEC2, directory: Path, **more) -> wl.AWS:
    settings = {"image_id": "ami-12c6146b", "security_group": "sg-12345678", "user": "root"}
    return wl.AWS(endpoint_url=ec2.url, directory=str(directory), metadata_url=ec2.metadata_url, **{**settings, **more})


def test_200_tasks_with_a_package_a_crashed_machine_a_spot_notice_and_scale_to_zero(ec2, tmp_path):
    file, journal = tmp_path / "marks", tmp_path / "pool"
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

        def disturb() -> None:
            eventually(lambda: len(marks(file, "end")) > 30 and len(ec2.live) > 1, 300, lambda: ec2.live)
            first, second, *_ = ec2.live
            ec2.give_notice(first.id, seconds=60)
            ec2.crash(second.id)
            disturbed.set()

        disturbed = threading.Event()
        saboteur = threading.Thread(target=disturb)
        saboteur.start()
        values = wl.gather(*[tripled(n, str(file), 0.2) for n in range(200)]) >> pool
        saboteur.join()
        assert disturbed.is_set(), "there were never two machines at work"
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


def test_spot_first_takes_on_demand_machines_where_there_is_no_spot_capacity(ec2, tmp_path):
    ec2.faults.spot_capacity = 0
    pool = wl.ComputePool(machines(ec2, tmp_path, market="spot-first"), 1, console=False)
    with pool:
        assert marked(1, str(tmp_path / "a"), 0) >> pool == 1
        assert [one.spot for one in ec2.live] == [False]


def test_the_pool_says_what_it_will_buy_and_for_how_much_or_that_there_is_nothing(ec2, tmp_path):
    pool = wl.ComputePool(machines(ec2, tmp_path), 1, accelerator="A100", console=False)
    notice = pool._shape.notice
    assert "p4d.24xlarge with 8 A100, $21.96/h" in notice
    with pytest.raises(ValueError, match="windlass offers"):
        wl.ComputePool(machines(ec2, tmp_path, max_price=0.5, market="spot"), 1, accelerator="A100")


def test_a_lost_answer_of_a_launch_buys_one_machine(ec2, tmp_path):
    ec2.faults.lose_answers = 1
    with wl.ComputePool(machines(ec2, tmp_path), 1, console=False) as pool:
        assert Counter([marked(1, str(tmp_path / "a"), 0) >> pool]) == {1: 1}
        assert len(ec2.instances) == 1
