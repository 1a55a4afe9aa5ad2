"""`windlass replay`: the same decisions again, or what other settings would have come to; and bad input is told."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.clusters import Cluster, one_waits
from tests.control.test_replaying import forge, retold
from tests.sim.small import GPU, job, script, settings
from windlass.cli import windlass
from windlass.config import ConfigError
from windlass.config.from_journal import changed_settings
from windlass.control import controller as controller_module
from windlass.control.record.journal_tables import PASS
from windlass.journal import Entry, Journal, open_journal
from windlass.sim.fuzz.random_script import arbitrary_script
from windlass.sim.run.simulation import Simulation

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from reference_commands import SCHEMAS

JOBS = [job(f"j{number}", 2 + number % 3, 700.0 * number, 500.0) for number in range(12)]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A journal of some hours with work."""
    found = tmp_path / "journal.db"
    with open_journal(found) as journal:
        Simulation(script(*JOBS, hours=2.0), journal=journal, thorough=False).run()
    return found


@pytest.fixture
def compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, of which only the end is left."""
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 40)
    found = tmp_path / "rest.db"
    with open_journal(found) as journal:
        Simulation(script(*JOBS, hours=2.0), journal=journal, thorough=False).run()
        journal.compact(1e12)
    return found


def replay(*words: object) -> Result:
    return CliRunner().invoke(windlass, ["replay", *map(str, words)])


def data(*words: object) -> Any:
    done = replay(*words, "--json")
    return json.loads(done.stdout)


def refused(*words: object) -> str:
    done = replay(*words)
    assert (done.exit_code, done.stdout) == (1, "")
    return done.stderr.strip()


# -- again ---------------------------------------------------------------------------------------------------------


def test_the_same_decisions_are_reported_in_one_line(file):
    done = replay(file)
    assert done.exit_code == 0
    assert "decisions, all equal" in done.stdout


def test_the_journal_of_a_controller_on_the_wall_clock_is_the_same(tmp_path):
    cluster = Cluster(tmp_path)
    cluster.live(one_waits)
    assert data(tmp_path / "journal.db")["differing"] == 0


def test_a_forged_record_is_shown_next_to_what_follows_from_what_was_known(file):
    def whitewash(one: dict[str, Any]) -> None:
        if one.get("is", {}).get("state") == "draining":
            one["is"]["reason"]["why"] = "a whim"

    seq = forge(file, "slice", whitewash)
    done = replay(file)
    assert done.exit_code == 1
    assert f"record {seq}" in done.stdout
    assert "a whim" in done.stdout.partition("now ")[0]
    assert "a whim" not in done.stdout.partition("now ")[2]
    assert data(file)["first"]["seq"] == seq


def test_it_says_from_when_on_a_journal_that_an_older_version_began_can_be_replayed(tmp_path):
    source = tmp_path / "new.db"
    with open_journal(source) as journal:
        Simulation(script(*JOBS[:3]), journal=journal, thorough=False).run()
        records = list(journal.read())
    with open_journal(tmp_path / "old.db") as old:
        copied(old, [replace(one, epoch=1) for one in records if one.kind != PASS])
    done = replay(tmp_path / "old.db")
    assert done.exit_code == 1
    assert "cannot be repeated: an older version" in done.stdout
    assert "it has no pass that can be repeated" in done.stdout
    asked = data(tmp_path / "old.db", "--set", "gpu.max=9")
    assert asked["what_if"]["model_as_changed"]["tasks"] == sum(one.demand.count for one in JOBS[:3])


def test_a_compacted_journal_says_with_which_state_it_begins(compacted):
    done = replay(compacted)
    assert done.exit_code == 0
    assert f"checkpoint at record {data(compacted)['began_at']}: earlier records are compacted" in done.stdout
    assert "all equal" in done.stdout
    output = data(compacted, "--set", "gpu.max=1")["what_if"]
    assert any("starts without machines" in one for one in output["assumptions"])


def test_only_what_was_recorded_since_an_instant_is_reported(file):
    whole = data(file)
    middle = datetime.fromtimestamp((whole["since"] + whole["until"]) / 2, UTC).isoformat()
    rest = data(file, "--since", middle)
    assert 0 < rest["passes"] < whole["passes"]
    assert rest["until"] == whole["until"]
    assert rest["since"] >= (whole["since"] + whole["until"]) / 2
    assert "all equal" in replay(file, "--since", middle).stdout
    asked, of_all = (data(*words, "--set", "gpu.max=1")["what_if"] for words in ((file, "--since", middle), (file,)))
    assert 0 < asked["recorded"]["dollars"] < of_all["recorded"]["dollars"]
    assert asked["model_as_changed"]["hours"] == pytest.approx(of_all["model_as_changed"]["hours"] / 2)


@pytest.mark.parametrize("more", [(), ("--set", "gpu.max=1")])
def test_an_instant_after_all_that_was_recorded_is_reported(file, more):
    output = refused(file, "--since", "2001-01-01", *more)
    assert "since 2001-01-01 00:00:00" in output
    assert "recorded" in output


def test_since_says_how_an_instant_is_written(file):
    done = replay(file, "--since", "last week")
    assert done.exit_code == 2
    assert "'last week' is not a time; write 10m ago" in done.stderr


def test_an_instant_from_before_what_is_compacted_away_says_with_which_state_it_begins(compacted):
    since = data(compacted)["since"]
    early, late = (datetime.fromtimestamp(at, UTC).isoformat() for at in (since - 3600, since + 60))
    assert "earlier records are compacted" in replay(compacted, "--since", early).stdout
    assert "compacted" not in replay(compacted, "--since", late).stdout


def copied(journal: Journal, records: list[Any]) -> None:
    lease = journal.acquire("somebody", 1.0, 0.0)
    assert lease is not None
    for record in retold(records).read():
        journal.append([Entry(record.kind, record.subject, record.at, record.data)], epoch=lease.epoch)


# -- what if -------------------------------------------------------------------------------------------------------


def test_truth_model_and_change_stand_side_by_side_with_what_is_assumed(file):
    done = replay(file, "--set", "gpu.max=1")
    assert done.exit_code == 0
    head = done.stdout.splitlines()[0]
    assert head.split()[-7:] == ["recorded", "model", "as", "recorded", "model", "as", "changed"]
    assert "would have decided differently in" in done.stdout
    assert "Assumed in the model:" in done.stdout
    assert "boots in a random one of the recorded times" in done.stdout


def test_a_tighter_limit_is_cheaper_and_slower_and_a_policy_file_says_the_same(file, tmp_path):
    policy = tmp_path / "tight.yaml"
    policy.write_text("groups: {'*': {max: 1}}\n", encoding="utf-8")
    by_set, by_file = data(file, "--set", "gpu.max=1")["what_if"], data(file, "--policy", policy)["what_if"]
    assert by_set["model_as_changed"] == by_file["model_as_changed"]
    was, then = by_set["model_as_recorded"], by_set["model_as_changed"]
    assert then["node_hours"] < was["node_hours"]
    assert then["wait_p95"] > was["wait_p95"]
    assert by_set["recorded"]["dollars"] == pytest.approx(was["dollars"], rel=0.05)


def test_a_change_that_changes_nothing_is_reported_as_such(file):
    done = replay(file, "--set", "gpu.max=4")
    assert "The settings are the recorded ones." in done.stdout
    assert "model as changed" not in done.stdout


def test_a_picture_shows_all_three(file, tmp_path):
    picture = tmp_path / "replay.html"
    done = replay(file, "--set", "gpu.max=2", "--picture", picture)
    assert done.exit_code == 0
    drawn = picture.read_text(encoding="utf-8")
    assert drawn.count("<svg") == 9
    assert all(name in drawn for name in ("recorded", "model as recorded", "model as changed"))


def test_the_journal_is_not_changed_by_it(file):
    with open_journal(file) as journal:
        before = list(journal.read())
    replay(file)
    replay(file, "--set", "gpu.max=2")
    with open_journal(file) as journal:
        assert (list(journal.read()), journal.lease()) == (before, None)


@pytest.mark.parametrize("words", [(), ("--set", "gpu.max=2")])
def test_every_key_is_in_the_reference_and_no_other(file, words):
    output = data(file, *words)
    keys = SCHEMAS["replay"][output["schema"]]
    assert list(output) == list(keys)
    for key in ("first", "what_if"):
        assert output[key] is None or all(f"`{name}`" in keys[key] for name in output[key])


# -- bad input -----------------------------------------------------------------------------------------------------


def test_a_journal_that_is_not_there_or_is_none_or_is_empty_is_reported(tmp_path):
    assert "there is no journal at" in refused(tmp_path / "nowhere.db")
    text = tmp_path / "notes.txt"
    text.write_text("buy milk\n" * 100, encoding="utf-8")
    assert "not a journal" in refused(text)
    config = tmp_path / "windlass.yaml"
    config.write_text("groups: {}\n" * 100, encoding="utf-8")
    assert "is a configuration; give its journal" in refused(config)
    with open_journal(tmp_path / "empty.db"):
        pass
    assert "nothing is recorded in it yet" in refused(tmp_path / "empty.db")


def test_a_journal_of_one_instant_cannot_be_asked_what_if(tmp_path):
    with open_journal(tmp_path / "order.db") as journal:
        journal.append([Entry("order", "gpu", 1.0, {"what": "freeze", "by": "ann"})], epoch=None)
    assert "too little is recorded" in refused(tmp_path / "order.db", "--set", "gpu.max=1")


def test_changes_that_make_no_sense_are_reported_with_what_was_meant(file, tmp_path):
    assert "groups.gpu.maxx: unknown key; did you mean max?" in refused(file, "--set", "gpu.maxx=1")
    assert "there is no group cpu; there are gpu" in refused(file, "--set", "cpu.max=1")
    assert "write PATH=VALUE" in refused(file, "--set", "gpu.max")
    assert "cannot be read" in refused(file, "--policy", tmp_path / "none.yaml")


# -- recorded settings as a configuration --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(25))
def test_recorded_settings_are_the_same_when_they_are_written_and_read_as_a_configuration(seed):
    was = arbitrary_script(seed, 1.0).settings
    bare = tuple(
        replace(configured, group=replace(configured.group, scale_down=None))
        if configured.group.scale_down == replace(GPU.scale_down, idle_timeout=None)  # type: ignore[type-var]
        else configured
        for configured in was.groups
    )  # an empty scale_down says the same as none
    assert changed_settings(was) == replace(was, groups=bare)


def test_a_changed_setting_is_checked_as_in_a_file():
    with pytest.raises(ConfigError, match="at least 0"):
        changed_settings(settings(), changes=["gpu.max=-1"])
    assert changed_settings(settings(), changes=["policy.drain_timeout=2h"]).policy.drain_timeout == 7200
