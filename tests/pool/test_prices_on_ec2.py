"""What a pool on EC2 says before it buys: machine types and prices. Nothing is bought."""

from __future__ import annotations

import pytest

import windlass as wl
from windlass.pool.errors import BadPool
from windlass.pool.options import PoolShape, shaped

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")
pytest.importorskip("boto3", reason="needs boto3: pip install '.[aws]'")


@pytest.fixture(autouse=True)
def packaged_catalogue(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def shape(pool: dict, **machines) -> PoolShape:
    return shaped(wl.AWS(**machines), (0, 2), **pool)


def test_a_number_of_gpus_without_a_model_is_bought_as_a_machine_with_that_many():
    found = shape({"accelerator": "gpu:4"})
    assert "g4dn.12xlarge with 4 T4" in found.notice
    assert dict(found.settings.groups[0].group.resources)["gpu"] == 4000


def test_a_device_that_no_machine_of_aws_has_is_refused():
    with pytest.raises(BadPool, match="no machine type of the catalogue has 4 tpu"):
        shape({"accelerator": "tpu:4"})


def test_the_machine_types_that_are_announced_are_those_that_are_bought():
    found = shape({"accelerator": "L4"}, market="spot", max_price=1.0)
    (group,) = found.settings.groups
    assert group.settings["instance_type"][0] == "g6.xlarge"
    assert len(group.settings["instance_type"]) > 1
    assert "where there is none, another that fits, up to $0." in found.notice


def test_with_a_budget_all_machines_have_one_type_so_that_it_holds():
    found = shape({"accelerator": "L4", "budget": "$3/h"}, market="spot-first")
    assert found.settings.groups[0].settings["instance_type"] == ["g6.xlarge"]
    assert "another" not in found.notice


def test_a_machine_that_is_chosen_has_the_processor_of_most_images():
    assert shape({}).settings.groups[0].settings["instance_type"][0] == "c7i.large"


def test_a_region_without_prices_is_announced_with_the_two_remedies():
    notice = shape({"accelerator": "L4"}, region="eu-west-1").notice
    assert "no prices of eu-west-1 are known" in notice
    assert "windlass offers --refresh --region eu-west-1" in notice
    assert "prices={'g6.xlarge': ...}" in notice
    own = shape({"accelerator": "L4"}, region="eu-west-1", prices={"g6.xlarge": 0.5}).notice
    assert "$0.50/h (on-demand, your price)" in own
    assert "no prices" not in own


def test_a_type_outside_the_catalogue_has_the_given_price_or_a_message():
    assert "its price is not known" in shape({}, instance_type="x9.big").notice
    found = shape({"budget": "$10/h"}, instance_type="x9.big", prices={"x9.big": 3.0})
    assert found.settings.groups[0].group.price == 3_000_000_000
    assert "a x9.big, $3.00/h (on-demand, your price)" in found.notice


def test_a_named_type_without_the_accelerator_is_refused():
    with pytest.raises(BadPool, match=r"instance_type m7i\.large has no accelerators, and nodes need 1 A100"):
        shape({"accelerator": "A100"}, instance_type="m7i.large")
