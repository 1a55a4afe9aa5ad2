"""A wrong configuration gives every mistake with its path, and never another exception."""

from __future__ import annotations

import pytest

from tests.config.malformed import GOOD, MALFORMED
from windlass.config import ConfigError, read_config


@pytest.mark.parametrize(("text", "parts"), MALFORMED.items(), ids=range(len(MALFORMED)))
def test_a_wrong_file_gives_errors_with_their_places(text, parts):
    with pytest.raises(ConfigError) as raised:
        read_config(text, path="windlass.yaml")
    mistakes = raised.value.mistakes
    assert any(all(part in mistake for part in parts) for mistake in mistakes), mistakes
    assert all(mistake.isprintable() and ": " in mistake for mistake in mistakes)


def test_the_good_start_of_the_wrong_ones_is_good():
    assert read_config(GOOD, path="windlass.yaml").settings.groups[0].provider == "here"


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_parts():
    text = """
        policy: {drain_timeout: x}
        cluster: {max_nods: 5}
        groups:
          a: {resources: {cpu: 4}, min: 3, max: 1, provider: there}
        providers: {here: {type: local, grace: x}}
        workload: {type: queue, file: x}
        leader: {lease: 0}
    """
    with pytest.raises(ConfigError) as raised:
        read_config(text, path="windlass.yaml")
    assert [mistake.partition(":")[0] for mistake in raised.value.mistakes] == [
        "cluster.max_nods",
        "groups.a.max",
        "providers.here.grace",
        "groups.a.provider",
        "policy.drain_timeout",
        "workload.file",
        "leader.lease",
    ]
    assert str(raised.value) == "\n".join(raised.value.mistakes)


def test_a_password_in_a_wrong_address_is_not_repeated():
    with pytest.raises(ConfigError) as raised:
        read_config(GOOD + "journal: mysql://user:secret@host/db", path="windlass.yaml")
    assert "secret" not in str(raised.value)


def test_a_missing_provider_is_reported_once_and_not_for_each_group():
    text = "groups: {a: {resources: {cpu: 1}, max: 1, provider: x}}\nworkload: {type: simulated}"
    with pytest.raises(ConfigError) as raised:
        read_config(text, path="windlass.yaml")
    assert len(raised.value.mistakes) == 1
