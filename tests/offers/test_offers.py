"""The catalogue of offers: what is in it, what fits, what is chosen."""

from __future__ import annotations

import pytest

from windlass.offers import BadCatalogue, Wanted, read_catalogue, select


@pytest.fixture(autouse=True)
def _no_refreshed_catalogue(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_one_a100_below_five_dollars_is_the_smallest_machine_of_gcp_on_spot():
    found = select(read_catalogue(), Wanted("A100", 1, market="spot", max_price=5))
    assert [one.name for one in found] == [
        "a2-highgpu-1g/spot",
        "a2-ultragpu-1g/spot",
        "a2-highgpu-2g/spot",
    ]
    assert all(one.as_of for one in found)


def test_on_aws_one_a100_is_a_machine_with_eight():
    chosen = select(read_catalogue(), Wanted("A100", 1, market="on-demand", providers=("aws",)))[0]
    assert (chosen.type, chosen.count, chosen.accelerator) == ("p4d.24xlarge", 8, "A100")


def test_the_number_of_accelerators_is_at_least():
    found = select(read_catalogue(), Wanted("A100", 4, market="on-demand", providers=("gcp",)))
    assert {one.count for one in found} == {4, 8, 16}


def test_a_model_with_more_memory_fits_its_short_name_and_not_the_other_way():
    assert {one.accelerator for one in select(read_catalogue(), Wanted("A100-80GB"))} == {"A100-80GB"}
    assert {one.accelerator for one in select(read_catalogue(), Wanted("A100"))} == {"A100", "A100-80GB"}


def test_spot_first_prefers_the_most_expensive_spot_offer_to_the_cheapest_on_demand_one():
    found = select(read_catalogue(), Wanted("T4", market="spot-first", providers=("aws",)))
    markets = [one.market for one in found]
    assert markets == sorted(markets, key=lambda market: market != "spot")
    assert {"spot", "on-demand"} == set(markets)
    spot = [one.price for one in found if one.market == "spot"]
    assert spot == sorted(spot)


def test_a_price_of_the_configuration_takes_the_place_of_the_catalogues():
    found = select(read_catalogue(prices={"p4d.24xlarge": 1.0}), Wanted("A100", market="spot"))
    assert (found[0].type, found[0].dollars) == ("p4d.24xlarge", 1.0)


def test_a_refreshed_catalogue_takes_the_place_of_the_packaged_one_and_a_broken_one_says_where(tmp_path):
    home = tmp_path / "windlass" / "offers"
    home.mkdir(parents=True)
    header = (
        "type,region,zones,arch,vcpu,memory_gib,accelerator,accelerator_count,hosts,on_demand_usd_h,spot_usd_h,as_of"
    )
    (home / "aws.csv").write_text(
        f"{header}\nm9.large,eu-north-1,eu-north-1a|eu-north-1b,arm64,2,8,,0,1,0.1,,2026-11-17\n"
    )
    (only,) = read_catalogue(["aws"])
    assert (only.name, only.zones) == ("m9.large/on-demand", ("eu-north-1a", "eu-north-1b"))
    (home / "aws.csv").write_text(f"{header}\nm9.large,eu-north-1,,arm64,two,8,,0,1,0.1,,2026-11-17\n")
    with pytest.raises(BadCatalogue, match="line 2"):
        read_catalogue(["aws"])
    with pytest.raises(BadCatalogue, match="aws, gcp"):
        read_catalogue(["azure"])
