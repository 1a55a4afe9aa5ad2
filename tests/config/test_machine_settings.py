"""Mistakes in the settings of machines elsewhere: each is refused with file, line and place before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

import windlass as wl
from windlass.cli.ui.mistakes import located
from windlass.config.build import refuse_incompatible
from windlass.config.reader import ConfigError, read_config
from windlass.config.warnings import config_warnings
from windlass.pool.errors import BadPool

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")
pytest.importorskip("boto3", reason="needs boto3: pip install '.[aws]'")


def refusal(provider: dict[str, Any], **group: Any) -> str:
    text = (
        f"groups: {{big: {json.dumps({'resources': {'cpu': 1}, 'max': 1, **group})}}}\n"
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
        (["@gpu1"], "hosts[0]: has no user before the @; write user@gpu1"),
        (["ssh://gpu1"], "hosts[0]: must be the name or IP address of a machine, not a URL"),
        (["[::1]:22"], "hosts[0]: must not have brackets; write {address: '::1', port: 22}"),
        ([{"address": "ada@gpu1"}], "hosts[0].address: must not have a user; write {address: gpu1, user: ada}"),
    ],
)
def test_a_bad_list_of_hosts_is_refused_with_its_place(hosts, words):
    assert refusal({"type": "ssh", "hosts": hosts}).startswith(f"windlass.yaml:2: providers.there.{words}")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"region": "nowhere-9"}, "region: must be a region of AWS"),
        ({"zones": ["eu-west-1a"]}, "zones: 'eu-west-1a' is not a zone of us-east-1"),
        ({"zones": ["us-east-1"]}, "zones: 'us-east-1' is not a zone of us-east-1"),
        ({"max_price": 0}, "max_price: must be more than 0"),
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


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"instancetype": "m7i.large"}, "instancetype: is not known to EC2 machines; did you mean instance_type?"),
        ({"instance_type": 7}, "instance_type: must be a machine type such as m7i.large"),
        ({"market": "any"}, "market: must be one of on-demand, spot, spot-first"),
        ({"max_price": -1}, "max_price: must be a number of dollars per hour, more than 0"),
        ({"image_id": "ubuntu"}, "image_id: must be an id such as ami-"),
        ({"disk": 1}, "disk: must be a whole number of GiB from 8 to 16384"),
    ],
)
def test_a_bad_setting_of_a_group_on_ec2_is_refused_with_its_place(settings, words):
    wrong = refusal({"type": "aws"}, settings=settings)
    assert wrong.startswith(f"windlass.yaml:1: groups.big.settings.{words}")


def test_a_setting_of_a_group_that_has_no_effect_is_refused():
    wrong = refusal({"type": "ssh", "hosts": ["gpu1"]}, settings={"instance_type": "m7i.large"})
    assert wrong.startswith("windlass.yaml:1: groups.big.settings.instance_type: has no effect")


def test_a_directory_that_depends_on_the_working_directory_is_refused():
    wrong = refusal({"type": "ssh", "hosts": ["gpu1"], "directory": "files"})
    assert wrong.startswith("windlass.yaml:2: providers.there.directory: must be a full path")


def test_a_pool_refuses_the_same_mistakes_at_once():
    with pytest.raises(BadPool, match=r"hosts\[0\]\.port"):
        wl.SSH(hosts=[{"address": "gpu1", "port": "x"}])
    with pytest.raises(BadPool, match="image_id: must be an id"):
        wl.AWS(image_id="ubuntu")


@pytest.mark.parametrize(
    "wrong",
    [
        {"region": None},
        {"zones": 5},
        {"zones": [1]},
        {"security_group": 5},
        {"profile": 5},
        {"max_price": "5"},
        {"max_price": -1},
        {"max_price": float("nan")},
        {"endpoint_url": 5},
        {"user": ""},
        {"connect": "tunel"},
        {"ssh_from": 5},
        {"disk": "50"},
        {"disk": 0},
        {"prices": {"p4d.24xlarge": "x"}},
        {"prices": 5},
        {"instance_type": 5},
        {"directory": ""},
    ],
    ids=str,
)
def test_every_wrong_argument_of_ec2_machines_is_refused_by_its_name(wrong):
    with pytest.raises(BadPool, match=f"^AWS: {next(iter(wrong))}") as raised:
        wl.AWS(**wrong)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"user": 5},
        {"key_file": 5},
        {"key_file": "/none"},
        {"connect": 1},
        {"directory": ""},
        {"directory": "files"},
        {"price": "much"},
        {"price": -1},
    ],
    ids=str,
)
def test_every_wrong_argument_of_ssh_machines_is_refused_by_its_name(wrong):
    with pytest.raises(BadPool, match=f"^SSH: {next(iter(wrong))}"):
        wl.SSH(hosts=["gpu1"], **wrong)


@pytest.mark.parametrize(
    "wrong",
    [{"python": 3.1}, {"pip": 5}, {"pip": [5]}, {"pip_index": "packages"}, {"env": 5}, {"env": {"PIN": 123456}}],
)
def test_every_wrong_argument_of_an_image_is_refused_by_its_name_without_its_value(wrong):
    with pytest.raises(BadPool, match=f"^image: {next(iter(wrong))}") as raised:
        wl.Image(**wrong)
    assert "123456" not in str(raised.value)


def test_an_image_is_shown_without_its_secrets():
    shown = repr(wl.Image(pip=["numpy"], pip_index="https://ada:hush-hush@packages/simple", env={"TOKEN": "hush-hush"}))
    assert "numpy" in shown
    assert "hush-hush" not in shown


@pytest.mark.parametrize("python", ["3", "python3", "3.x"])
def test_a_python_that_is_no_minor_version_is_refused(python):
    image = {"type": "ssh", "hosts": ["gpu1"], "image": {"python": python}}
    assert "image.python: must be a minor version such as '3.11' or a full path" in refusal(image)


def warnings(groups: str, provider: str) -> list[str]:
    text = (
        f"groups: {{big: {{scale_down: {{idle_timeout: 5m}}, max: 1, {groups}}}}}\n"
        f"providers: {{there: {{connect: direct, {provider}}}}}\n"
        'workload: {type: dask, scheduler: "tcp://127.0.0.1:8786"}\n'
    )
    return config_warnings(read_config(text, path="windlass.yaml"))


def test_a_region_without_a_catalogue_is_warned_about_until_its_prices_are_given(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    offers, west = "offers: {accelerator: A100}", "type: aws, region: eu-west-1"
    (warning,) = warnings(offers, west)
    assert "no prices of eu-west-1" in warning
    assert "windlass offers --refresh --region eu-west-1, or set prices of the provider" in warning
    prices = "prices: {p4d.24xlarge: 30, p4de.24xlarge: 40}"
    assert not warnings(offers, f"{west}, {prices}")
    assert not warnings(offers.replace("A100", f"A100, {prices}"), west)
    (warning,) = warnings("resources: {cpu: 2}", west)
    assert "no machine types of eu-west-1" in warning
    assert "settings.instance_type" in warning
    assert not warnings("resources: {cpu: 2}, settings: {instance_type: m7i.large}", west)


def test_keys_that_are_not_on_this_computer_are_warned_about(tmp_path):
    (tmp_path / "key").touch()
    provider = f"type: ssh, hosts: [gpu1], key_file: {tmp_path}/key, known_hosts: {tmp_path}/none"
    (warning,) = warnings("resources: {cpu: 2}", provider)
    assert warning.startswith(f"providers.there.known_hosts: there is no file {tmp_path}/none")
