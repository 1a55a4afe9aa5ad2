"""This module updates the catalogue with current AWS prices of a region, if the account may read them.

Spot prices come from EC2, on-demand prices from the AWS Price List. The result is stored in the user's cache directory
and replaces the packaged file until it is removed. A region that the packaged file does not have is added to it, with
the machine types that have a price there.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from windlass._extras import install_command
from windlass.offers.catalogue import COLUMNS, REGIONS, BadCatalogue, cache_directory, read_catalogue

PRICE_LIST_REGION: Final = "us-east-1"
"""The Price List has endpoints in few regions; each has the prices of all regions."""
ON_DEMAND_LINUX: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
}
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")
_THREADS: Final = 8

Row = dict[str, str]


class RefreshFailed(Exception):
    """The prices could not be read; the text has the reason and the remedy."""


def refreshed(region: str = "", cache: Path | None = None) -> str:
    """Store today's prices of a region in the cache; by default of the packaged region. Return a report for people."""
    try:
        import boto3
        import botocore.config
        import botocore.exceptions
    except ImportError:
        raise RefreshFailed(f"boto3 is not installed, which reads current prices: {install_command('aws')}") from None
    region = region or REGIONS["aws"]
    if not _REGION.fullmatch(region):
        raise RefreshFailed(f"--region must be a region of AWS such as eu-west-1, is {region!r}")
    packaged = _read(Path(__file__).with_name("aws.csv"))
    target = (cache or cache_directory()) / "aws.csv"
    others = [row for row in _last_refresh(target, packaged) if row["region"] != region]
    rows = [{**row, "region": region, "zones": ""} for row in packaged]
    config = botocore.config.Config(
        retries={"total_max_attempts": 2}, connect_timeout=10, max_pool_connections=_THREADS
    )
    kinds = [row["type"] for row in rows]
    try:
        spot = _spot_prices(boto3.client("ec2", region_name=region, config=config), kinds)
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise RefreshFailed(
            f"AWS does not return spot prices of {region}: {error}. Check the credentials (windlass doctor aws); until "
            "then the prices of the last refresh or of the packaged catalogue are used"
        ) from error
    try:
        price_list = boto3.client("pricing", region_name=PRICE_LIST_REGION, config=config)
        on_demand, missing = _on_demand_prices(price_list, kinds, region), ""
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        on_demand, missing = {}, f"; the on-demand prices of {PRICE_LIST_REGION} are used, because {error}"
    rows = [row for row in rows if region == REGIONS["aws"] or row["type"] in spot or row["type"] in on_demand]
    today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
    for row in rows:
        kind = row["type"]
        if zones := spot.get(kind):
            row |= {"spot_usd_h": f"{statistics.median(zones.values()):g}", "zones": "|".join(sorted(zones))}
        elif region != REGIONS["aws"]:
            row["spot_usd_h"] = ""
        if kind in on_demand:
            row["on_demand_usd_h"] = f"{on_demand[kind]:g}"
        if kind in spot or kind in on_demand:
            row["as_of"] = today
    try:
        _write(target, [*others, *rows])
    except OSError as error:
        raise RefreshFailed(f"the prices cannot be stored in {target}: {error.strerror or error}") from error
    return (
        f"read today's prices of {region}: {_types(len(spot))} on spot, {_types(len(on_demand))} on demand{missing}; "
        f"they are stored in {target}"
    )


def _types(count: int) -> str:
    return f"{count} machine type" + "s" * (count != 1)


def _write(target: Path, rows: Sequence[Row]) -> None:
    """Replace the file at once: a full disk or a kill leaves the old prices."""
    target.parent.mkdir(parents=True, exist_ok=True)
    made = target.with_name(f"{target.name}.{os.getpid()}.new")
    try:
        with made.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        made.replace(target)
    finally:
        made.unlink(missing_ok=True)


def _last_refresh(target: Path, packaged: list[Row]) -> list[Row]:
    """Return the prices of the last refresh; those of the package where there are none, or where they are damaged."""
    try:
        read_catalogue(["aws"], cache=target.parent)
        return _read(target) if target.exists() else packaged
    except BadCatalogue:
        return packaged


def _read(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _spot_prices(client: Any, kinds: Iterable[str]) -> Mapping[str, Mapping[str, float]]:
    """Return the current spot price of each machine type by zone."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    pages = client.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=list(kinds), ProductDescriptions=["Linux/UNIX"], StartTime=dt.datetime.now(dt.UTC)
    )
    for page in pages:
        for one in page["SpotPriceHistory"]:
            found[str(one["InstanceType"])][str(one["AvailabilityZone"])] = float(one["SpotPrice"])
    return found


def _on_demand_prices(client: Any, kinds: Iterable[str], region: str) -> Mapping[str, float]:
    """Return the on-demand price for Linux of each machine type that the region has."""

    def price(kind: str) -> tuple[str, float | None]:
        wanted = {**ON_DEMAND_LINUX, "regionCode": region, "instanceType": kind}
        answer = client.get_products(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()],
        )
        return kind, min(filter(None, map(_hourly, answer.get("PriceList") or ())), default=None)

    with ThreadPoolExecutor(_THREADS) as threads:
        return {kind: dollars for kind, dollars in threads.map(price, kinds) if dollars is not None}


def _hourly(product: str) -> float | None:
    """Return the dollars per hour of a product of the Price List; None if its form is not the documented one."""
    try:
        terms = json.loads(product)["terms"]["OnDemand"].values()
        prices = [
            float(one["pricePerUnit"]["USD"])
            for term in terms
            for one in term["priceDimensions"].values()
            if one.get("unit") == "Hrs"
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return max(prices, default=None)
