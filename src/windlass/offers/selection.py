"""This module selects the offers that fit the requirements, cheapest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from windlass.core.model.snapshot import Amounts, amounts
from windlass.offers.catalogue import NANO, MachineOffer

MarketChoice = Literal["spot", "on-demand", "spot-first", "any"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requirements for an offer. ``count``: minimum accelerators of each node. ``max_price``: dollars per hour.

    ``market``: ``spot-first`` sorts spot offers before all others, whatever they cost.
    """

    accelerator: str = ""
    count: float = 1
    market: MarketChoice = "any"
    max_price: float | None = None
    providers: tuple[str, ...] = ()
    region: str = ""
    vcpu: int = 0
    memory: int = 0
    hosts: int | None = 1


def select(offers: Iterable[MachineOffer], wanted: Wanted) -> list[MachineOffer]:
    """Return the offers that fit, best first."""
    return sorted((one for one in offers if fits(one, wanted)), key=lambda one: _rank(one, wanted))


def fits(offer: MachineOffer, wanted: Wanted) -> bool:
    if wanted.providers and offer.provider not in wanted.providers:
        return False
    if wanted.accelerator and (not is_model(offer.accelerator, wanted.accelerator) or offer.count < wanted.count):
        return False
    if wanted.market in ("spot", "on-demand") and offer.market != wanted.market:
        return False
    if wanted.max_price is not None and offer.price > wanted.max_price * NANO:
        return False
    if wanted.hosts is not None and offer.hosts != wanted.hosts:
        return False
    return (
        offer.vcpu >= wanted.vcpu
        and offer.memory >= wanted.memory
        and (not wanted.region or offer.region == wanted.region)
    )


def is_model(model: str, wanted: str) -> bool:
    """Whether an accelerator is of the wanted model. ``A100`` also matches ``A100-80GB``, but not the reverse."""
    model, wanted = model.lower(), wanted.lower()
    return model == wanted or model.startswith(f"{wanted}-")


def machine_resources(offer: MachineOffer) -> Amounts:
    """Return the resources of each host of an offer in the planner's units."""
    found = {"cpu": 1000 * offer.vcpu, "memory": offer.memory}
    if offer.accelerator:
        found[_device(offer.accelerator)] = round(1000 * offer.count)
    return amounts(found)


def _device(model: str) -> str:
    if model.startswith("TPU"):
        return "tpu"
    return "neuron" if model.startswith(("Inferentia", "Trainium")) else "gpu"


def _rank(offer: MachineOffer, wanted: Wanted) -> tuple[bool, int, str, str, str]:
    later = wanted.market == "spot-first" and offer.market != "spot"
    return later, offer.price, offer.provider, offer.type, offer.market
