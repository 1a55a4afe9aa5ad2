"""The JSON of commands keeps every key and value that it had before the modules were moved.

``recorded_json.json`` was written by the code of that time, on journals of that time, without sentences for people.
Keys may be added to an answer; none is removed, and none changes its meaning. ``<any>`` stands for a value that differs
from run to run, or that was changed on purpose since: bills follow the provider's own times.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windlass.cli import windlass

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE / "recorded_json.json").read_text())
CONFIG = """
groups:
  cpu: {resources: {cpu: 2}, max: 4, price: 1.0, scale_down: {idle_timeout: 2s}}
providers: {local: {type: local, directory: ./hosts}}
workload: {type: queue, directory: ./queue}
journal: ./journal.db
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return configured(tmp_path, "old-queue")


def configured(directory: Path, journal: str, name: str = "journal.db") -> Path:
    """A configuration file beside a journal that the code of that time wrote."""
    recorded = HERE.parent / "control" / "journals" / f"{journal}.db.gz"
    (directory / name).write_bytes(gzip.decompress(recorded.read_bytes()))
    (directory / "windlass.yaml").write_text(CONFIG)
    return directory / "windlass.yaml"


def output(*words: str) -> str:
    done = CliRunner().invoke(windlass, [*words, "--json"])
    assert not done.stderr, done.stderr
    return done.stdout


def differences(old: Any, new: Any, at: str = "") -> Iterator[str]:
    """List what an answer of today lacks of the recorded one."""
    if old == "<any>":
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in new:
                yield from differences(value, new[key], f"{at}.{key}")
            else:
                yield f"{at}.{key} is missing"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (was, now) in enumerate(zip(old, new, strict=True)):
            yield from differences(was, now, f"{at}[{index}]")
    elif old != new:
        yield f"{at} was {old!r} and is {new!r}"


@pytest.mark.parametrize("words", ["status", "why cpu", "why cpu-tomkr5-1", "why small"])
def test_documents_about_a_cluster(config: Path, words: str) -> None:
    new = json.loads(output(*words.split(), "-c", str(config)))
    assert list(differences(RECORDED[words], new)) == []


def test_events(config: Path) -> None:
    new = [json.loads(line) for line in output("events", "-c", str(config)).splitlines()]
    assert list(differences(RECORDED["events"], new)) == []


def test_a_plan() -> None:
    new = json.loads(output("plan", str(HERE.parents[1] / "examples" / "small-cluster.yaml")))
    assert list(differences(RECORDED["plan"], new)) == []


def test_the_keys_of_a_replay(config: Path) -> None:
    assert RECORDED["replay"].keys() <= json.loads(output("replay", str(config.parent / "journal.db"))).keys()


def test_the_settings_of_a_configuration() -> None:
    new = {f"{one['path']}|{one['type']}": one for one in json.loads(output("config", "reference"))["settings"]}
    assert list(differences(RECORDED["config reference"], new)) == []


def test_orders_of_an_operator(config: Path) -> None:
    for what in ("resume", "freeze"):
        new = json.loads(output(what, "cpu", "-c", str(config)))
        assert list(differences(RECORDED[what], new)) == []


def test_the_drain_of_a_machine(tmp_path: Path) -> None:
    config = configured(tmp_path, "old-ready")
    new = json.loads(output("drain", "cpu-tonqvf-1", "-c", str(config)))
    assert list(differences(RECORDED["drain"], new)) == []


def test_a_submitted_job(config: Path) -> None:
    words = ["submit", "--count", "2", "--name", "extra", "-c", str(config), "--json", "--", "true"]
    new = json.loads(CliRunner().invoke(windlass, words).stdout)
    assert list(differences(RECORDED["submit"], new)) == []
    new = json.loads(output("jobs", "-c", str(config)))
    assert list(differences(RECORDED["jobs"], new)) == []


def test_the_checks_of_doctor(config: Path) -> None:
    assert list(differences(RECORDED["doctor"], json.loads(output("doctor", "-c", str(config))))) == []


def test_the_report_of_a_shadow(tmp_path: Path) -> None:
    config = configured(tmp_path, "old-shadow", "shadow.db")
    assert list(differences(RECORDED["shadow report"], json.loads(output("shadow", "report", "-c", str(config))))) == []


@pytest.mark.parametrize("command", ["simulate", "compare"])
def test_a_trace_of_jobs(tmp_path: Path, command: str) -> None:
    config, trace = tmp_path / "windlass.yaml", tmp_path / "jobs.csv"
    config.write_text(CONFIG.replace("{cpu: 2}", "{cpu: 2, memory: 8Gi}"))
    trace.write_text("job_id,submit_s,duration_s,tasks,cpu,mem_gib,gpu\na,0,60,4,1,1,0\nb,30,120,2,2,1,0\n")
    new = json.loads(output(command, str(config), "--trace", str(trace)))
    assert list(differences(RECORDED[command], new)) == []


def test_random_simulations() -> None:
    new = json.loads(output("simulate", "swarm", "--seeds", "1", "--hours", "0.5"))
    assert list(differences(RECORDED["simulate swarm"], new)) == []
