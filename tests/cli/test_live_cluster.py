"""The commands beside a real controller: ``windlass run`` with local processes and a queue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.providers.local_processes import marked

CONFIG = """
groups:
  small: {resources: {cpu: 2}, max: 2, price: 0.5, scale_down: {idle_timeout: 1s}}
providers: {here: {type: local}}
workload: {type: queue}
policy: {vanish_timeout: 0.2, evaluation_interval: {min: 0.05, max: 0.5}}
"""
WINDLASS = (sys.executable, "-m", "windlass")


class Running:
    """A cluster in a directory of its own."""

    controller: subprocess.Popen[bytes]
    killed = False

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*WINDLASS, *words], cwd=self.directory, capture_output=True, text=True, check=False, timeout=60
        )

    def started(self, *words: str) -> subprocess.Popen[str]:
        piped = subprocess.PIPE
        return subprocess.Popen([*WINDLASS, *words], cwd=self.directory, stdout=piped, stderr=piped, text=True)

    def output(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def data(self, *words: str) -> Any:
        return json.loads(self.output(*words, "--json"))

    def until(self, wanted: Callable[[Any], object]) -> Any:
        """The status, as soon as it is as wanted."""
        return eventually(lambda: self.data("status"), wanted)


def eventually(look: Callable[[], Any], wanted: Callable[[Any], object] = bool, within: float = 60.0) -> Any:
    deadline = time.monotonic() + within
    while not wanted(found := look()):
        assert time.monotonic() < deadline, f"not within {within:g} s; last seen: {found}"
        time.sleep(0.02)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Running]:
    with leading(tmp_path, CONFIG) as found:
        yield found


@contextmanager
def leading(directory: Path, config: str, log_file: str = "run.log") -> Iterator[Running]:
    """A controller that leads; nothing of it is left afterwards."""
    (directory / "windlass.yaml").write_text(config, encoding="utf-8")
    found = Running(directory)
    with (directory / log_file).open("wb") as log:
        controller = subprocess.Popen([*WINDLASS, "run"], cwd=directory, stderr=log)
        try:
            eventually(
                (directory / ".windlass" / "journal.db").exists, lambda there: there or controller.poll() is not None
            )
            assert controller.poll() is None, f"it ended; see {log_file}"
            eventually(lambda: found.run("status", "--json"), lambda done: '"alive": true' in done.stdout)
            found.controller = controller
            yield found
        finally:
            controller.terminate()
            try:
                assert controller.wait(20) == (-signal.SIGKILL if found.killed else 0)
            finally:
                controller.kill()
                for pid in marked(directory):
                    os.kill(pid, signal.SIGKILL)
                eventually(lambda: marked(directory), lambda left: not left)


def test_a_job_from_its_arrival_to_the_end_of_its_machine(cluster: Running) -> None:
    words = [*WINDLASS, "events", "--follow", "--json"]
    with subprocess.Popen(words, cwd=cluster.directory, stdout=subprocess.PIPE, text=True) as following:
        try:
            _watched_job(cluster)
            assert following.stdout is not None
            seen: list[str] = []
            while not any("terminated" in line for line in seen):
                seen.append(json.loads(following.stdout.readline())["text"])
            assert any(line.startswith("launch 1 machine of small") for line in seen)
            following.send_signal(signal.SIGINT)
            assert following.wait(10) == 0
        finally:
            following.kill()


def _watched_job(cluster: Running) -> None:
    """A job that runs until the test lets it end, asked about all the while."""
    gate = cluster.directory / "gate"
    os.mkfifo(gate)
    cluster.output("submit", "--name", "job", "--", "cat", "gate")
    status = cluster.until(lambda seen: [one["tasks"] for one in seen["slices"]] == [1])
    [one] = status["slices"]
    assert (one["state"], one["code"], status["hourly_cost"]["now"]) == ("ready", "BUSY", 0.5)

    assert "stopped waiting" in cluster.output("why", "job")
    assert "1 task running on 1 host: the machine is never ended while they run" in cluster.output("why", one["id"])
    assert "Plan: nothing to do." in cluster.output("plan", "--live")
    assert "no problems" in cluster.output("doctor")

    assert cluster.data("drain", one["id"])["heard"] is True
    cluster.until(lambda seen: seen["slices"][0]["state"] == "draining")
    with gate.open("w", encoding="utf-8"):
        pass  # the task reads the end of the file, and ends
    cluster.until(lambda seen: not seen["slices"])
    story = cluster.data("why", one["id"])["slice"]
    assert (story["state"], story["certificate"]["fence"]) == ("terminated", 1)


def test_what_is_frozen_buys_nothing_until_it_is_resumed(cluster: Running) -> None:
    frozen = cluster.data("freeze", "small")
    assert frozen["heard"] is True
    assert "nothing is launched or released" in frozen["outcome"]
    cluster.output("submit", "--name", "job", "--", "true")
    [waiting] = cluster.until(lambda seen: seen["demands"])["demands"]
    assert [part["code"] for part in waiting["parts"]] == ["FROZEN"]
    assert cluster.data("resume")["outcome"] == "small is resumed"
    cluster.until(lambda seen: not seen["slices"] and not seen["demands"])
    assert "launch 1 machine of small" in cluster.output("events", "--subject", "small")


def test_a_cancelled_job_is_ended_and_everything_can_be_taken_down(cluster: Running) -> None:
    cluster.output("submit", "--name", "long", "--count", "2", "--", "sleep", "600")
    eventually(lambda: cluster.data("jobs"), lambda output: output["jobs"][0]["running"] == 2)
    assert "2 running tasks are being ended" in cluster.output("cancel", "long")
    eventually(lambda: cluster.data("jobs"), lambda output: output["jobs"][0]["cancelled"] == 2)
    done = cluster.run("submit", "--name", "bad", "--wait", "--", "sh", "-c", "echo broken; exit 7")
    assert done.returncode == 7
    assert "broken" in done.stdout
    done = cluster.run("down")
    assert "nothing is left" in " ".join(done.stdout.split())
    progress = done.stderr.splitlines()
    assert len(progress) == len(set(progress)), "each line is printed once"
    output = cluster.data("down")
    assert (output["schema"], output["nothing_left"], output["left"]) == ("windlass.down/v1", True, {"here": []})
    cluster.output("submit", "--name", "late", "--", "true")
    assert cluster.data("status")["slices"] == []  # frozen until it is resumed
    cluster.output("resume")
    eventually(lambda: cluster.data("jobs"), lambda output: output["jobs"][-1]["done"] == 1)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_controller_that_is_gone_left_running_can_be_taken_down(tmp_path: Path, how: signal.Signals) -> None:
    """One that was killed has not given its lease back, and seems to lead for a while."""
    with leading(tmp_path, CONFIG.replace("idle_timeout: 1s", "idle_timeout: 1h")) as cluster:
        cluster.output("submit", "--name", "short", "--wait", "--", "true")
        controller = int(cluster.data("status")["leader"]["holder"].rpartition(":")[2])
        os.kill(controller, how)
        if how == signal.SIGTERM:
            eventually(lambda: cluster.data("status"), lambda told: not told["leader"]["alive"])
        else:
            cluster.killed = True
            cluster.controller.wait(60)  # else it is still there, as a zombie
            assert cluster.data("down")["nothing_left"]
            return
        assert marked(tmp_path)
        alarmed = cluster.run("doctor")
        assert alarmed.returncode == 1
        assert "1 machine run" in " ".join(alarmed.stdout.split())
        output = cluster.data("down")
    assert (output["nothing_left"], output["controller_runs"]) == (True, False)
    assert marked(tmp_path) == []


def test_a_controller_that_stops_says_which_machines_it_leaves(tmp_path: Path) -> None:
    with leading(tmp_path, CONFIG.replace("idle_timeout: 1s", "idle_timeout: 1h")) as cluster:
        cluster.output("submit", "--name", "short", "--wait", "--", "true")
    log = (tmp_path / "run.log").read_text(encoding="utf-8")
    assert log.rstrip().endswith(" stopped; 1 machine keeps running, with the work on it")


def test_a_controller_that_stops_after_down_says_that_no_machine_is_left(tmp_path: Path) -> None:
    with leading(tmp_path, CONFIG) as cluster:
        cluster.output("submit", "--name", "short", "--wait", "--", "true")
        cluster.output("down")
    assert (tmp_path / "run.log").read_text(encoding="utf-8").rstrip().endswith(" stopped; no machine is left")


def test_what_cannot_be_asked_for_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "windlass.yaml").write_text(CONFIG, encoding="utf-8")
    done = Running(tmp_path).run("events", "--since", "some day")
    assert (done.returncode, done.stdout) == (64, "")
    assert "'some day' is not a time" in done.stderr


def test_a_controller_whose_log_is_on_a_full_disk_goes_on(tmp_path: Path) -> None:
    with leading(tmp_path, CONFIG, "/dev/full") as cluster:
        cluster.output("submit", "--wait", "--", "true")
        cluster.until(lambda seen: not seen["slices"])
        assert cluster.controller.poll() is None


@pytest.mark.parametrize("restarted", [False, True])
def test_a_queue_that_was_moved_away_is_a_problem_and_no_program_makes_another(tmp_path: Path, restarted: bool) -> None:
    with leading(tmp_path, CONFIG) as cluster:
        gate, queue = tmp_path / "gate", tmp_path / ".windlass" / "queue"
        os.mkfifo(gate)
        cluster.output("submit", "--name", "job", "--", "sh", "-c", "echo started; cat gate")
        eventually(lambda: cluster.output("logs", "job"), lambda log: "started" in log)
        [slice_id] = [one["id"] for one in cluster.until(lambda seen: seen["slices"][0]["tasks"] == 1)["slices"]]
        queue.rename(tmp_path / "away")
        if restarted:
            cluster.controller.terminate()
            assert cluster.controller.wait(20) == 0
            with (tmp_path / "run.log").open("ab") as log:
                cluster.controller = subprocess.Popen([*WINDLASS, "run"], cwd=tmp_path, stderr=log)
        try:
            cluster.until(lambda seen: "workload" in seen["troubles"])
            ill = cluster.run("doctor")
            assert (ill.returncode, "queue" in ill.stdout) == (1, True)
            refused = cluster.run("submit", "--", "true")
            assert (refused.returncode, "put it back" in refused.stderr) == (1, True)
            assert not queue.exists()
            (tmp_path / "away").rename(queue)
            cluster.until(lambda seen: "workload" not in seen["troubles"])
            assert [one["id"] for one in cluster.data("status")["slices"]] == [slice_id]
            with gate.open("w", encoding="utf-8"):
                pass
            eventually(lambda: cluster.data("jobs"), lambda seen: seen["jobs"][0]["done"] == 1)
        finally:
            if restarted:
                cluster.controller.terminate()
                cluster.controller.wait(20)


def test_commands_that_follow_a_job_wait_for_a_queue_that_was_moved_away(cluster: Running) -> None:
    gate, queue = cluster.directory / "gate", cluster.directory / ".windlass" / "queue"
    os.mkfifo(gate)
    shell = "echo before; cat gate; echo after"
    with cluster.started("submit", "--name", "job", "--wait", "--", "sh", "-c", shell) as waiting:
        eventually(lambda: cluster.run("logs", "job").stdout, lambda log: "before" in log)
        with cluster.started("logs", "job", "--follow") as following:
            try:
                assert following.stdout is not None
                assert following.stdout.readline() == "before\n"
                queue.rename(cluster.directory / "away")
                for one in (waiting, following):
                    assert one.stderr is not None
                    while "waiting for it" not in (line := one.stderr.readline()) or "moved" not in line:
                        assert one.poll() is None
                (cluster.directory / "away").rename(queue)
                with gate.open("w", encoding="utf-8"):
                    pass
                assert (waiting.wait(60), following.wait(60)) == (0, 0)
                assert following.stdout.read() == "after\n"
            finally:
                waiting.kill()
                following.kill()
