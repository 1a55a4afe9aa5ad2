"""A configuration with a Dask cluster: what does not fit together is reported before anything is started."""

from __future__ import annotations

import pytest

from windlass.config import build, read_config
from windlass.config.build import incompatibilities

GOOD = """
groups: {a: {resources: {cpu: 2}, max: 1}}
providers: {here: {type: local}}
workload: {type: dask, scheduler: "tcp://10.0.0.7:8786"}
"""


def output(text):
    return incompatibilities(read_config(text, path="/etc/windlass/windlass.yaml"))


def test_a_good_one_has_no_mistakes_and_its_settings_are_all_there():
    assert output(GOOD) == []
    settings = read_config(GOOD, path="/etc/windlass.yaml").workload.settings
    assert settings == {
        "scheduler": "tcp://10.0.0.7:8786",
        "tls": {"ca_file": None, "cert": None, "key": None},
        "target_duration": 0,
        "heartbeat_timeout": 120,
    }


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ("{cpu: 2}", "{gpu: 2}", "groups.a.resources: a must have at least 1 cpu"),
        ("{type: local}", "{type: simulated}", "machines only, and providers.here is simulated"),
        ("tcp://", "tls://", "give ca_file and cert"),
        ('8786"}', '8786", tls: {cert: x.pem}}', "workload.tls: is for a scheduler at tls://HOST:PORT"),
    ],
)
def test_what_does_not_fit_together_is_reported(good, bad, words):
    [mistake] = output(GOOD.replace(good, bad))
    assert words in mistake


def test_the_files_of_tls_are_next_to_the_configuration():
    text = GOOD.replace("tcp://", "tls://").replace('8786"}', '8786", tls: {ca_file: ca.pem, cert: own.pem}}')
    assert output(text) == []
    settings = read_config(text, path="/etc/windlass/windlass.yaml").workload.settings
    assert settings["tls"] == {"ca_file": "/etc/windlass/ca.pem", "cert": "/etc/windlass/own.pem", "key": None}


def test_without_dask_the_command_that_installs_it_is_reported(monkeypatch):
    monkeypatch.setattr(build, "find_spec", lambda name: None)
    [mistake] = output(GOOD)
    assert mistake.startswith("workload.type: dask needs distributed, which is not installed: pip install '.[pool]'")
