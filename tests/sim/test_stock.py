"""Stock over time: preemptible machines are available and preempted as in a recording."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from windlass.cli import windlass
from windlass.config.set_option import overridden
from windlass.sim.cloud.stock import StockError, StockRecording, read_recordings
from windlass.sim.trace.reader import read_trace
from windlass.sim.trace.run import run_trace

HOUR = 3600.0
JOBS = "job_id,submit_s,duration_s,tasks,cpu,mem_gib,gpu\n" + "".join(f"{n},0,5400,1,1,1,0\n" for n in range(4))
CONFIG = """
groups:
  spot: {resources: {cpu: 1, memory: 2Gi}, max: 9, price: 1.0, preemptible: true, boot_seconds: 60,
         scale_down: {idle_timeout: 1m}}
  firm: {resources: {cpu: 1, memory: 2Gi}, max: 9, price: 3.0, boot_seconds: 60, scale_down: {idle_timeout: 1m}}
providers: {cloud: {type: simulated}}
workload: {type: simulated}
"""
ROWS = "zone,start_s,length_s,available\n"


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.csv"
    file.write_text(JOBS)
    return file


def a_file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "spot.csv.gz"
    file.write_bytes(gzip.compress(text.encode()))
    return file


def run(jobs: Path, *recordings: StockRecording, changes: tuple[str, ...] = (), seed: int = 0):
    settings = overridden(CONFIG, path="w.yaml", changes=changes).settings
    return run_trace(settings, read_trace(jobs), recordings=recordings, seed=seed)[1]


# -- reading -------------------------------------------------------------------------------------------------------


def test_a_recording_begins_again_when_it_is_over(tmp_path):
    file = a_file(tmp_path, ROWS + "a,30,10,2\na,10,20,0\nb,0,5,1\n")
    first, second = read_recordings(file)
    assert (first.zone, first.span, second.zone) == ("a", 30, "b")
    assert [first.at(seconds) for seconds in (0, 19, 20, 29, 30, 50)] == [0, 0, 2, 2, 0, 2]
    assert [first.next_change(seconds) for seconds in (0, 20, 29, 30, 55)] == [20, 30, 30, 50, 60]


def test_of_several_recordings_of_a_zone_one_is_chosen_by_a_column(tmp_path):
    file = a_file(tmp_path, f"campaign,{ROWS}may,a,0,5,1\njune,a,0,5,7\n")
    with pytest.raises(StockError, match="2 recordings of a; choose one, as with campaign=june"):
        read_recordings(file)
    (found,) = read_recordings(file, {"campaign": "june"})
    assert found.available == (7,)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("zone,start_s\na,0\n", "no column length_s, available"),
        (ROWS + "a,0,x,1\n", "line 2"),
        (ROWS + "a,0,0,1\n", "must be above 0"),
        (ROWS + "a,0,5,-1\n", "at least 0"),
        (ROWS + "a,0,5,1\na,9,5,2\n", "a gap or an overlap at 5 s"),
        (ROWS + "a,0,5,1\na,3,5,2\n", "a gap or an overlap at 3 s"),
        (ROWS + "a,0,5,0\n", "available is 0 in every row"),
        (ROWS, "no row"),
    ],
)
def test_a_file_that_is_no_recording_is_reported_where(tmp_path, text, says):
    with pytest.raises(StockError, match=says):
        read_recordings(a_file(tmp_path, text))


def test_a_file_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(StockError, match="cannot be read"):
        read_recordings(tmp_path / "none.csv")


# -- running -------------------------------------------------------------------------------------------------------


def test_what_the_stock_does_not_have_is_bought_elsewhere(jobs):
    found = run(jobs, StockRecording("a", (0.0,), (3,), HOUR))
    assert (found.finished, found.lost_to_preemption, found.breaches) == (4, 0, ())
    work = 1.5 * (3 * 1.0 + 1 * 3.0)
    assert found.accounts["work"] == pytest.approx(work, rel=0.01)
    assert found.wait_max == pytest.approx(60, abs=5)  # refused and bought elsewhere without delay


def test_when_the_stock_falls_machines_are_taken_back_and_their_work_begins_again(jobs):
    falls = StockRecording("a", (0.0, HOUR), (4, 1), 100 * HOUR)
    found = run(jobs, falls)
    assert (found.finished, found.lost_to_preemption, found.killed_by_us, found.breaches) == (4, 3, 0, ())
    assert found.lost_hours == pytest.approx(3 * (HOUR - 60) / HOUR, rel=0.01)
    kept, lost, anew = 1.5 * 1.0, found.lost_hours * 1.0, 3 * 1.5 * 3.0
    assert found.accounts["work"] == pytest.approx(kept + lost + anew, rel=0.01)


def test_what_cannot_be_preempted_follows_no_recording(jobs):
    nothing_after_an_hour = StockRecording("a", (0.0, HOUR), (1, 0), 100 * HOUR)
    found = run(jobs, nothing_after_an_hour, changes=("spot.max=0",))
    assert (found.finished, found.lost_to_preemption) == (4, 0)


def test_a_group_without_a_zone_is_bought_where_there_is_stock_and_one_with_a_zone_there(jobs):
    zones = (StockRecording("a", (0.0,), (1,), HOUR), StockRecording("b", (0.0,), (2,), HOUR))
    anywhere, in_b = run(jobs, *zones), run(jobs, *zones, changes=("spot.settings={zone: b}",))
    assert anywhere.accounts["work"] == pytest.approx(1.5 * (3 * 1.0 + 3.0), rel=0.01)
    assert in_b.accounts["work"] == pytest.approx(1.5 * (2 * 1.0 + 2 * 3.0), rel=0.01)
    with pytest.raises(StockError, match="spot is bought in c, of which there is no recording; there is a, b"):
        run(jobs, *zones, changes=("spot.settings={zone: c}",))


def test_a_zone_without_a_recording_is_always_available(jobs):
    assert run(jobs, changes=("*.settings={zone: c}",)).finished == 4


def test_which_machines_are_taken_is_a_matter_of_chance_and_the_same_for_the_same_seed(jobs):
    falls = StockRecording("a", (0.0, 1800.0, HOUR), (4, 2, 3), 3 * HOUR)
    assert run(jobs, falls, seed=1) == run(jobs, falls, seed=1)


# -- the commands --------------------------------------------------------------------------------------------------


def test_the_commands_take_a_recording(tmp_path, jobs):
    config, spot = tmp_path / "w.yaml", a_file(tmp_path, f"campaign,{ROWS}may,a,0,3600,4\nmay,a,3600,360000,1\n")
    config.write_text(CONFIG)
    asked = ["--trace", str(jobs), "--spot", f"{spot},campaign=may"]
    done = CliRunner().invoke(windlass, ["simulate", str(config), *asked])
    assert done.exit_code == 0, done.output
    assert "3 tasks, which had run" in done.output
    firm = tmp_path / "firm.yaml"
    firm.write_text("groups: {spot: {max: 0}}\n")
    done = CliRunner().invoke(windlass, ["compare", str(config), *asked, "--policies", str(firm), "--json"])
    output = json.loads(done.output)["policies"]
    assert output["firm"]["lost_to_preemption"] == 0 < output["as configured"]["lost_to_preemption"]


@pytest.mark.parametrize(
    ("more", "changes", "status", "says"),
    [
        (",may", (), 2, "may is not COLUMN=VALUE"),
        (",campaign=may", (), 2, "no column campaign"),
        ("", ("--set", "spot.settings={zone: c}"), 1, "no recording"),
    ],
)
def test_a_recording_that_does_not_serve_is_reported(tmp_path, jobs, more, changes, status, says):
    config, spot = tmp_path / "w.yaml", a_file(tmp_path, ROWS + "a,0,5,1\n")
    config.write_text(CONFIG)
    done = CliRunner().invoke(
        windlass, ["simulate", str(config), "--trace", str(jobs), "--spot", f"{spot}{more}", *changes]
    )
    assert done.exit_code == status
    assert says in done.output
