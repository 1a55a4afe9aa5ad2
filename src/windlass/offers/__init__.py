"""Offers are kinds of machine that clouds sell, with shapes and prices; this package chooses among them.

The catalogue is our own (one CSV file a provider, each row dated). A refreshed copy in the user's cache directory takes
the place of the packaged one. Prices are facts of a day: the provider's bill is the truth, and each price can be
overridden in the configuration.
"""

from __future__ import annotations

from windlass.offers.catalogue import BadCatalogue, MachineOffer, price_given, read_catalogue
from windlass.offers.selection import Wanted, is_model, machine_resources, select

__all__ = [
    "BadCatalogue",
    "MachineOffer",
    "Wanted",
    "is_model",
    "machine_resources",
    "price_given",
    "read_catalogue",
    "select",
]
