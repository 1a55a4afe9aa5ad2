"""One file: a scenario is a configuration plus facts, with the same keys and units, and its mistakes have lines."""

from __future__ import annotations

import json

import pytest
import yaml
from click.testing import CliRunner

from tests.shown import ROOT
from windlass import group as a_group
from windlass import plan, read_scenario, snapshot, write_scenario
from windlass.cli import windlass
from windlass.cli.commands.start.init import FIRST_FILE
from windlass.config import read_config
from windlass.config.json_schema import config_schema
from windlass.config.reference import pages
from windlass.providers.registry import PROVIDER_TYPES

CONFIG = """\
groups:
  cpu:
    resources: {cpu: 4}
    max: 3
    price: 1.0
    provider: here
    scale_down: {idle_timeout: 10m}
providers: {here: {type: local}}
workload: {type: queue}
"""
FACTS = "demands:\n  - {id: build, needs: {cpu: 4}, count: 2}\n"


def run(*words: str, text: str | None = None):
    return CliRunner().invoke(windlass, list(words), input=text)


def test_a_configuration_is_planned_with_and_without_facts():
    assert "nothing to do" in run("plan", "-", text=CONFIG).stdout
    output = json.loads(run("plan", "-", "--json", text=CONFIG + FACTS).stdout)
    assert output["launch"] == {"cpu": 2}


def test_settings_of_a_planned_configuration_are_checked_too():
    done = run("plan", "-", text=CONFIG.replace("type: local", "type: locl") + "policy: {drain_timeout: soon}\n")
    assert done.exit_code == 1
    assert f"providers.here.type: must be one of {', '.join(PROVIDER_TYPES)}, is 'locl'" in done.stderr
    assert "policy.drain_timeout: must be" in done.stderr


def test_facts_in_the_file_of_a_controller_are_named_as_such():
    done = run("config", "check", "-", text=CONFIG + FACTS)
    assert done.exit_code == 1
    assert "demands: unknown key in a configuration: only windlass plan takes facts" in done.stderr


@pytest.mark.parametrize("written", ["60", "1m", "60s", "'60'", "0.5m"])
def test_spans_are_written_alike_in_a_scenario_and_in_a_configuration(written):
    groups = "groups: {a: {resources: {cpu: 1}, max: 1, scale_down: {idle_timeout: SPAN}}}\n".replace("SPAN", written)
    rest = "providers: {here: {type: local}}\nworkload: {type: queue}\n"
    wanted = 30 if written == "0.5m" else 60
    [group] = read_scenario(groups).groups
    [configured] = read_config(groups + rest, path="x").settings.groups
    assert group.scale_down is not None
    assert (group.scale_down.idle_timeout, group.scale_down) == (wanted, configured.group.scale_down)


def test_times_of_facts_may_have_units_too():
    text = "now: 1h\ngroups: {a: {resources: {cpu: 1}, max: 1}}\ndemands: [{id: x, needs: {cpu: 1}, since: 50m}]\n"
    found = read_scenario(text)
    assert (found.now, found.demands[0].since) == (3600, 3000)
    assert read_scenario(json.dumps(write_scenario(found))) == found


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ("groups:\n  a:\n    max: 1\n    resourcs: {}\n", "f.yaml:4: groups.a.resourcs: unknown key; did you mean"),
        (FACTS + "  - {id: y,\n     needs: {gpu: much}}\n", "f.yaml:4: demands.y.needs.gpu: must be"),
        ("groups: {}\nslices:\n  - {id: s, group: g, state: odd}\n", "f.yaml:3: slices.s.state: must be one of"),
        ('{"groups": {},\n "nwo": 1}', "f.yaml:2: nwo: unknown key; did you mean now?"),
        ("groups: [", "f.yaml:2: scenario: "),
        ("groups:\n  a: {resources: {cpu: 1}}\n", "f.yaml:2: groups.a.max: is required"),
        ("groups:\n  a:\n    max: 1\n    resources: {}\n    max: 2\n", "f.yaml:5: groups.a.max: is given twice"),
        (CONFIG + "demands: []\ndemands: []\n", f"f.yaml:{CONFIG.count(chr(10)) + 2}: demands: is given twice"),
    ],
)
def test_a_mistake_has_its_file_and_line(tmp_path, monkeypatch, text, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.yaml").write_text(text, encoding="utf-8")
    done = run("plan", "f.yaml")
    assert done.exit_code == 1
    assert output in done.stderr


def test_a_mistake_of_a_planned_configuration_is_reported_once():
    done = run("plan", "-", text=CONFIG.replace("10m", "10 minutes"))
    assert done.exit_code == 1
    assert done.stderr.count("groups.cpu.scale_down.idle_timeout") == 1


def test_the_check_needs_no_name_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "windlass init" in run("config", "check").stderr
    (tmp_path / "windlass.yaml").write_text(CONFIG, encoding="utf-8")
    assert "windlass.yaml: 1 group, 1 provider, no mistakes" in run("config", "check").stdout
    monkeypatch.setenv("WINDLASS_CONFIG", "other.yaml")
    (tmp_path / "other.yaml").write_text(CONFIG, encoding="utf-8")
    assert "other.yaml: 1 group" in run("config", "check").stdout


def test_a_missing_file_says_how_to_get_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("status", "jobs", "doctor"):
        done = run(command)
        assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
        assert "there is no windlass.yaml" in done.stderr
        assert "windlass init" in done.stderr
        assert "-c FILE" in done.stderr


# -- warnings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["GPU", "nvidia.com/gpu", "Gpu"])
def test_two_names_for_one_resource_get_a_warning(other):
    text = "groups: {a: {resources: {gpu: 1}, max: 1}}\ndemands: [{id: x, needs: {OTHER: 1}}]\n".replace("OTHER", other)
    done = run("plan", "-", text=text)
    assert done.exit_code == 0
    assert "warning:" in done.stderr
    assert "call it gpu everywhere" in done.stderr
    assert "warning" not in run("plan", "-", text=text.replace(other, "gpu")).stderr


def test_a_group_that_never_shrinks_gets_a_warning():
    text = CONFIG.replace("    scale_down: {idle_timeout: 10m}\n", "")
    done = run("config", "check", "-", text=text)
    assert done.exit_code == 0
    assert "warning: groups.cpu has no scale_down rule" in done.stderr
    assert run("config", "check", "-", text=CONFIG).stderr == ""


# -- the schema for editors ----------------------------------------------------------------------------------------


def test_good_configurations_fit_the_schema_and_bad_ones_do_not():
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed: pip install '.[dev]'")
    schema = json.loads(run("config", "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    good = [CONFIG, FIRST_FILE.format(file="windlass.yaml"), (ROOT / "examples/config/windlass.yaml").read_text()]
    for text in good:
        assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []
    for old, new in (("max: 3", "mx: 3"), ("type: local", "type: locl"), ("10m", "soon"), ("cpu: 4", "cpu: [4]")):
        assert not validator.is_valid(yaml.safe_load(CONFIG.replace(old, new))), new


def test_every_setting_is_in_the_schema_with_its_meaning():
    text = json.dumps(config_schema())
    for page in pages():
        for name, key in page.form.keys.items():
            assert f'"{name}"' in text
            assert name == "type" or json.dumps(key.meaning.replace("`", ""))[1:-1] in text, name


def test_every_key_of_the_cluster_and_of_a_group_has_a_type_in_the_schema():
    schema = config_schema()["properties"]
    for part in (schema["cluster"], schema["groups"]["additionalProperties"]):
        assert [name for name, one in part["properties"].items() if set(one) == {"description"}] == []


# -- a renamed key -------------------------------------------------------------------------------------------------


def test_the_old_name_of_the_premium_for_own_machines_is_still_read():
    new = read_scenario("cluster: {own_machine_premium: 0.4}\ngroups: {}\n")
    old = read_scenario("cluster: {apart: 0.4}\ngroups: {}\n")
    built = snapshot([a_group("a", cpu=1, max=1, price=1.0)], own_machine_premium=0.4)
    assert new == old
    assert new.cluster == built.cluster
    assert write_scenario(old)["cluster"] == {"own_machine_premium": 0.4}
    assert plan(old) == plan(new)
    done = run("plan", "-", text="cluster: {apart: 0, own_machine_premium: 0}\ngroups: {}\n")
    assert "cluster.apart: is the old name of own_machine_premium; keep one of them" in done.stderr
