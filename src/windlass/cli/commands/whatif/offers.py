"""``windlass offers``: the machines that fit what is wanted, cheapest first."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Final

import click

from windlass.cli.connection.config_option import DEFAULT
from windlass.cli.connection.offer_beliefs import OfferBelief, beliefs_of, configured_offers, offers_of
from windlass.cli.ui.output import write
from windlass.config import Config
from windlass.offers import BadCatalogue, MachineOffer, Wanted, read_catalogue, select
from windlass.offers.catalogue import PROVIDERS

NOTHING: Final = OfferBelief("")
"""Of an offer that no journal knows."""


@click.command("offers", epilog="Exit status: 0 there are offers, 1 there is none or the catalogue is wrong.")
@click.option("--accelerator", default="", metavar="MODEL", help="Such as A100; A100-80GB is an A100 too.")
@click.option("--count", default=1.0, show_default=True, help="Accelerators that each node has at least.")
@click.option(
    "--market",
    type=click.Choice(["spot", "on-demand", "spot-first", "any"]),
    default="any",
    show_default=True,
    help="spot-first: spot offers before all others.",
)
@click.option("--max-price", type=float, metavar="DOLLARS", help="The most that one machine may cost in an hour.")
@click.option(
    "--provider",
    "providers",
    multiple=True,
    metavar="NAME",
    help=f"A catalogue ({', '.join(PROVIDERS)}), or a provider of the configuration. May be given again.",
)
@click.option("--group", default="", metavar="NAME", help="The offers of this group of the configuration.")
@click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    default=None,
    envvar="WINDLASS_CONFIG",
    help=f"Whose prices and journal are used; {DEFAULT} if there is one.",
)
@click.option("--region", default="", help="Only machines of this region.")
@click.option("--cpus", default=0, help="CPUs that each node has at least.")
@click.option("--memory", default=0.0, metavar="GIB", help="Memory that each node has at least.")
@click.option("--multi-host", is_flag=True, help="Slices of several hosts too.")
@click.option("--refresh", is_flag=True, help="Ask AWS for today's spot prices and keep them.")
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

    Prices are from the catalogue that comes with Windlass, or from the last refresh; each has its date. Where there is
    a configuration, its prices hold, and what its journal knows of each offer is shown: when one started last and how
    long it took, or why none can be had now. CHOSEN is the first that can be had.

    \b
    Examples:
      windlass offers --accelerator A100 --count 1 --market spot --max-price 5
      windlass offers --accelerator L4 --provider aws --json
      windlass offers --group gpu
    """
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
                click.echo(refreshed(), err=True)
            except RefreshFailed as error:
                raise click.ClickException(str(error)) from None
        config = configured_offers(config_file or DEFAULT, given=config_file is not None or bool(group))
        found = _of_group(config, group) if group and config else select(_sold(config, providers), wanted)
    except BadCatalogue as error:
        raise click.ClickException(str(error)) from None
    beliefs = beliefs_of(config) if config is not None else {}
    chosen = next((one for one in found if beliefs.get((one.type, one.market), NOTHING).can_be_had), None)
    rows = [(one, beliefs.get((one.type, one.market), NOTHING), one is chosen) for one in found]
    if as_json:
        write(json.dumps({"offers": [as_data(*row) for row in rows]}, indent=2) + "\n")
    elif found:
        write(table(rows))
    if not found:
        raise click.ClickException(f"no offer fits; {_remedy(wanted)}")


def _sold(config: Config | None, names: tuple[str, ...]) -> list[MachineOffer]:
    """The machines of some catalogues or providers; without names those of the configuration, else all there are."""
    ours = offers_of(config) if config is not None else {}
    found: list[MachineOffer] = []
    for name in names or tuple(ours) or PROVIDERS:
        if name in ours:
            found += ours[name]
        elif name in PROVIDERS:
            known = {(one.type, one.market): one for offers in ours.values() for one in offers if one.provider == name}
            found += [known.get((one.type, one.market), one) for one in read_catalogue([name])]
        else:
            raise click.BadParameter(f"{name} is none of {', '.join([*PROVIDERS, *ours])}", param_hint="--provider")
    return found


def _of_group(config: Config, group: str) -> list[MachineOffer]:
    """The offers of one group of the configuration, in the order of their price."""
    ours = offers_of(config)
    sold = [one for one in config.settings.groups if one.group.family == group]
    if not sold:
        families = sorted({one.group.family for one in config.settings.groups if one.group.family})
        there = f"groups with offers are {', '.join(families)}" if families else "no group has offers"
        raise click.BadParameter(f"{group} has no offers; {there}", param_hint="--group")
    found = []
    for one in sold:
        key = (one.group.labels["machine_type"], one.group.labels["market"])
        offer = next(each for each in ours[one.provider] if (each.type, each.market) == key)
        found.append(offer if one.group.price is None else replace(offer, price=one.group.price))
    return found


def as_data(offer: MachineOffer, belief: OfferBelief, chosen: bool) -> dict[str, Any]:
    """One offer as JSON has it."""
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
    """The offers as a table for people."""
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
    if wanted.max_price is not None:
        return "raise --max-price, or ask for less"
    if wanted.accelerator:
        return "windlass offers --json lists every accelerator by the name that it has here"
    return "ask for less"
