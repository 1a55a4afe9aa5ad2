"""This module updates the catalogue with current AWS spot prices, if the account may read them.

On-demand prices stay as they are in the packaged catalogue: they change rarely. The answer is kept in the user's cache
directory and takes the place of the packaged file until it is removed.
"""

from __future__ import annotations

import csv
import datetime as dt
import statistics
from collections import defaultdict
from pathlib import Path

from windlass._extras import install_command
from windlass.offers.catalogue import COLUMNS, cache_directory


class RefreshFailed(Exception):
    """The prices could not be had, with the reason and a remedy."""


def refreshed(cache: Path | None = None, endpoint_url: str | None = None) -> str:
    """Write today's spot prices into the cache; what was done, for people."""
    try:
        import boto3
        import botocore.exceptions
    except ImportError:
        raise RefreshFailed(f"current prices need boto3, which is not installed: {install_command('aws')}") from None
    packaged = Path(__file__).with_name("aws.csv")
    with packaged.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    today = dt.datetime.now(dt.UTC)
    known = 0
    try:
        for region in sorted({row["region"] for row in rows}):
            mine = [row for row in rows if row["region"] == region]
            client = boto3.client("ec2", region_name=region, endpoint_url=endpoint_url)
            prices: dict[str, dict[str, float]] = defaultdict(dict)
            pages = client.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=[row["type"] for row in mine], ProductDescriptions=["Linux/UNIX"], StartTime=today
            )
            for page in pages:
                for one in page["SpotPriceHistory"]:
                    prices[str(one["InstanceType"])][str(one["AvailabilityZone"])] = float(one["SpotPrice"])
            for row in mine:
                if zones := prices.get(row["type"]):
                    row["spot_usd_h"] = f"{statistics.median(zones.values()):g}"
                    row["zones"] = "|".join(sorted(zones))
                    row["as_of"] = f"{today:%Y-%m-%d}"
                    known += 1
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise RefreshFailed(
            f"AWS does not give its spot prices: {error}. Check the credentials (windlass doctor aws); the packaged "
            "prices are used until then"
        ) from error
    target = (cache or cache_directory()) / "aws.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    types = f"{known} machine type" + "s" * (known != 1)
    return f"the spot prices of {types} are of today now; they are kept in {target}"
