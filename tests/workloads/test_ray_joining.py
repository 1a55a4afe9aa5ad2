"""The command of a Ray worker, and how the worker gets the token."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from windlass.core.model.snapshot import Group, amounts
from windlass.workloads.protocol import WorkloadError
from windlass.workloads.ray.workload import RayWorkload

GROUP = Group("worker", amounts({"cpu": 2000}), 4)
TOKEN = "a-token-that-is-secret"


def workload(here=("worker",), **more):
    return RayWorkload("127.0.0.2:6379", (GROUP,), here=here, **more)


def test_a_worker_on_this_machine_gets_a_token_of_the_environment_by_a_file_that_only_its_user_reads():
    one = workload(token=TOKEN)
    join = one.join("worker-1", "worker", 0)
    assert TOKEN not in repr(join)
    assert join.environment["RAY_AUTH_MODE"] == "token"
    file = Path(join.environment["RAY_AUTH_TOKEN_PATH"])
    try:
        assert file.read_text(encoding="utf-8") == TOKEN
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    finally:
        file.unlink()


def test_a_token_is_not_written_through_a_link_that_lies_in_its_place(tmp_path):
    one = workload(token=TOKEN)
    file = Path(one.join("worker-2", "worker", 0).environment["RAY_AUTH_TOKEN_PATH"])
    file.unlink()
    target = tmp_path / "target"
    file.symlink_to(target)
    try:
        one.join("worker-2", "worker", 0)
        assert not target.exists()
        assert not file.is_symlink()
    finally:
        file.unlink()
    file.mkdir()
    try:
        with pytest.raises(WorkloadError, match="give token_file"):
            one.join("worker-2", "worker", 0)
    finally:
        file.rmdir()


def test_a_worker_on_this_machine_reads_the_token_from_the_users_own_file(tmp_path):
    join = workload(token=TOKEN, token_file=str(tmp_path / "token")).join("worker-1", "worker", 0)
    assert join.environment["RAY_AUTH_TOKEN_PATH"] == str(tmp_path / "token")
    assert TOKEN not in repr(join)


def test_a_worker_on_another_machine_gets_the_token_in_its_environment(tmp_path):
    join = workload(here=(), token=TOKEN, token_file=str(tmp_path / "token")).join("worker-1", "worker", 0)
    assert join.environment["RAY_AUTH_TOKEN"] == TOKEN
    assert "RAY_AUTH_TOKEN_PATH" not in join.environment
    assert not any(word.startswith("--node-ip-address") for word in join.command)


def test_without_a_token_a_worker_is_started_without():
    join = workload().join("worker-1", "worker", 0)
    assert join.environment["RAY_AUTH_MODE"] == "disabled"
    assert "--node-ip-address=127.0.0.2" in join.command
