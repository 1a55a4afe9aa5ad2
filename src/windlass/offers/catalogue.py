"""The catalogue reads offers from CSV files, one for each market of each machine type."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

Market = Literal["spot", "on-demand"]

PROVIDERS: Final = ("aws", "gcp")
COLUMNS: Final = (
    "type",
    "region",
    "zones",
    "arch",
    "vcpu",
    "memory_gib",
    "accelerator",
    "accelerator_count",
    "hosts",
    "on_demand_usd_h",
    "spot_usd_h",
    "as_of",
)
REGIONS: Final = {"aws": "us-east-1", "gcp": "us-central1"}
"""The region of each packaged catalogue."""
GIB: Final = 1 << 30
NANO: Final = 10**9


class BadCatalogue(ValueError):
    """A catalogue cannot be read; the text has the place and the remedy."""


@dataclass(frozen=True, slots=True)
class MachineOffer:
    """One machine type in one market. ``vcpu``, ``memory`` and ``count`` are per host, the price is for all hosts."""

    provider: str
    type: str
    market: Market
    price: int
    """Nanodollars per hour."""
    region: str = ""
    zones: tuple[str, ...] = ()
    """Empty: any zone of the region."""
    arch: str = "amd64"
    vcpu: int = 0
    memory: int = 0
    """Bytes."""
    accelerator: str = ""
    count: float = 0
    """Accelerators of each host; some machines have a fraction of one."""
    hosts: int = 1
    as_of: str = ""

    @property
    def name(self) -> str:
        """The last part of the name of this offer's group: ``a2-highgpu-1g/spot``."""
        return f"{self.type}/{self.market}"

    def at(self, prices: Mapping[str, float]) -> MachineOffer:
        """Return the offer at its price in ``prices`` (dollars per hour by ``TYPE/MARKET`` or ``TYPE``), if any."""
        given = price_given(prices, self.type, self.market)
        return self if given is None else replace(self, price=given)

    @property
    def dollars(self) -> float:
        return self.price / NANO

    @property
    def accelerators(self) -> float:
        """The accelerators of all hosts together."""
        return self.count * self.hosts


def price_given(prices: Mapping[str, float], kind: str, market: str) -> int | None:
    """Return the price in nanodollars per hour that ``prices`` has for ``TYPE/MARKET`` or ``TYPE``; None: none."""
    dollars = prices.get(f"{kind}/{market}", prices.get(kind))
    return None if dollars is None else round(dollars * NANO)


def in_region(offers: Iterable[MachineOffer], region: str = "") -> list[MachineOffer]:
    """Return the offers of a region; those of the packaged region if there are none, or if no region is given."""
    found = list(offers)
    return [one for one in found if region and one.region == region] or [
        one for one in found if one.region == REGIONS.get(one.provider, one.region)
    ]


def cache_directory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass" / "offers"


def read_catalogue(
    providers: Iterable[str] = PROVIDERS,
    *,
    prices: Mapping[str, float] | None = None,
    cache: Path | None = None,
) -> list[MachineOffer]:
    """Read all offers of the providers.

    ``prices``: dollars per hour by ``TYPE`` or ``TYPE/MARKET``, which override those of the catalogue.
    """
    found: list[MachineOffer] = []
    for provider in providers:
        refreshed = (cache or cache_directory()) / f"{provider}.csv"
        path = refreshed if refreshed.exists() else Path(__file__).with_name(f"{provider}.csv")
        if not path.exists():
            known = ", ".join(PROVIDERS)
            raise BadCatalogue(f"there is no catalogue for {provider}; there is one for {known}")
        try:
            with path.open(newline="", encoding="utf-8") as file:
                found += _offers(provider, path, csv.DictReader(file))
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise BadCatalogue(
                f"{path} cannot be read: {error}; remove the file, or refresh it: windlass offers --refresh"
            ) from error
    return [one.at(prices or {}) for one in found]


def _offers(provider: str, path: Path, rows: csv.DictReader[str]) -> Iterator[MachineOffer]:
    missing = sorted(set(COLUMNS) - set(rows.fieldnames or ()))
    if missing:
        raise BadCatalogue(
            f"{path} has no column {missing[0]}; remove the file, or refresh it: windlass offers --refresh"
        )
    for number, row in enumerate(rows, start=2):
        try:
            for market, column in (("spot", "spot_usd_h"), ("on-demand", "on_demand_usd_h")):
                if row[column]:
                    yield _offer(provider, row, "spot" if market == "spot" else "on-demand", float(row[column]))
        except (ValueError, TypeError) as error:
            raise BadCatalogue(f"{path}, line {number}: {error}; remove the file, or correct the line") from error


def _offer(provider: str, row: Mapping[str, str], market: Market, dollars: float) -> MachineOffer:
    return MachineOffer(
        provider=provider,
        type=row["type"],
        market=market,
        price=round(dollars * NANO),
        region=row["region"],
        zones=tuple(row["zones"].split("|")) if row["zones"] else (),
        arch=row["arch"],
        vcpu=int(row["vcpu"]),
        memory=round(float(row["memory_gib"]) * GIB),
        accelerator=row["accelerator"],
        count=float(row["accelerator_count"]),
        hosts=int(row["hosts"]),
        as_of=row["as_of"],
    )
