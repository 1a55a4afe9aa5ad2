"""This module reads ``offers``: a group that buys any fitting machine of the catalogues of some providers.

The group becomes a family with one group for each offer, named ``GROUP/TYPE/MARKET``. ``min``, ``max``, ``spare`` and
``rank`` of the group hold over the family. The catalogues are those that the providers have on this computer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NamedTuple, cast

from windlass.control.settings import GroupSettings
from windlass.core.model.quantities import format_money, parse_quantity
from windlass.core.model.reasons import nearest_name
from windlass.core.model.snapshot import Amounts
from windlass.offers import BadCatalogue, MachineOffer, Wanted, is_model, machine_resources, select
from windlass.offers.selection import MarketChoice
from windlass.providers.registry import PROVIDER_TYPES
from windlass.scenario.reader import DataReader, Path, shown, still_marked
from windlass.setting_types import Data, Name, Number, OneOf, Prices, Section, Setting, Whole, Words

OFFERS: Final = Section(
    "offers",
    (
        Setting(
            "accelerator",
            Name(),
            None,
            "",
            "The model, such as `A100`. An `A100-80GB` counts as an `A100`.",
            absent="machines without accelerators",
        ),
        Setting("count", Whole(low=1, high=1024), 1, "", "The lowest number of accelerators of each host."),
        Setting(
            "providers",
            Words(),
            None,
            "",
            "The providers to buy from: names in `providers`.",
            absent="every provider that has a catalogue",
        ),
        Setting(
            "market",
            OneOf(("on-demand", "spot", "spot-first", "any")),
            "on-demand",
            "",
            "`on-demand`, `spot`, or both: `any` and `spot-first`. With `spot-first`, an on-demand machine is bought "
            "only if no spot machine is available.",
        ),
        Setting("max_price", Number(), None, "$/h", "The highest price of one machine.", absent="no limit"),
        Setting("cpus", Whole(high=10_000), 0, "", "The lowest number of CPUs of each host."),
        Setting("memory", Data(), None, "", "The lowest memory of each host, such as `64Gi`.", absent="any"),
        Setting("arch", OneOf(("amd64", "arm64")), "amd64", "", "The processor architecture: `amd64` or `arm64`."),
        Setting(
            "prices",
            Prices(),
            None,
            "$/h",
            "Prices that override the catalogue, by machine type (`p4d.24xlarge`) or by type and market "
            "(`p4d.24xlarge/spot`).",
            absent="those of the provider",
        ),
    ),
)
NOT_WITH_OFFERS: Final = {
    "resources": "is set by the offers; leave it out, or leave offers out",
    "hosts": "is set by the offers; leave it out",
    "price": "is set by the offers; leave it out, and override prices in offers.prices",
    "preemptible": "follows from the market of each offer; leave it out and set offers.market",
    "provider": "is chosen among offers.providers; leave it out",
    "family": "is set by the offers; leave it out",
    "fallback": "follows from offers.market; leave it out",
}

SET_BY_OFFERS: Final = {
    "settings": ("instance_type", "market", "max_price"),
    "labels": ("machine_type", "market", "accelerator"),
}
"""Keys of a group's mappings that each offer sets."""


class OfferedGroup(NamedTuple):
    """One offer that a group may buy."""

    name: str
    """The name of the group that is made of the offer."""
    provider: str
    offer: MachineOffer
    resources: Amounts
    settings: Mapping[str, Any]
    """The settings that the provider needs to buy it."""


@dataclass(frozen=True, slots=True)
class Seller:
    """A provider of the configuration: its type and its settings."""

    type: str
    settings: Mapping[str, Any]


def offered_groups(
    reader: DataReader, at: Path, name: str, given: Mapping[str, Any], sellers: Mapping[str, Seller]
) -> list[OfferedGroup]:
    """Return the offers that fit, in order of preference. ``given`` is the section as it was read."""
    before = len(reader.mistakes)
    wanted = _wanted(reader, at, given)
    prices = given["prices"] or {}
    try:
        chosen = _sellers(reader, at, given["providers"], sellers)
    except BadCatalogue as error:
        reader.wrong((*at, "providers"), str(error))
    if len(reader.mistakes) > before:
        return []
    found: list[tuple[str, MachineOffer]] = []
    known: list[MachineOffer] = []
    for seller in chosen:
        try:
            offers = _catalogue(sellers[seller], prices)
        except BadCatalogue as error:
            reader.wrong((*at, "providers"), str(error))
            return []
        known += offers
        found += [(seller, one) for one in select(offers, wanted) if _fits(one, given)]
    _check_prices(reader, (*at, "prices"), prices, known)
    if not found:
        reader.wrong(at, f"no machine of {', '.join(chosen)} fits: {_remedy(known, wanted, given)}")
    found.sort(key=lambda one: (wanted.market == "spot-first" and one[1].market != "spot", one[1].price))
    names = Counter(one.name for _, one in found)
    return [_group(name, seller, one, names[one.name] > 1, sellers[seller], given) for seller, one in found]


def has_offers(group: object) -> bool:
    """Return whether a group of a file has offers instead of resources."""
    return isinstance(group, Mapping) and group.get("offers") is not None


def without_offered(reader: DataReader, at: Path, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a group that apply to all of its offers together.

    ``scale_down`` is not one of them: it is read with the resources of each offer.
    """
    for key, remedy in NOT_WITH_OFFERS.items():
        if value.get(key) is not None:
            reader.wrong((*at, key), remedy)
    for part, names in SET_BY_OFFERS.items():
        given = value.get(part)
        for key in names:
            if isinstance(given, Mapping) and given.get(key) is not None:
                reader.wrong((*at, part, key), "is set by the offers; leave it out")
    kept = {key: one for key, one in value.items() if key not in NOT_WITH_OFFERS and key != "scale_down"}
    return still_marked(value, kept)


def members(found: Sequence[OfferedGroup], base: GroupSettings, market: str) -> list[GroupSettings]:
    """Return the groups of a family: ``base`` with the resources, price and market of each offer."""
    made = []
    for name, provider, offer, resources, settings in found:
        own = {"machine_type": offer.type, "market": offer.market}
        own |= {"accelerator": offer.accelerator} if offer.accelerator else {}
        group = replace(
            base.group,
            name=name,
            resources=resources,
            hosts=offer.hosts,
            price=offer.price,
            preemptible=offer.market == "spot",
            fallback=market == "spot-first" and offer.market != "spot",
            labels={**base.group.labels, **own},
        )
        made.append(replace(base, group=group, provider=provider, settings={**base.settings, **settings}))
    return made


def read_prices(reader: DataReader, at: Path, value: object) -> dict[str, float]:
    """Read dollars per hour by machine type, or by type and market."""
    found = {}
    for kind, price in reader.mapping(at, value, "dollars per hour by machine type, as {p4d.24xlarge: 12.0}").items():
        if isinstance(price, bool) or not isinstance(price, int | float) or not 0 <= price < 10**6:
            reader.wrong((*at, kind), f"must be dollars per hour such as 12.0, is {shown(price)}")
        else:
            found[kind] = float(price)
    return found


def _wanted(reader: DataReader, at: Path, given: Mapping[str, Any]) -> Wanted:
    memory = 0
    if given["memory"] is not None:
        read = partial(parse_quantity, resource="memory")
        memory = reader.parsed((*at, "memory"), given["memory"], read, "an amount such as 64Gi") or 0
    return Wanted(
        accelerator=given["accelerator"] or "",
        count=given["count"] or 1,
        market=cast("MarketChoice", given["market"]),
        max_price=given["max_price"],
        vcpu=given["cpus"] or 0,
        memory=memory,
    )


def _fits(offer: MachineOffer, given: Mapping[str, Any]) -> bool:
    return offer.arch == given["arch"] and bool(offer.accelerator) == bool(given["accelerator"])


def _sellers(reader: DataReader, at: Path, given: Sequence[str] | None, sellers: Mapping[str, Seller]) -> Sequence[str]:
    able = [name for name, one in sellers.items() if one.type and PROVIDER_TYPES[one.type].sells(one.settings)]
    if given is None:
        if not able:
            reader.wrong(at, "needs a provider with a catalogue, and there is none; add one such as {ec2: {type: aws}}")
        return able
    if not given:
        reader.wrong((*at, "providers"), "must name at least one provider")
    for number, name in enumerate(given):
        here = (*at, "providers", number)
        if name not in sellers:
            meant = nearest_name(name[:80], sellers)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sellers) or 'none'}"
            reader.wrong(here, f"must be the name of a provider, is {shown(name)}; {hint}")
        elif name not in able:
            which = f"; {', '.join(able)} has one" if able else ""
            reader.wrong(here, f"{name} ({sellers[name].type}) has no catalogue of machines{which}")
    return list(dict.fromkeys(name for name in given if name in able))


def _check_prices(reader: DataReader, at: Path, prices: Mapping[str, float], known: Sequence[MachineOffer]) -> None:
    """Report a price for a machine that no provider sells: it would have no effect."""
    names = {one.type for one in known} | {one.name for one in known}
    for name in prices:
        if name not in names:
            meant = nearest_name(name[:80], names)
            hint = f"did you mean {meant}?" if meant else "windlass offers lists the machine types"
            reader.wrong((*at, name), f"no provider of this group sells it; {hint}")


def _catalogue(seller: Seller, prices: Mapping[str, float]) -> list[MachineOffer]:
    return [one.at(prices) for one in PROVIDER_TYPES[seller.type].sells(seller.settings)]


def _group(
    name: str, provider: str, offer: MachineOffer, doubled: bool, seller: Seller, given: Mapping[str, Any]
) -> OfferedGroup:
    settings = PROVIDER_TYPES[seller.type].offer_settings(offer, given["max_price"])
    suffix = f"/{provider}" if doubled else ""
    return OfferedGroup(f"{name}/{offer.name}{suffix}", provider, offer, machine_resources(offer), settings)


def _remedy(known: Sequence[MachineOffer], wanted: Wanted, given: Mapping[str, Any]) -> str:
    """Suggest the smallest change after which an offer fits."""
    models = sorted({one.accelerator for one in known if one.accelerator})
    model = wanted.accelerator
    if model and not any(is_model(one, model) for one in models):
        meant = nearest_name(model[:80], models)
        return f"no machine there has {shown(model)}; " + (
            f"did you mean {meant}?" if meant else f"there are {', '.join(models)}"
        )
    fitting = [one for one in select(known, _without_price(wanted)) if _fits(one, given)]
    if fitting:
        least = min(one.price for one in fitting)
        return f"the cheapest that fits costs {format_money(least)}/h; raise max_price"
    most = max((one.count for one in known if model and is_model(one.accelerator, model)), default=0)
    if model and most < wanted.count:
        return f"a machine there has at most {most:g} {model}; lower count"
    return "ask for less, or list all offers with windlass offers --json"


def _without_price(wanted: Wanted) -> Wanted:
    return Wanted(wanted.accelerator, wanted.count, wanted.market, vcpu=wanted.vcpu, memory=wanted.memory)
