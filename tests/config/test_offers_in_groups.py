"""Groups with ``offers`` become a family of groups, one for each machine of a catalogue that fits."""

from __future__ import annotations

import pytest
import yaml

from windlass.config import ConfigError, read_config
from windlass.config.json_schema import config_schema
from windlass.config.warnings import config_warnings

BASE = """
providers:
  ec2: {type: aws, connect: direct}
  cloud: {type: simulated}
  here: {type: local}
workload: {type: simulated}
"""


@pytest.fixture(autouse=True)
def _packaged_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def config(group: str, base: str = BASE, path: str = "windlass.yaml"):
    return read_config(f"{base}groups:\n  gpu: {group}\n", path=path)


def mistake(group: str, base: str = BASE) -> str:
    with pytest.raises(ConfigError) as raised:
        config(group, base)
    (found,) = raised.value.mistakes
    return found


def test_each_offer_that_fits_is_a_group_of_the_family_with_its_shape_price_and_market():
    found = config(
        "{offers: {accelerator: A100, count: 1, providers: [cloud], market: spot-first, max_price: 5}, "
        "min: 1, max: 16, spare: 2, rank: 7, labels: {team: a}}"
    ).settings
    by_name = found.by_name
    first = by_name["gpu/a2-highgpu-1g/spot"]
    assert (first.provider, first.group.max, first.group.min, first.group.spare) == ("cloud", 16, 0, 0)
    assert dict(first.group.resources)["gpu"] == 1000
    assert first.group.preemptible
    assert first.group.labels == {
        "machine_type": "a2-highgpu-1g",
        "market": "spot",
        "accelerator": "A100",
        "team": "a",
    }
    assert {one.group.family for one in found.groups} == {"gpu"}
    assert all(one.group.price <= 5 * 10**9 for one in found.groups if one.group.price is not None)
    assert {one.group.rank for one in found.groups} == {7}
    assert all(one.group.fallback != one.group.preemptible for one in found.groups), "on-demand where there is no spot"
    (family,) = found.cluster.families
    assert (family.name, family.min, family.max, family.spare, family.section) == ("gpu", 1, 16, 2, "groups")


def test_the_provider_gets_the_machine_type_the_market_and_the_price_limit_of_the_offer():
    found = config(
        "{offers: {accelerator: A100, providers: [ec2], market: spot, max_price: 25}, max: 2, settings: {disk: 80}}"
    ).settings.by_name
    assert found["gpu/p4d.24xlarge/spot"].settings == {
        "disk": 80,
        "instance_type": "p4d.24xlarge",
        "market": "spot",
        "max_price": 25.0,
    }
    assert dict(found["gpu/p4d.24xlarge/spot"].group.resources)["gpu"] == 8000, "one at least: the machine has eight"


@pytest.mark.parametrize(
    "own", ["settings: {instance_type: m7i.large}", "settings: {market: spot}", "labels: {machine_type: big}"]
)
def test_what_an_offer_sets_cannot_be_set_for_all_of_them(own):
    part, _, rest = own.partition(": {")
    with pytest.raises(ConfigError, match=rf"groups\.gpu\.{part}\.{rest.partition(':')[0]}: is set by the offers"):
        config(f"{{offers: {{accelerator: A100, providers: [ec2]}}, max: 2, {own}}}")


def test_prices_of_the_provider_and_of_the_group_take_the_place_of_the_catalogues():
    base = BASE.replace("connect: direct", "connect: direct, prices: {p4d.24xlarge: 12.0, p4de.24xlarge: 3}")
    group = "{offers: {accelerator: A100, providers: [ec2], market: any, prices: {p4d.24xlarge/spot: 4.5}}, max: 2}"
    prices = {one.group.name: one.group.price for one in config(group, base).settings.groups}
    assert prices["gpu/p4d.24xlarge/spot"] == 4_500_000_000
    assert prices["gpu/p4d.24xlarge/on-demand"] == 12_000_000_000
    assert prices["gpu/p4de.24xlarge/spot"] == 3_000_000_000


def test_two_providers_with_the_same_machines_have_different_groups():
    base = BASE.replace("  here:", "  west: {type: aws, region: us-west-2, connect: direct}\n  here:")
    names = [
        one.group.name
        for one in config(
            "{offers: {accelerator: A100, providers: [ec2, west], market: spot}, max: 2}", base
        ).settings.groups
    ]
    assert "gpu/p4d.24xlarge/spot/ec2" in names
    assert "gpu/p4d.24xlarge/spot/west" in names


def test_machines_without_accelerators_are_chosen_by_cpus_memory_and_processor():
    found = config("{offers: {cpus: 4, memory: 16Gi, providers: [ec2], max_price: 1}, max: 2}").settings.groups
    assert found
    for one in found:
        resources = dict(one.group.resources)
        assert "gpu" not in resources
        assert resources["cpu"] >= 4000
        assert resources["memory"] >= 16 << 30
        assert one.group.name.endswith("/on-demand"), "machines that may be taken away are asked for by name"


def test_an_image_of_a_group_holds_for_all_of_its_offers_and_is_in_no_recorded_settings(tmp_path):
    (tmp_path / "lib.py").write_text("")
    text = (
        "{offers: {accelerator: A100, providers: [ec2]}, max: 2, "
        "image: {pip: [torch], env: {TOKEN: hush-hush}, includes: [lib.py], setup: ['a\\nb']}}"
    )
    found = config(text, path=str(tmp_path / "windlass.yaml"))
    names = {one.group.name for one in found.settings.groups}
    assert found.images.keys() == names
    image = found.images["gpu/p4d.24xlarge/on-demand"]
    assert image["includes"] == [str(tmp_path / "lib.py")]
    assert "hush-hush" not in repr(found.settings)
    assert "hush-hush" not in repr(found)


@pytest.mark.parametrize(
    ("group", "place", "remedy"),
    [
        ("{offers: {accelerator: A1000}, max: 2}", "groups.gpu.offers", "did you mean A100?"),
        (
            "{offers: {accelerator: A100, providers: [ec2], max_price: 1}, max: 2}",
            "groups.gpu.offers",
            "raise max_price",
        ),
        ("{offers: {accelerator: A100, count: 64}, max: 2}", "groups.gpu.offers", "lower count"),
        ("{offers: {accelerator: A100, providers: [ec3]}, max: 2}", "groups.gpu.offers.providers[0]", "mean ec2?"),
        ("{offers: {accelerator: A100, providers: [here]}, max: 2}", "groups.gpu.offers.providers[0]", "no catalogue"),
        ("{offers: {accelerator: A100, providers: []}, max: 2}", "groups.gpu.offers.providers", "at least one"),
        ("{offers: {acelerator: A100}, max: 2}", "groups.gpu.offers.acelerator", "did you mean accelerator?"),
        ("{offers: {accelerator: A100, market: cheap}, max: 2}", "groups.gpu.offers.market", "spot-first"),
        ("{offers: {accelerator: A100, prices: {p4d: lots}}, max: 2}", "groups.gpu.offers.prices.p4d", "such as 12.0"),
        ("{offers: {accelerator: A100}, resources: {gpu: 1}, max: 2}", "groups.gpu.resources", "leave it out"),
        ("{offers: {accelerator: A100}, price: 1, max: 2}", "groups.gpu.price", "offers.prices"),
        ("{offers: {accelerator: A100}, provider: ec2, max: 2}", "groups.gpu.provider", "offers.providers"),
        ("{offers: {accelerator: A100}}", "groups.gpu.max", "is required"),
        ("{offers: {accelerator: A100}, max: 2}\nfamilies: {gpu: {max: 3}}", "groups.gpu", "rename one of them"),
        ("{offers: [A100], max: 2}", "groups.gpu.offers", "is a list"),
        ("{offers: {cpus: 4, memory: lots, providers: [ec2]}, max: 2}", "groups.gpu.offers.memory", "lots"),
        (
            "{offers: {accelerator: A100, providers: [cloud]}, max: 2, image: {pip: [torch]}}",
            "groups.gpu.image",
            "take no image",
        ),
        ("{resources: {cpu: 1}, max: 2, provider: ec2, image: {pip: torch}}", "groups.gpu.image.pip", "must be a list"),
        ("{resources: {cpu: 1}, max: 2, provider: ec2, image: {pp: []}}", "groups.gpu.image.pp", "did you mean pip?"),
        (
            "{resources: {cpu: 1}, max: 2, provider: ec2, image: {python: 3.1}}",
            "groups.gpu.image.python",
            "put it in quotes",
        ),
        (
            "{resources: {cpu: 1}, max: 2, provider: ec2, image: {includes: [not-there]}}",
            "groups.gpu.image.includes[0]",
            "there is no file",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_its_remedy(group, place, remedy):
    output = mistake(group)
    assert output.startswith(f"{place}: "), output
    assert remedy in output


def test_warnings_are_about_the_group_of_the_file_and_about_prices_of_another_region():
    base = BASE.replace("connect: direct", "connect: direct, region: eu-central-1")
    output = config_warnings(config("{offers: {accelerator: A100, providers: [ec2], market: any}, max: 2}", base))
    assert [one.partition(" ")[0] for one in output] == ["groups.gpu", "providers.ec2:"]
    assert "eu-central-1" in output[1]


@pytest.mark.parametrize("damaged", [b"", b"\x00\xff" * 50, b"type,region\n1", b"null"])
def test_a_damaged_catalogue_of_the_last_refresh_is_a_mistake_with_a_remedy(tmp_path, damaged):
    cached = tmp_path / "windlass" / "offers" / "aws.csv"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(damaged)
    found = mistake("{offers: {accelerator: A100, providers: [ec2]}, max: 2}")
    assert found.startswith("groups.gpu.offers.providers: ")
    assert "remove the file, or refresh it: windlass offers --refresh" in found


def test_a_secret_in_a_wrong_image_is_not_repeated():
    output = mistake("{resources: {cpu: 1}, max: 2, provider: ec2, image: {env: {TOKEN: [hush-hush]}}}")
    assert output.startswith("groups.gpu.image.env.TOKEN: must be text")
    assert "hush-hush" not in output


def test_without_a_provider_that_has_a_catalogue_the_remedy_is_one():
    base = "providers: {here: {type: local}}\nworkload: {type: simulated}\n"
    assert "type: aws" in mistake("{offers: {accelerator: A100}, max: 2}", base)


def test_editors_know_offers_and_images():
    jsonschema = pytest.importorskip("jsonschema", reason="needs jsonschema: pip install jsonschema")

    schema = config_schema()
    good = yaml.safe_load(
        BASE + "groups: {gpu: {offers: {accelerator: A100, count: 1, market: spot-first}, max: 2, image: {pip: [a]}}}"
    )
    jsonschema.validate(good, schema)
    for wrong in ({"max": 2}, {"offers": {"acelerator": "A100"}, "max": 2}, {"offers": {}, "resources": {}, "max": 2}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**good, "groups": {"gpu": wrong}}, schema)
