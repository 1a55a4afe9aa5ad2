"""The settings of a configuration, one by one, and their defaults."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.config.malformed import GOOD
from windlass import read_scenario
from windlass.config import Config, JournalConfig, read_config
from windlass.config.reference import pages, settings
from windlass.config.registry import PROVIDERS, WORKLOADS
from windlass.config.schema import BACKOFF, INTERVAL, JOURNAL, LEADER, POLICY
from windlass.control.settings import BackOff, Interval, Leadership, Policy
from windlass.core.model.lifecycle import TABLE, State
from windlass.scenario.durations import format_duration, parse_duration
from windlass.setting_types import Section, SubSection

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "config"


def read(text: str, path: str = "/etc/windlass/windlass.yaml") -> Config:
    return read_config(text, path=path)


# -- defaults ------------------------------------------------------------------------------------------------------


def test_a_missing_section_gets_every_default():
    config = read(GOOD)
    assert config.journal == JournalConfig("/etc/windlass/.windlass/journal.db", 30 * 86400)
    assert config.leader == Leadership(f"{socket.gethostname()}:{os.getpid()}", 15)
    assert config.settings.policy == Policy()
    assert config.settings.policy == Policy(
        evaluation_interval=Interval(0.2, 5),
        observe_timeout=10,
        call_timeout=120,
        retry_pause=5,
        requesting_timeout=600,
        boot_timeout=900,
        initializing_timeout=900,
        cordon_timeout=60,
        drain_timeout=3600,
        terminate_timeout=300,
        vanish_timeout=15,
        unhealthy_timeout=300,
        allow_eviction=False,
        launch_concurrency=20,
        launch_rate=600,
        backoff=BackOff(0.7, 900, 3600, 0.05, 15, 300),
    )
    assert config.providers["here"].settings == {
        "directory": "/etc/windlass/.windlass/local",
        "boot_delay": 0,
        "grace": 5,
        "environment": None,
    }
    assert config.workload.settings == {"directory": "/etc/windlass/.windlass/queue"}
    simulated = read(GOOD.replace("queue", "simulated"))
    assert simulated.workload.settings == {"seed": 0, "demands": None, "duration": 300}
    assert read(GOOD.replace("local", "simulated")).providers["here"].settings == {"seed": 0, "boot_delay": 60}


def test_the_limits_of_the_states_are_those_of_the_table_of_states():
    policy = read(GOOD).settings.policy
    assert policy.requesting_timeout == TABLE[State.REQUESTING].limit
    assert policy.boot_timeout == TABLE[State.BOOTING].limit
    assert policy.initializing_timeout == TABLE[State.INITIALIZING].limit
    assert policy.cordon_timeout == TABLE[State.CORDONED].limit
    assert policy.drain_timeout == TABLE[State.DRAINING].limit
    assert policy.terminate_timeout == TABLE[State.TERMINATING].limit


# -- the table is what is read -------------------------------------------------------------------------------------

OTHER: dict[str, Any] = {
    "policy.evaluation_interval.min": ("1s", 1),
    "policy.evaluation_interval.max": ("1m", 60),
    "policy.observe_timeout": (3, 3),
    "policy.call_timeout": ("30s", 30),
    "policy.retry_pause": (1, 1),
    "policy.requesting_timeout": ("2m", 120),
    "policy.boot_timeout": ("3m", 180),
    "policy.initializing_timeout": ("4m", 240),
    "policy.cordon_timeout": ("5m", 300),
    "policy.drain_timeout": ("6h", 21600),
    "policy.terminate_timeout": ("7m", 420),
    "policy.allow_eviction": (True, True),
    "policy.launch_concurrency": (3, 3),
    "policy.launch_rate": (4, 4),
    "policy.vanish_timeout": (0, 0),
    "policy.unhealthy_timeout": ("90", 90),
    "policy.backoff.factor": (0.5, 0.5),
    "policy.backoff.window": ("1m", 60),
    "policy.backoff.heal": ("2h", 7200),
    "policy.backoff.floor": (1, 1),
    "policy.backoff.pause": (0, 0),
    "policy.backoff.quota_block": (0, 0),
    "policy.backoff.boot_pause": ("2s", 2),
    "policy.backoff.grows_after_errors": (False, False),
    "journal.location": ("/var/lib/w.db", "/var/lib/w.db"),
    "journal.retention": ("90d", 90 * 86400),
    "leader.lease": ("30s", 30),
    "leader.holder": ("me", "me"),
}
"""For each setting of the controller another value than its default: as written, and as read."""


def walked(where: str, section: Section) -> Iterator[str]:
    for one in section.settings:
        if isinstance(one, SubSection):
            yield from walked(f"{where}.{one.name}", one.section)
        else:
            yield f"{where}.{one.name}"


def test_the_values_above_cover_the_table():
    tables = (("policy", POLICY), ("journal", JOURNAL), ("leader", LEADER))
    assert {path for where, section in tables for path in walked(where, section)} == set(OTHER)


@pytest.mark.parametrize("path", OTHER)
def test_each_setting_changes_the_one_field_of_its_name(path):
    written, wanted = OTHER[path]
    data: Any = written
    for key in reversed(path.split(".")):
        data = {key: data}
    good = yaml.safe_load(GOOD)
    before, after = asdict(read(yaml.safe_dump(good))), asdict(read(yaml.safe_dump(good | data)))
    *parents, last = path.split(".")
    parents = ["settings", *parents] if parents[0] == "policy" else parents
    for key in parents:
        before, after = before[key], after[key]
    assert after.pop(last) == wanted != before.pop(last)
    assert after == before


@pytest.mark.parametrize(
    ("section", "kind"),
    [(POLICY, Policy), (BACKOFF, BackOff), (INTERVAL, Interval), (JOURNAL, JournalConfig), (LEADER, Leadership)],
)
def test_every_setting_is_a_field_and_every_field_a_setting(section, kind):
    assert {one.name for one in section.settings} == {field.name for field in fields(kind)}


def test_the_reference_lists_exactly_the_settings_that_are_read():
    listed = {(one["path"], one["type"]) for one in settings()}
    assert len(listed) == len(settings())
    assert {path for path, _ in listed} >= set(OTHER)
    for types, where in ((PROVIDERS, "providers.NAME"), (WORKLOADS, "workload")):
        for name in types.known:
            section = types.section(name)
            keys = {path for path, kind in listed if path.startswith(where + ".") and kind == name}
            assert keys == {f"{where}.type"} | {f"{where}.{one.name}" for one in section.settings}
    for page in pages():
        assert {path for path, kind in listed if path == f"{page.where}.type" and kind == page.type} or not page.type
    assert all(one["meaning"] and (one["required"] or one["default"]) for one in settings())
    assert "groups.NAME.availability" not in {path for path, _ in listed}


# -- the parts -----------------------------------------------------------------------------------------------------


def test_groups_are_what_a_scenario_makes_of_them():
    text = """
groups:
  a:
    resources: {cpu: 32, memory: 128Gi, gpu: 4}
    labels: {zone: us-1a}
    taints: [{key: gpu, value: "yes", effect: NoExecute}]
    hosts: 2
    min: 1
    max: 8
    spare: 2
    rank: 0
    price: 12.5
    preemptible: true
    max_launching: 4
    scale_down:
      idle_timeout: 60
      low_utilization: {below: 0.30, keep: 1}
      utilization: {percent: 80, delay: 600, spare_nodes: 3, resource: gpu}
      consolidate: true
    protected: [s-0]
    boot_seconds: 90.5
cluster: {max_nodes: 50, max_hourly_cost: 40.0, max_launching: 100, choose: best-fit, effort: 7}
"""
    config, snapshot = read(text + GOOD.partition("\n")[2]), read_scenario(text)
    assert config.empty_snapshot() == snapshot
    assert config.settings.cluster == snapshot.cluster


def test_settings_of_a_group_are_passed_on_untouched():
    settings = "{image: null, tags: [a, {b: 1.5}], on: true, 5: x, when: 2024-01-01}"
    config = read(GOOD.replace("max: 5", f"max: 5, settings: {settings}"))
    assert config.settings.groups[0].settings == {
        "image": None,
        "tags": ["a", {"b": 1.5}],
        "on": True,
        "5": "x",
        "when": "2024-01-01",
    }


def test_a_group_names_its_provider_where_there_are_several():
    text = GOOD.replace("{here: {type: local}}", "{a: {type: local}, b: {type: simulated}}")
    config = read(text.replace("max: 5", "max: 5, provider: b"))
    assert config.settings.groups[0].provider == "b"
    assert [(one.name, one.type) for one in config.providers.values()] == [("a", "local"), ("b", "simulated")]


@pytest.mark.parametrize(
    ("written", "location"),
    [
        ("j.db", "/etc/windlass/j.db"),
        ("../j.db", "/etc/windlass/../j.db"),
        ("/var/j.db", "/var/j.db"),
        ("sqlite:///j.db", "/etc/windlass/j.db"),
        ("sqlite:////var/j.db", "/var/j.db"),
        ("':memory:'", ":memory:"),
        ("postgresql://u@h/db", "postgresql://u@h/db"),
        ("postgres://u@h/db", "postgres://u@h/db"),
        ("~/j.db", str(Path("~/j.db").expanduser())),
    ],
)
def test_a_journal_is_next_to_the_file_or_where_its_address_says(written, location):
    assert read(GOOD + f"journal: {written}").journal.location == location
    assert read(GOOD + f"journal: {{location: {written}}}").journal.location == location


def test_a_relative_path_of_the_file_gives_absolute_places():
    assert read(GOOD, "windlass.yaml").journal.location == str(Path.cwd() / ".windlass" / "journal.db")


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(90, 90), (0.2, 0.2), ("90", 90), ("45s", 45), ("10m", 600), ("6h", 21600), ("30d", 2592000), ("1.5h", 5400)],
)
def test_spans_of_time_are_read_as_people_write_them(written, seconds):
    assert parse_duration(written) == seconds
    assert parse_duration(format_duration(seconds)) == seconds


def test_json_is_read_as_well():
    import json

    data = yaml.safe_load(GOOD)
    assert read(json.dumps(data)) == read(GOOD)


@pytest.mark.parametrize("name", ["windlass.yaml"])
def test_the_example_is_read(name):
    config = read_config((EXAMPLES / name).read_bytes(), path=EXAMPLES / name)
    assert Path(config.workload.settings["demands"]).is_file()
