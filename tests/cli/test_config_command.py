"""``windlass config`` as a user meets it: status, streams, and what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_plan_command import run
from tests.config.malformed import GOOD, MALFORMED
from windlass.config.reference import settings

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "config"


def test_check_summarises_a_configuration():
    done = run("config", "check", EXAMPLES / "windlass.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) < 24
    for words in (
        "2 groups, 1 provider, no mistakes",
        "1 cpu: $0.68/h",
        "28 machines",
        "$109.60/h",
        "40 hosts, $120.00/h",
    ):
        assert words in done.stdout


def test_check_reads_standard_input():
    assert run("config", "check", "-", text=GOOD).returncode == 0


@pytest.mark.parametrize("text", list(MALFORMED)[::15], ids=range(len(list(MALFORMED)[::15])))
def test_check_prints_every_mistake_and_nothing_else(text):
    done = run("config", "check", "-", text=text)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    assert all(part in done.stderr for part in MALFORMED[text])


def test_check_of_a_file_that_is_not_there_is_one_line():
    done = run("config", "check", "nowhere.yaml")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "nowhere.yaml: cannot be read: No such file or directory; "
        "check the path, or write a first configuration there with windlass init nowhere.yaml\n"
    )


def test_check_does_not_show_the_password_of_the_journal():
    done = run("config", "check", "-", text=GOOD + "journal: postgresql://me:secret@host:5432/db?password=secret")
    assert done.returncode == 0
    assert "secret" not in done.stdout
    assert "postgresql://me@host/db" in done.stdout


def test_check_does_not_miss_groups_that_a_kubernetes_cluster_defines():
    done = run("config", "check", "-", text="workload: {type: kubernetes}\nproviders: {k: {type: kwok}}\n")
    assert done.returncode == 0
    assert "note: " not in done.stdout
    assert "defined in kubernetes" in done.stdout
    assert "0 machines" not in done.stdout


def test_check_notes_settings_that_are_allowed_and_look_wrong():
    text = """
cluster: {max_nodes: 1}
groups: {a: {resources: {}, min: 3, max: 5}}
providers: {used: {type: simulated}, unused: {type: local}}
workload: {type: simulated, demands: nowhere.yaml}
"""
    done = run("config", "check", "-", text=text.replace("max: 5", "max: 5, provider: used"))
    notes = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    assert len(notes) == 4
    assert "ask for 3 machines; the limits allow 1 at first" in notes[0]
    assert "groups.a.resources is empty" in notes[1]
    assert "providers.unused has no group" in notes[2]
    assert "workload.demands does not exist yet" in notes[3]


def test_many_groups_still_fit_on_a_screen():
    groups = ", ".join(f"g{index}: {{resources: {{cpu: 1}}, max: 1}}" for index in range(50))
    done = run("config", "check", "-", text=f"groups: {{{groups}}}\n" + GOOD.partition("\n")[2])
    assert "and 30 more" in done.stdout
    assert len(done.stdout.splitlines()) < 40


def test_the_reference_lists_every_setting_for_people_and_for_programs():
    text = run("config", "reference").stdout
    listed = json.loads(run("config", "reference", "--json").stdout)
    assert listed["schema"] == "windlass.config-reference/v1"
    assert listed["settings"] == settings()
    for one in settings():
        assert one["path"].rpartition(".")[2] in text
    assert "drain_timeout (s)  [1h]" in text


@pytest.mark.parametrize("name", ["ray-cluster.yaml", "iris.yaml"])
def test_what_is_imported_passes_the_check(name):
    done = run("config", "import", EXAMPLES / name)
    assert done.returncode == 0
    assert "workload: " in done.stderr
    assert all(": " in line for line in done.stderr.splitlines())
    checked = run("config", "check", "-", text=done.stdout)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_given_format_takes_precedence_over_the_keys():
    done = run("config", "import", "-", "--from", "ray", text="provider: {type: aws}")
    assert done.returncode == 0
    assert "ray.worker.default" in done.stdout


def test_a_file_of_neither_kind_is_refused():
    done = run("config", "import", "-", text=GOOD)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "file: has neither available_node_types (Ray) nor scale_groups (Iris); say --from ray or --from iris\n"
    )


def test_a_workload_that_cannot_run_on_the_machines_of_a_provider_is_a_mistake():
    done = run("config", "check", "-", text=GOOD.replace("local", "simulated"))
    assert done.returncode == 1
    assert done.stderr == ("workload.type: queue runs on local machines only, and providers.here is simulated\n")


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "- " * 100_000, '{"groups": ' + "[" * 100_000], ids=["flow", "block", "json"]
)
@pytest.mark.parametrize("command", [("plan",), ("config", "check"), ("config", "import")], ids=" ".join)
def test_a_file_that_is_nested_too_deep_gets_one_line(tmp_path, text, command):
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    done = run(*command, file)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("\n") == 1
    assert "nested more than 64 levels deep" in done.stderr


def test_a_name_that_no_file_can_have_gets_one_line():
    done = run("status", "-c", "x" * 5000)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "check the name" in done.stderr
