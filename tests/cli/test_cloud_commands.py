"""``windlass offers``, ``bootstrap print`` and ``doctor aws``."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

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


def test_when_no_offer_fits_the_remedy_is_told():
    done = windlass("offers", "--accelerator", "A100", "--max-price", "0.1")
    assert done.returncode == 1
    assert "--max-price" in done.stderr


def test_the_bootstrap_script_is_printed_without_secrets_and_is_a_script():
    done = windlass("bootstrap", "print", "--pip", "torch", "--apt", "git", "--setup", "echo hello")
    assert done.returncode == 0, done.stderr
    checked = subprocess.run(["bash", "-n"], input=done.stdout, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "installing system packages: git" in done.stdout


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
def test_doctor_aws_tells_what_is_allowed_and_what_is_not():
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    with FakeEC2(EC2Faults(unauthorized=("CreateFleet",))) as ec2:
        done = windlass("doctor", "aws", "--endpoint-url", ec2.url, "--json", **keys)
        assert done.returncode == 1
        (bad,) = [json.dumps(one) for one in json.loads(done.stdout)["checks"] if "not allowed" in json.dumps(one)]
        assert "ec2:CreateFleet" in bad
        assert "--policy" in bad
        ec2.faults.unauthorized = ()
        assert "all that is needed is allowed" in windlass("doctor", "aws", "--endpoint-url", ec2.url, **keys).stdout
