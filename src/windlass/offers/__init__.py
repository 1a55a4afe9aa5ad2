"""Offers are the machine types of clouds with their resources and prices; this package reads and selects them.

The catalogue is one CSV file for each provider, with a date in each row. A refreshed copy in the user's cache directory
replaces the packaged one. Prices change: the provider's bill is the truth, and the configuration can override each
price.
"""

from __future__ import annotations

from windlass.offers.catalogue import BadCatalogue, MachineOffer, in_region, price_given, read_catalogue
from windlass.offers.selection import Wanted, is_model, machine_resources, select

__all__ = [
    "BadCatalogue",
    "MachineOffer",
    "Wanted",
    "in_region",
    "is_model",
    "machine_resources",
    "price_given",
    "read_catalogue",
    "select",
]
