"""``windlass offers``, ``bootstrap print`` and ``doctor aws``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.test_live_cluster import leading
from tests.cli.test_plan_command import run
from windlass.testing.clouds import EC2Faults, FakeEC2, missing_for_ec2


def windlass(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "windlass", *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_CACHE_HOME": "/nonexistent", **environment},
    )


def test_offers_are_printed_cheapest_first_and_the_first_is_chosen():
    done = windlass("offers", "--accelerator", "A100", "--count", "1", "--market", "spot", "--max-price", "5")
    assert done.returncode == 0, done.stderr
    head, first, *others = done.stdout.splitlines()
    assert "$/H EACH" in head
    assert first.startswith("a2-highgpu-1g")
    assert first.endswith("CHOSEN")
    assert not any(line.endswith("CHOSEN") for line in others)
    words = ("offers", "--accelerator", "A100", "--provider", "aws", "--json")
    document = json.loads(windlass(*words).stdout)
    assert document["schema"] == "windlass.offers/v1"
    offers = document["offers"]
    assert [one["chosen"] for one in offers] == [True] + [False] * (len(offers) - 1)
    assert offers[0]["price"] <= offers[-1]["price"]
    assert offers[0]["price_per_accelerator"] == pytest.approx(offers[0]["price"] / 8)


def test_when_no_offer_fits_the_remedy_is_reported():
    done = windlass("offers", "--accelerator", "A100", "--max-price", "0.1")
    assert done.returncode == 1
    assert "--max-price" in done.stderr


def test_the_bootstrap_script_is_printed_without_secrets_and_is_a_script():
    done = windlass("bootstrap", "print", "--pip", "torch", "--apt", "git", "--setup", "echo hello")
    assert done.returncode == 0, done.stderr
    checked = subprocess.run(["bash", "-n"], input=done.stdout, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "installing system packages: git" in done.stdout


def test_the_bootstrap_script_of_a_group_holds_its_image_and_no_secret(tmp_path):
    (tmp_path / "windlass.yaml").write_text(
        "groups: {gpu: {offers: {accelerator: L4}, max: 1, image: {pip: [torch], env: {TOKEN: hush-hush}}}}\n"
        "providers: {ec2: {type: aws, connect: direct}}\n"
        "workload: {type: dask, scheduler: 'tcp://10.0.0.7:8786'}\n"
    )
    done = windlass("bootstrap", "print", "--group", "gpu", "-c", str(tmp_path / "windlass.yaml"))
    assert done.returncode == 0, done.stderr
    assert "installing ${missing[*]}" in done.stdout
    assert " torch)" in done.stdout
    assert "hush-hush" not in done.stdout
    wrong = windlass("bootstrap", "print", "--group", "gpus", "-c", str(tmp_path / "windlass.yaml"))
    assert "did you mean" in wrong.stderr


def test_the_least_policy_ends_only_what_carries_our_tag():
    policy = json.loads(windlass("doctor", "aws", "--policy").stdout)
    by_action = {
        action: one
        for one in policy["Statement"]
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    }
    assert "Condition" in by_action["ec2:TerminateInstances"]
    assert not any("*" in action for action in by_action)


@pytest.mark.aws
@pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-")
def test_doctor_aws_lists_what_is_allowed_and_what_is_not():
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    with FakeEC2(EC2Faults(unauthorized=("CreateFleet",))) as ec2:
        done = windlass("doctor", "aws", "--endpoint-url", ec2.url, "--json", **keys)
        assert done.returncode == 1
        (bad,) = [json.dumps(one) for one in json.loads(done.stdout)["checks"] if "not allowed" in json.dumps(one)]
        assert "ec2:CreateFleet" in bad
        assert "--policy" in bad
        ec2.faults.unauthorized = ()
        assert "all needed calls are allowed" in windlass("doctor", "aws", "--endpoint-url", ec2.url, **keys).stdout


FAMILY = """
groups:
  gpu:
    offers: {accelerator: A100, market: spot-first, max_price: 5, prices: {a2-ultragpu-1g/spot: 1.5}}
    min: 1
    max: 3
    scale_down: {idle_timeout: 5m}
providers: {cloud: {type: simulated, boot_delay: 0.1s}}
workload: {type: simulated}
"""


def test_a_family_is_shown_as_one_with_what_is_believed_of_its_offers(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with leading(tmp_path, FAMILY) as cluster:
        status = cluster.until(lambda seen: [one["state"] for one in seen["slices"]] == ["ready"])
        (family,) = status["families"]
        assert (family["name"], family["min"], family["max"], family["ready"]) == ("gpu", 1, 3, 1)
        assert status["slices"][0]["group"] == "gpu/a2-ultragpu-1g/spot", "the cheapest by the prices of the group"
        page = cluster.output("status")
        assert "gpu/a2-ultragpu-1g/spot" in page
        assert "gpu/a2-highgpu-1g/spot" not in page, "offers without machines are counted, not listed"
        why = cluster.data("why", "gpu")["family"]
        assert [one["counted"] for one in why["groups"]] == [1, 0, 0, 0]
        assert "Family gpu: 4 groups; 1 machine, at most 3, at least 1" in cluster.output("why", "gpu")
        first, *others = cluster.data("offers", "--group", "gpu")["offers"]
        assert (first["type"], first["price"], first["chosen"]) == ("a2-ultragpu-1g", 1.5, True)
        assert first["belief"].startswith("started ")
        assert not any(one["belief"] for one in others)
        assert cluster.data("freeze", "gpu")["heard"]
        assert all(one["frozen_by"] for one in cluster.data("status")["groups"])
        assert cluster.data("resume", "gpu")["heard"]
        assert not any(one["frozen_by"] for one in cluster.data("status")["groups"])
    done = cluster.run("offers", "--group", "gpus")
    assert "groups with offers are gpu" in done.stderr


@pytest.mark.aws
@pytest.mark.skipif(bool(missing_for_ec2()), reason=missing_for_ec2() or "-")
def test_spot_prices_are_refreshed_and_kept(tmp_path):
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "XDG_CACHE_HOME": str(tmp_path)}
    with FakeEC2() as ec2:
        ec2.spot_prices = {("p4d.24xlarge", "us-east-1a"): 6.0, ("p4d.24xlarge", "us-east-1b"): 7.0}
        words = ("offers", "--refresh", "--accelerator", "A100", "--provider", "aws", "--market", "spot", "--json")
        keys |= {"AWS_ENDPOINT_URL_EC2": ec2.url, "AWS_ENDPOINT_URL_PRICING": ec2.url}
        done = windlass(*words, **keys)
        assert done.returncode == 0, done.stderr
        assert "prices of us-east-1: 1 machine type on spot" in done.stderr
        assert "the on-demand prices of us-east-1 are used, because" in done.stderr, "it may not read the Price List"
        first = json.loads(done.stdout)["offers"][0]
        assert (first["type"], first["price"], first["zones"]) == ("p4d.24xlarge", 6.5, ["us-east-1a", "us-east-1b"])
        assert json.loads(windlass(*words[:1], *words[2:], **keys).stdout)["offers"][0]["price"] == 6.5, "it is kept"
        assert _another_region(tmp_path, ec2, keys) == ("p4d.24xlarge", 24.5)
        ec2.faults.unauthorized = ("DescribeSpotPriceHistory",)
        refused = windlass(*words, **keys)
        assert refused.returncode == 1
        assert "windlass doctor aws" in refused.stderr


def _another_region(directory, ec2, keys):
    """Without its prices the remedy is reported; after a refresh they are used, also by a configuration."""
    config = directory / "windlass.yaml"
    config.write_text(
        "groups: {gpu: {offers: {accelerator: A100}, max: 1, scale_down: {idle_timeout: 5m}}}\n"
        "providers: {ec2: {type: aws, connect: direct, region: eu-west-1}}\n"
        "workload: {type: dask, scheduler: 'tcp://10.0.0.7:8786'}\n"
    )
    before = windlass("offers", "--region", "eu-west-1", **keys)
    assert before.returncode == 1
    assert "windlass offers --refresh --region eu-west-1" in before.stderr
    assert "--region eu-west-1" in windlass("config", "check", str(config), **keys).stderr
    ec2.spot_prices = {("p4d.24xlarge", "eu-west-1a"): 8.0}
    ec2.on_demand_prices = {("p4d.24xlarge", "eu-west-1"): 24.5}
    done = windlass("offers", "--refresh", "--group", "gpu", "-c", str(config), "--json", **keys)
    assert done.returncode == 0, done.stderr
    assert "prices of eu-west-1: 1 machine type on spot, 1 machine type on demand" in done.stderr
    assert "--region eu-west-1" not in windlass("config", "check", str(config), **keys).stderr
    assert "us-east-1" in windlass("offers", "--provider", "aws", **keys).stdout, "the other region is still there"
    (only,) = json.loads(done.stdout)["offers"]
    assert only["region"] == "eu-west-1"
    return only["type"], only["price"]


@pytest.mark.parametrize("value", ["nan", "inf", "-1"])
@pytest.mark.parametrize("option", ["--memory", "--count", "--max-price"])
def test_offers_refuses_what_is_no_amount(option, value):
    done = run("offers", option, value)
    assert (done.returncode, done.stdout) == (64, "")
    assert "is not a number of at least 0" in done.stderr


def test_offers_reports_a_configuration_that_is_not_text(tmp_path):
    file = tmp_path / "windlass.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    done = run("offers", "-c", file)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is not UTF-8 text" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_script_of_an_image_with_unreadable_files_is_refused(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in (tmp_path / "loop", "x" * 5000):
        done = run("bootstrap", "print", "--include", name)
        assert (done.returncode, done.stdout) == (1, "")
        assert "Error: image: " in done.stderr


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("doctor", "--region", "eu-west-1"), "windlass doctor aws --region"),
        (("plan", "x.yaml", "--url", "http://127.0.0.1:9"), "windlass plan --live --url"),
        (("plan", "x.yaml", "-c", "windlass.yaml"), "windlass plan --live --config"),
        (("offers", "--group", "gpu", "--cpus", "3"), "leave --group out"),
        (("demo", "--directory", __file__), "is a file"),
        (("submit", "--retries", "9" * 30, "--", "true"), "is not in the range"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(words, remedy):
    done = run(*words)
    assert (done.returncode, done.stdout) == (64, "")
    assert remedy in done.stderr


def test_offers_names_the_region_that_has_the_model():
    done = run("offers", "--region", "us-east-1", "--provider", "gcp", "--accelerator", "L4")
    assert (done.returncode, done.stdout) == (1, "")
    assert "no machine in us-east-1 has L4; machines in us-central1 have it" in done.stderr


def test_a_region_or_a_python_that_cannot_exist_is_refused_before_anything_else():
    done = run("doctor", "aws", "--region", "nowhere")
    assert done.returncode == 1
    assert "'nowhere' is not a region of AWS" in done.stdout
    done = run("bootstrap", "print", "--python", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert "python must be a minor version such as 3.11" in done.stderr
