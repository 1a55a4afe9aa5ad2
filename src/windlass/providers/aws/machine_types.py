"""This module chooses the machine types of a launch from the catalogue, if no type is named.

A pool uses the same choice for the price that it announces, so that it buys what it has announced.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from windlass.core.model.snapshot import Amounts
from windlass.offers import MachineOffer, Wanted, machine_resources, select

TYPES: Final = 5
"""How many machine types a launch passes to EC2 at most."""
ARCH: Final = "amd64"
"""The processor of a type that is not named: a given ``image_id`` is almost always for it."""
DEVICES: Final = ("gpu", "tpu", "neuron")


def ranked_by(market: str) -> Literal["spot", "on-demand"]:
    """Return the market by whose prices the types are chosen; ``spot-first`` begins with spot."""
    return "on-demand" if market == "on-demand" else "spot"


def fitting_types(
    catalogue: Iterable[MachineOffer],
    market: str,
    *,
    model: str = "",
    devices: Amounts = (),
    cpus: int = 0,
    memory: int = 0,
    max_price: float | None = None,
) -> list[MachineOffer]:
    """Return the cheapest types that have what a node needs, best first.

    ``model``: the accelerator of the node. ``devices``: thousandths of each device. Without a model, a machine has
    accelerators only if the node needs them.
    """
    wanted = Wanted(
        model,
        dict(devices).get("gpu", 0) / 1000,
        ranked_by(market),
        max_price,
        vcpu=cpus,
        memory=memory,
    )
    found = [one for one in select(catalogue, wanted) if one.arch == ARCH]
    if not model:
        found = [one for one in found if _has(one, devices)]
    return found[:TYPES]


def _has(offer: MachineOffer, devices: Amounts) -> bool:
    has, needed = dict(machine_resources(offer)), dict(devices)
    return all((name in has) == (name in needed) and has.get(name, 0) >= needed.get(name, 0) for name in DEVICES)
