"""``windlass offers`` lists the machines that fit, cheapest first."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from typing import Any, Final

import click

from windlass.cli.connection.config_option import DEFAULT
from windlass.cli.connection.offer_beliefs import OfferBelief, beliefs_of, configured_offers, offers_of
from windlass.cli.ui.output import write
from windlass.config import Config
from windlass.offers import BadCatalogue, MachineOffer, Wanted, in_region, is_model, read_catalogue, select
from windlass.offers.catalogue import PROVIDERS

SCHEMA: Final = "windlass.offers/v1"

NOTHING: Final = OfferBelief("")
"""The availability of an offer that the journal does not know."""


def amount(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse a number that is negative or not finite."""
    if value is not None and not 0 <= value < 1e12:
        raise click.BadParameter(f"{value:g} is not a number of at least 0")
    return value


@click.command("offers", epilog="Exit status: 0 there are offers, 1 there are none or the catalogue is wrong.")
@click.option(
    "--accelerator", default="", metavar="MODEL", help="The model, such as A100; A100-80GB counts as an A100."
)
@click.option(
    "--count",
    type=float,
    callback=amount,
    metavar="N",
    default=1,
    show_default=True,
    help="The lowest number of accelerators of each host.",
)
@click.option(
    "--market",
    type=click.Choice(["spot", "on-demand", "spot-first", "any"]),
    default="any",
    show_default=True,
    help="spot-first lists spot offers before all others.",
)
@click.option(
    "--max-price", type=float, callback=amount, metavar="DOLLARS", help="The highest price of one machine per hour."
)
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="NAME",
    help=f"A catalogue ({', '.join(PROVIDERS)}), or a provider of the configuration. May be repeated.",
)
@click.option("--group", default="", metavar="NAME", help="List the offers of this group of the configuration.")
@click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    default=None,
    envvar="WINDLASS_CONFIG",
    help=f"The configuration with prices and journal; {DEFAULT} if it exists.",
)
@click.option(
    "--region",
    default="",
    metavar="REGION",
    help="Only machines of this region; with --refresh, the region whose prices are read.",
)
@click.option(
    "--cpus", type=click.IntRange(min=0), metavar="N", default=0, help="The lowest number of CPUs of each host."
)
@click.option(
    "--memory", type=float, callback=amount, default=0, metavar="GIB", help="The lowest memory of each host, in GiB."
)
@click.option("--multi-host", is_flag=True, help="Also list machines of several hosts.")
@click.option("--refresh", is_flag=True, help="Read today's prices from AWS and store them.")
@click.option("--json", "as_json", is_flag=True, help="The whole answer as JSON, for programs.")
def command(
    accelerator: str,
    count: float,
    market: Any,
    max_price: float | None,
    providers: tuple[str, ...],
    group: str,
    config_file: str | None,
    region: str,
    cpus: int,
    memory: float,
    multi_host: bool,
    refresh: bool,
    as_json: bool,
) -> None:
    """Print the machines that fit, cheapest first, and which one would be chosen.

    Prices come from the catalogue of Windlass, or from the last refresh; each has its date. With a configuration, its
    prices are used, and the table shows what its journal knows about each offer: when a machine last started and how
    long that took, or why none is available now. CHOSEN marks the first available offer.

    \b
    Examples:
      windlass offers --accelerator A100 --count 1 --market spot --max-price 5
      windlass offers --accelerator L4 --provider aws --json
      windlass offers --group gpu
    """
    if group and (accelerator or max_price is not None or providers or region or cpus or memory or market != "any"):
        raise click.UsageError(
            "--group lists the offers of a group: change them in the configuration, or leave --group out"
        )
    wanted = Wanted(
        accelerator,
        count if accelerator else 0,
        market,
        max_price,
        providers,
        region,
        cpus,
        round(memory * 2**30),
        None if multi_host else 1,
    )
    try:
        if refresh:
            from windlass.offers.refresh import RefreshFailed, refreshed

            try:
                for one in [region] if region else _regions(config_file):
                    click.echo(refreshed(one), err=True)
            except RefreshFailed as error:
                raise click.ClickException(str(error)) from None
        config = configured_offers(config_file or DEFAULT, given=config_file is not None or bool(group))
        found = (
            _of_group(config, group)
            if group and config
            else select(_catalogue_offers(config, providers, region), wanted)
        )
    except BadCatalogue as error:
        raise click.ClickException(str(error)) from None
    beliefs = beliefs_of(config) if config is not None else {}
    chosen = next((one for one in found if beliefs.get((one.type, one.market), NOTHING).can_be_had), None)
    rows = [(one, beliefs.get((one.type, one.market), NOTHING), one is chosen) for one in found]
    if as_json:
        write(json.dumps({"schema": SCHEMA, "offers": [as_data(*row) for row in rows]}, indent=2) + "\n")
    elif found:
        text = table(rows)
        write(_lines(rows) if sys.stdout.isatty() and len(text.partition("\n")[0]) > _width() else text)
    if not found:
        raise click.ClickException(f"no offer fits; {_remedy(wanted)}")


def _regions(config_file: str | None) -> list[str]:
    """Return the regions of the AWS providers of the configuration; without any, the packaged one."""
    config = configured_offers(config_file or DEFAULT, given=config_file is not None)
    providers = config.providers.values() if config is not None else ()
    return sorted({str(one.settings["region"]) for one in providers if one.type == "aws"}) or [""]


def _catalogue_offers(config: Config | None, names: tuple[str, ...], region: str) -> list[MachineOffer]:
    """Return the machines of some catalogues or providers; without names those of the configuration, else all."""
    ours = offers_of(config) if config is not None else {}
    found: list[MachineOffer] = []
    for name in names or tuple(ours) or PROVIDERS:
        if name in ours:
            found += ours[name]
        elif name in PROVIDERS:
            known = {(one.type, one.market): one for offers in ours.values() for one in offers if one.provider == name}
            found += [known.get((one.type, one.market), one) for one in in_region(read_catalogue([name]), region)]
        else:
            raise click.BadParameter(
                f"there is no catalogue or provider {name}; there are {', '.join([*PROVIDERS, *ours])}",
                param_hint="--provider",
            )
    return found


def _of_group(config: Config, group: str) -> list[MachineOffer]:
    """Return the offers of a group of the configuration, in the order of their price."""
    ours = offers_of(config)
    members = [one for one in config.settings.groups if one.group.family == group]
    if not members:
        families = sorted({one.group.family for one in config.settings.groups if one.group.family})
        there = f"groups with offers are {', '.join(families)}" if families else "no group has offers"
        raise click.BadParameter(f"{group} has no offers; {there}", param_hint="--group")
    found = []
    for one in members:
        key = (one.group.labels["machine_type"], one.group.labels["market"])
        offer = next(each for each in ours[one.provider] if (each.type, each.market) == key)
        found.append(offer if one.group.price is None else replace(offer, price=one.group.price))
    return found


def as_data(offer: MachineOffer, belief: OfferBelief, chosen: bool) -> dict[str, Any]:
    """Return an offer as JSON."""
    each = offer.dollars / offer.accelerators if offer.accelerators else None
    return {
        "type": offer.type,
        "provider": offer.provider,
        "region": offer.region,
        "zones": list(offer.zones),
        "market": offer.market,
        "accelerator": offer.accelerator or None,
        "count": offer.count,
        "hosts": offer.hosts,
        "cpus": offer.vcpu,
        "memory_gib": offer.memory / 2**30,
        "price": offer.dollars,
        "price_per_accelerator": each,
        "as_of": offer.as_of,
        "belief": belief.text or None,
        "can_be_had": belief.can_be_had,
        "chosen": chosen,
    }


def table(offers: list[tuple[MachineOffer, OfferBelief, bool]]) -> str:
    """Render the offers as a table."""
    head = ("TYPE", "PROVIDER", "REGION", "MARKET", "ACCELERATOR", "CPUS", "MEMORY", "$/H", "$/H EACH", "AS OF")
    rows = [(*head, "BELIEVED", ""), *(_row(*one) for one in offers)]
    if not any(belief.text for _, belief, _ in offers):
        rows = [(*row[:-2], row[-1]) for row in rows]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    right = {5, 6, 7, 8}
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def _width() -> int:
    return shutil.get_terminal_size().columns


def _lines(offers: list[tuple[MachineOffer, OfferBelief, bool]]) -> str:
    """Render the offers for a terminal that is too narrow for the table."""
    from windlass.cli.ui.pages import headed, printed

    found = headed("type", "provider", "market", "accelerator", "cpus>", "memory>", "$/h>", "believed*", "")
    for one in offers:
        kind, provider, _, market, accelerator, cpus, memory, price, _, _, belief, chosen = _row(*one)
        found.add_row(kind, provider, market, accelerator, cpus, memory, price, "" if belief == "-" else belief, chosen)
    return printed([found])


def _row(offer: MachineOffer, belief: OfferBelief, chosen: bool) -> tuple[str, ...]:
    hosts = f" x {offer.hosts} hosts" if offer.hosts > 1 else ""
    each = f"{offer.dollars / offer.accelerators:.3f}" if offer.accelerators else "-"
    return (
        offer.type,
        offer.provider,
        offer.region,
        offer.market,
        f"{offer.count:g} {offer.accelerator}{hosts}" if offer.accelerator else "-",
        str(offer.vcpu),
        f"{offer.memory / 2**30:g} GiB",
        f"{offer.dollars:.3f}",
        each,
        offer.as_of,
        belief.text or "-",
        "CHOSEN" if chosen else "",
    )


def _remedy(wanted: Wanted) -> str:
    offers = read_catalogue()
    regions = sorted({one.region for one in offers})
    if wanted.region and wanted.region not in regions:
        return (
            f"--region: the catalogue has no prices of {wanted.region}, only of {', '.join(regions)}; read those of an "
            f"AWS region with windlass offers --refresh --region {wanted.region}, or set prices of the provider and "
            "leave --region out"
        )
    if wanted.region and wanted.accelerator:
        of_providers = [one for one in offers if not wanted.providers or one.provider in wanted.providers]
        there = sorted({one.region for one in of_providers if is_model(one.accelerator, wanted.accelerator)})
        if there and wanted.region not in there:
            return f"no machine in {wanted.region} has {wanted.accelerator}; machines in {', '.join(there)} have it"
    if wanted.max_price is not None:
        return "raise --max-price, or ask for less"
    if wanted.accelerator:
        models = sorted({one.accelerator for one in offers if one.accelerator})
        if not any(is_model(one, wanted.accelerator) for one in models):
            return f"--accelerator: the catalogue has {', '.join(models)}"
        return "lower --count, or take --market any"
    return "ask for less"
