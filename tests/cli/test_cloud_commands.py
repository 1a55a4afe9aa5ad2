"""``windlass offers``, ``bootstrap print`` and ``doctor aws``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.test_live_cluster import leading
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
    offers = json.loads(windlass(*words).stdout)["offers"]
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
        assert "all that is needed is allowed" in windlass("doctor", "aws", "--endpoint-url", ec2.url, **keys).stdout


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
        done = windlass(*words, **keys, AWS_ENDPOINT_URL_EC2=ec2.url)
        assert done.returncode == 0, done.stderr
        assert "spot prices of 1 machine type" in done.stderr
        first = json.loads(done.stdout)["offers"][0]
        assert (first["type"], first["price"], first["zones"]) == ("p4d.24xlarge", 6.5, ["us-east-1a", "us-east-1b"])
        assert json.loads(windlass(*words[:1], *words[2:], **keys).stdout)["offers"][0]["price"] == 6.5, "it is kept"
        ec2.faults.unauthorized = ("DescribeSpotPriceHistory",)
        refused = windlass(*words, **keys, AWS_ENDPOINT_URL_EC2=ec2.url)
        assert refused.returncode == 1
        assert "windlass doctor aws" in refused.stderr
