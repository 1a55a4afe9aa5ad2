"""Traces: jobs from a file, run on configured machines, with what it cost and how long they waited."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from windlass.cli import windlass
from windlass.config import ConfigError
from windlass.config.set_option import overridden
from windlass.core.model.snapshot import Gang
from windlass.sim.trace.offline_bound import offline_bound
from windlass.sim.trace.reader import TraceError, read_trace
from windlass.sim.trace.run import run_trace

HEAD = "job_id,submit_s,duration_s,tasks,cpu,mem_gib,gpu,gpu_model,gang\n"
JOBS = HEAD + "a,100,3600,2,4,8,1,,0\nb,260,1800,1,4,8,0.5,A100|H100,0\nc,400,60,4,1,1,0,,1\nd,500,,1,1,1,0,,0\n"
CONFIG = """
groups:
  gpu: {resources: {cpu: 8, memory: 64Gi, gpu: 2}, labels: {gpu-model: A100}, max: 4, price: 2.0, boot_seconds: 60,
        scale_down: {idle_timeout: 5m}}
  cpu: {resources: {cpu: 8, memory: 32Gi}, max: 4, price: 0.4, boot_seconds: 60, scale_down: {idle_timeout: 5m}}
providers: {cloud: {type: simulated}}
workload: {type: simulated}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.csv.gz"
    file.write_bytes(gzip.compress(JOBS.encode()))
    return file


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "windlass.yaml"
    file.write_text(CONFIG)
    return file


# -- reading -------------------------------------------------------------------------------------------------------


def test_jobs_are_sorted_by_arrival_from_zero_and_those_without_an_end_are_counted(trace):
    found = read_trace(trace)
    assert [(job.id, job.arrives, job.duration) for job in found.jobs] == [
        ("job-a", 0, 3600),
        ("job-b", 160, 1800),
        ("job-c", 300, 60),
    ]
    assert found.left_out == 1
    assert found.jobs[1].demand.bundles[0].needs == (("cpu", 4000), ("gpu", 500), ("memory", 8 << 30))
    assert str(found.jobs[1].demand.where[0]) == "gpu-model in (A100, H100)"
    assert [job.demand.gang for job in found.jobs] == [None, None, Gang.ANY]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,b\n1,2\n", "no column job_id"),
        (HEAD + "a,0,x,1,1,1,0,,0\n", "line 2: duration_s must be a number, is 'x'"),
        (HEAD + "a,nan,5,1,1,1,0,,0\n", "line 2: submit_s must be a number, is 'nan'"),
        (HEAD + "a,0,inf,1,1,1,0,,0\n", "line 2: duration_s must be a number, is 'inf'"),
        (HEAD + "a,0,5,1,1,many,0,,0\n", "line 2: mem_gib must be a number, is 'many'"),
        (HEAD + "a,0,5,1\n", "line 2: cpu must be a number, is missing"),
        (HEAD + "a,0,5,0,1,1,0,,0\n", "at least one task"),
        (HEAD + "a,0,5,1,-1,1,0,,0\n", "must not be negative"),
        (HEAD + "a,0,5,1,1,1,1.5,,0\n", "whole number"),
    ],
)
def test_a_file_that_is_no_trace_is_reported_where(tmp_path, text, says):
    file = tmp_path / "jobs.csv"
    file.write_text(text)
    with pytest.raises(TraceError, match=says):
        read_trace(file)


def test_a_file_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        read_trace(tmp_path / "none.csv")


# -- changing a setting --------------------------------------------------------------------------------------------


def test_a_setting_is_changed_by_its_path_by_the_short_one_and_for_every_group():
    changed = overridden(
        CONFIG, path="w.yaml", changes=["gpu.max=9", "*.scale_down.idle_timeout=1m", "policy.drain_timeout=2h"]
    ).settings
    assert changed.by_name["gpu"].group.max == 9
    assert changed.by_name["cpu"].group.max == 4
    assert {one.group.scale_down.idle_timeout for one in changed.groups if one.group.scale_down} == {60}
    assert changed.policy.drain_timeout == 7200


def test_a_policy_is_laid_over_a_configuration():
    policy = "cluster: {choose: best-fit}\ngroups: {'*': {spare: 1}, cpu: {max: 7}}\n"
    changed = overridden(CONFIG, path="w.yaml", policy=policy).settings
    assert changed.cluster.choose == "best-fit"
    assert [(one.group.spare, one.group.max) for one in changed.groups] == [(1, 4), (1, 7)]


@pytest.mark.parametrize("change", ["gpu.max", "=5", "gpu.maximum=5", "gpu.max=x", "nowhere.max=5"])
def test_a_wrong_change_is_reported(change):
    with pytest.raises(ConfigError):
        overridden(CONFIG, path="w.yaml", changes=[change])


# -- running -------------------------------------------------------------------------------------------------------


def test_what_a_run_costs_and_how_long_work_waits(trace, config):
    jobs = read_trace(trace)
    _, found = run_trace(overridden(CONFIG, path="w.yaml").settings, jobs)
    assert (found.jobs, found.finished, found.killed_by_us, found.breaches) == (3, 3, 0, ())
    assert found.wait_max == pytest.approx(60, abs=2)  # a boot
    assert found.dollars == pytest.approx(sum(found.accounts.values()))
    bound = offline_bound([one.group for one in overridden(CONFIG, path="w.yaml").settings.groups], jobs.jobs)
    assert 0 < bound <= found.dollars
    assert 0 < found.utilization <= 1


def test_the_bound_is_each_job_on_its_share_of_the_cheapest_machine_for_its_time(trace):
    groups = [one.group for one in overridden(CONFIG, path="w.yaml").settings.groups]
    # a: two tasks on half a gpu machine each, an hour; b: half of its cpus, half an hour; c: 4 x 1/8 of 0.4, a minute
    assert offline_bound(groups, read_trace(trace).jobs) == pytest.approx(2 * 1.0 + 0.5 + 4 * 0.05 / 60)


def test_the_same_seed_gives_the_same_numbers(trace, config):
    command = [sys.executable, "-m", "windlass", "simulate", str(config), "--trace", str(trace), "--json"]
    runs = [
        json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout) | {"seconds": 0}
        for _ in range(2)
    ]
    assert runs[0] == runs[1]
    assert runs[0]["schema"] == "windlass.simulation/v1"


def test_the_command_prints_the_numbers_and_draws_a_picture(trace, config, tmp_path):
    picture = tmp_path / "run.html"
    done = CliRunner().invoke(
        windlass, ["simulate", str(config), "--trace", str(trace), "--set", "gpu.max=2", "--picture", str(picture)]
    )
    assert done.exit_code == 0, done.output
    assert "3 of 3 finished, 1 left out" in done.output
    assert "ended by Windlass      0 tasks" in done.output
    page = ET.fromstring(picture.read_text().replace("<!doctype html>", "").replace('<meta charset="utf-8">', ""))
    assert len(page.findall(".//svg")) == 3
    assert len(page.findall(".//polygon")) == 7


def test_jobs_that_never_start_are_named_with_their_reasons(config, tmp_path):
    trace = tmp_path / "never.csv"
    trace.write_text(HEAD + "".join(f"j{number},0,60,1,512,1,0\n" for number in range(5)))
    done = CliRunner().invoke(windlass, ["simulate", str(config), "--trace", str(trace)])
    assert "0 of 5 finished" in done.output
    assert "job-j0 waits         NO_SHAPE_FITS: needs 512 cpu" in done.output
    assert "and 2 more" in done.output
    done = CliRunner().invoke(windlass, ["simulate", str(config), "--trace", str(trace), "--json"])
    assert sorted(json.loads(done.output)["waiting"]) == [f"job-j{number}" for number in range(5)]


def test_a_comparison_that_costs_nothing_has_a_picture(trace, config, tmp_path):
    picture = tmp_path / "frontier.html"
    arguments = ["compare", str(config), "--trace", str(trace), "--picture", str(picture)]
    config.write_text(config.read_text().replace("price: 2.0", "price: 0").replace("price: 0.4", "price: 0"))
    done = CliRunner().invoke(windlass, arguments)
    assert done.exit_code == 0, done.output
    assert "<svg" in picture.read_text()


def test_a_faulty_cloud_makes_it_more_expensive_and_kills_nothing(trace, config):
    done = CliRunner().invoke(
        windlass, ["simulate", str(config), "--trace", str(trace), "--faults", "boot", "--seed", "3", "--json"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.output)["killed_by_us"] == 0


def test_a_trace_may_have_the_line_ends_of_any_system(tmp_path):
    file = tmp_path / "old.csv"
    file.write_bytes(JOBS.replace("\n", "\r").encode())
    assert [job.id for job in read_trace(file).jobs] == ["job-a", "job-b", "job-c"]


def test_a_wrong_trace_or_change_is_one_line_and_status_1(trace, config, tmp_path):
    endless = tmp_path / "endless.csv"
    endless.write_text(HEAD + "x" * 200_000 + "\n")
    for arguments, says in (
        (["--trace", str(tmp_path / "none.csv")], "none.csv: cannot be read: No such file or directory; check"),
        (["--trace", str(endless)], "line 2 cannot be read"),
        (["--trace", str(trace), "--picture", str(tmp_path)], "cannot be written: Is a directory"),
        (["--trace", str(trace), "--set", "gpu.maxx=1"], "did you mean max?"),
    ):
        done = CliRunner().invoke(windlass, ["simulate", str(config), *arguments])
        assert done.exit_code == 1
        assert says in done.output


def test_policies_stand_side_by_side_with_the_bound(trace, config, tmp_path):
    patient, picture = tmp_path / "patient.yaml", tmp_path / "frontier.html"
    patient.write_text("groups: {'*': {scale_down: {idle_timeout: 1h}}}\n")
    arguments = ["compare", str(config), "--trace", str(trace), "--policies", str(patient), "--picture", str(picture)]
    done = CliRunner().invoke(windlass, arguments)
    assert done.exit_code == 0, done.output
    rows = [line.split("  ")[0] for line in done.output.splitlines()]
    assert rows == ["policy", "as configured", "patient", "offline bound"]
    assert picture.read_text().count("<circle") == 2
    output = json.loads(CliRunner().invoke(windlass, [*arguments, "--json"]).output)
    assert (
        output["policies"]["patient"]["dollars"] > output["policies"]["as configured"]["dollars"] > output["bound"] > 0
    )


def test_every_policy_of_a_comparison_plans_at_the_same_interval(trace, config, tmp_path):
    slow = tmp_path / "slow.yaml"
    slow.write_text("policy: {evaluation_interval: {min: 300, max: 300}}\n")
    done = CliRunner().invoke(
        windlass, ["compare", str(config), "--trace", str(trace), "--policies", str(slow), "--json"]
    )
    assert done.exit_code == 0, done.output
    assert "its evaluation_interval is not used" in done.stderr
    output = json.loads(done.stdout)["policies"]
    assert output["slow"]["wait_p95"] == output["as configured"]["wait_p95"]
    assert {"wait_p50", "wait_p95"} <= output["slow"].keys()


def test_a_duplicate_job_id_is_two_jobs_with_a_warning(tmp_path):
    file = tmp_path / "twice.csv"
    rows = "a,0,5,1,1,1,0,,0\na,1,7,1,1,1,0,,0\na-2,2,9,1,1,1,0,,0\n"
    file.write_text(HEAD + rows, encoding="utf-8")
    trace = read_trace(file)
    assert len({job.id for job in trace.jobs}) == 3
    assert sorted(job.duration for job in trace.jobs) == [5, 7, 9]
    assert trace.repeated == 2
    assert "stood there before" in trace.warning


def test_a_duplicate_job_id_does_not_take_the_id_of_another_job(tmp_path):
    file = tmp_path / "twice.csv"
    rows = "a-2,0,5,1,1,1,0,,0\na,1,7,1,1,1,0,,0\na,2,9,1,1,1,0,,0\na,3,11,1,1,1,0,,0\n"
    file.write_text(HEAD + rows, encoding="utf-8")
    trace = read_trace(file)
    assert len({job.id for job in trace.jobs}) == 4
    assert sorted(job.duration for job in trace.jobs) == [5, 7, 9, 11]
    assert trace.repeated == 2
