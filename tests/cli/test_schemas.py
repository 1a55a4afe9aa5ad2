"""What the reference says of the JSON of each command is what it prints."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.clusters import Cluster, one_waits

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
from reference_commands import SCHEMAS


@pytest.fixture
def cluster(tmp_path):
    found = Cluster(tmp_path)
    found.live(one_waits)
    return found


def named(words: str) -> set[str]:
    """The keys of an entry that its line names: what stands in code, but for what is in brackets."""
    return set(re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", words.partition(": some of")[0])))


def of(found: Any) -> set[str]:
    return set(found[0] if isinstance(found, list) else found)


@pytest.mark.parametrize("name", ["status", "events", "freeze", "resume", "drain", "doctor", "why"])
def test_every_key_is_in_the_reference_and_no_other(cluster, name):
    words = {"why": ["why", "d"], "drain": ["drain", cluster.world.cloud.bought[0]]}.get(name, [name])
    done = cluster.run(*words, "--json")
    output = json.loads(done.stdout.splitlines()[0] if name == "events" else done.stdout)
    keys = SCHEMAS[name][output["schema"]]
    assert list(output) == list(keys)


def test_the_entries_of_a_status_have_the_keys_of_the_schema(cluster):
    keys, output = SCHEMAS["status"]["windlass.status/v1"], cluster.data("status")
    for key in ("leader", "groups", "slices", "hourly_cost", "bill"):
        assert of(output[key]) == named(keys[key]), key
    assert of(output["demands"]) == named(keys["demands"]) | {"parts"}


def test_the_answers_of_why_have_the_keys_of_the_schema(cluster):
    keys = SCHEMAS["why"]["windlass.why/v1"]
    for kind, name in (("demand", "d"), ("group", "gpu"), ("slice", cluster.world.cloud.bought[0])):
        assert of(cluster.data("why", name)[kind]) == named(keys[kind]), kind
