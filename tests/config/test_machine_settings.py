"""Mistakes in the settings of machines elsewhere: each is refused with file, line and place before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import windlass as wl
from windlass.cli.ui.mistakes import located
from windlass.config.build import refuse_incompatible
from windlass.config.reader import ConfigError, read_config
from windlass.pool.errors import BadPool

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")
pytest.importorskip("boto3", reason="needs boto3: pip install '.[aws]'")


def refusal(provider: dict[str, Any]) -> str:
    text = (
        "groups: {big: {resources: {cpu: 1}, max: 1}}\n"
        f"providers: {{there: {json.dumps({**provider, 'connect': 'direct'})}}}\n"
        'workload: {type: dask, scheduler: "tcp://127.0.0.1:8786"}\n'
    )
    with pytest.raises(ConfigError) as raised:
        refuse_incompatible(read_config(text, path="windlass.yaml"))
    (line,) = located(raised.value, "windlass.yaml", text)
    return line


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([], "hosts: there are no hosts"),
        ("gpu1", "hosts: must be a list"),
        ([{"adress": "gpu1"}], "hosts[0]: 'adress' is not known; did you mean address?"),
        (["gpu1", "gpu1"], "hosts[1]: gpu1:22 is in the list twice"),
        (["gpu1:2222"], "hosts[0]: must not have a port; write {address: gpu1, port: 2222}"),
        ([{"address": "gpu1", "port": "x"}], "hosts[0].port: must be a whole number"),
        ([{"address": "gpu1", "resources": {"cpu": "lots"}}], "hosts[0].resources: must be a number"),
    ],
)
def test_a_bad_list_of_hosts_is_refused_with_its_place(hosts, words):
    assert refusal({"type": "ssh", "hosts": hosts}).startswith(f"windlass.yaml:2: providers.there.{words}")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"region": "nowhere-9"}, "region: must be a region of AWS"),
        ({"zones": ["eu-west-1a"]}, "zones: 'eu-west-1a' is not a zone of us-east-1"),
        ({"image_id": "ubuntu"}, "image_id: must be an id such as ami-"),
        ({"security_group": "default"}, "security_group: must be an id such as sg-"),
        ({"subnets": ["net"]}, "subnets: must be an id such as subnet-"),
        ({"endpoint_url": "localhost"}, "endpoint_url: must be a URL"),
        ({"ssh_from": "1.2.3.4"}, "ssh_from: must be a network such as 203.0.113.7/32"),
        ({"prices": {"m5.large/spt": 1.0}}, "prices: 'm5.large/spt' must be a machine type"),
    ],
)
def test_a_bad_setting_of_ec2_is_refused_with_its_place(settings, words):
    assert refusal({"type": "aws", **settings}).startswith(f"windlass.yaml:2: providers.there.{words}")


def test_a_pool_refuses_the_same_mistakes_at_once():
    with pytest.raises(BadPool, match=r"hosts\[0\]\.port"):
        wl.SSH(hosts=[{"address": "gpu1", "port": "x"}])
    with pytest.raises(BadPool, match="image_id: must be an id"):
        wl.AWS(image_id="ubuntu")


@pytest.mark.parametrize("python", ["3", "python3", "3.x"])
def test_a_python_that_is_no_minor_version_is_refused(python):
    image = {"type": "ssh", "hosts": ["gpu1"], "image": {"python": python}}
    assert "image.python: must be a minor version such as '3.11' or a full path" in refusal(image)
