"""``windlass offers``: the machines that fit what is wanted, cheapest first."""

from __future__ import annotations

import json
from typing import Any

import click

from windlass.cli.ui.output import write
from windlass.offers import BadCatalogue, MachineOffer, Wanted, read_catalogue, select
from windlass.offers.catalogue import PROVIDERS


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
@click.option("--provider", "providers", multiple=True, type=click.Choice(PROVIDERS), help="May be given again.")
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
    region: str,
    cpus: int,
    memory: float,
    multi_host: bool,
    refresh: bool,
    as_json: bool,
) -> None:
    """Print the machines that fit, cheapest first, and which one would be chosen.

    Prices are from the catalogue that comes with Windlass, or from the last refresh; each has its date.

    \b
    Examples:
      windlass offers --accelerator A100 --count 1 --market spot --max-price 5
      windlass offers --accelerator L4 --provider aws --json
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
        found = select(read_catalogue(providers or PROVIDERS), wanted)
    except BadCatalogue as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        write(json.dumps({"offers": [as_data(one, chosen=one is found[0]) for one in found]}, indent=2) + "\n")
    elif found:
        write(table(found))
    if not found:
        raise click.ClickException(f"no offer fits; {_remedy(wanted)}")


def as_data(offer: MachineOffer, *, chosen: bool) -> dict[str, Any]:
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
        "chosen": chosen,
    }


def table(offers: list[MachineOffer]) -> str:
    """The offers as a table for people."""
    head = ("TYPE", "PROVIDER", "REGION", "MARKET", "ACCELERATOR", "CPUS", "MEMORY", "$/H", "$/H EACH", "AS OF", "")
    rows = [head, *(_row(one, number == 0) for number, one in enumerate(offers))]
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    right = {5, 6, 7, 8}
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def _row(offer: MachineOffer, chosen: bool) -> tuple[str, ...]:
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
        "CHOSEN" if chosen else "",
    )


def _remedy(wanted: Wanted) -> str:
    if wanted.max_price is not None:
        return "raise --max-price, or ask for less"
    if wanted.accelerator:
        return "windlass offers --json lists every accelerator by the name that it has here"
    return "ask for less"
