"""ControllerState holds everything that a controller remembers, as tables with one value per subject.

``TABLES`` names each table: its attribute in the state, and the type of its values. Names of tables are stored in
journals and never change, even where the attribute was renamed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from windlass.control.observe.observed import Observed
from windlass.control.settings import Settings
from windlass.control.state.fast_replace import FastReplace
from windlass.control.state.fleet import Fleet, Gone, ProviderHealth, SliceRecord
from windlass.core.model.plan import Waiting
from windlass.core.model.reasons import Reason
from windlass.core.model.snapshot import Demand
from windlass.providers.protocol import Instance
from windlass.workloads.protocol import Acknowledgement, WorkNode

from .costs import Account

SETTINGS: Final = "cluster"
"""The only subject of the table ``settings``."""


@dataclass(frozen=True, slots=True)
class ShadowAction:
    """An action that shadow mode would take."""

    verb: str
    """launch, uncordon, cancel or drain."""
    subject: str
    """A group, or a slice."""
    count: int
    reason: Reason
    hourly_cost: int = 0
    """Nanodollars per hour."""


@dataclass(frozen=True, slots=True)
class Spending:
    """Nanodollars per hour, now and under the plan."""

    now: int
    planned: int


@dataclass(frozen=True)
class ControllerState(FastReplace):
    """The complete state of a controller."""

    fleet: Fleet = field(default_factory=Fleet)
    observed: Observed = field(default_factory=Observed)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    stay: Mapping[str, Reason] = field(default_factory=dict)
    account: Mapping[str, Account] = field(default_factory=dict)
    settings: Mapping[str, Settings] = field(default_factory=dict)
    would: Mapping[str, ShadowAction] = field(default_factory=dict)
    """In shadow mode: the actions it would take."""
    spending: Mapping[str, Spending] = field(default_factory=dict)
    applied_orders: Mapping[str, int] = field(default_factory=dict)
    """Number of the last operator order that was applied."""
    clock: Mapping[str, float] = field(default_factory=dict)
    """Seconds by which the time of day was ahead of a clock that cannot be set, by the name of that clock. The next
    leader compares them and sees whether the time of day was set while no controller observed.
    """
    at: float = 0
    """Time of the last write."""
    seq: int = 0
    """Number of the last record."""

    def tables(self) -> dict[str, Mapping[str, Any]]:
        """Return every table by its name, which is also the kind of its entries."""
        return dict(zip(KINDS, _TABLES(self), strict=True))

    @classmethod
    def of(cls, tables: Mapping[str, Mapping[str, Any]], at: float, seq: int) -> ControllerState:
        """Return the state with these tables, by their stored names."""
        parts: dict[str, dict[str, Any]] = {"": {}, "fleet": {}, "observed": {}}
        for kind, (attribute, _) in TABLES.items():
            part, _, name = attribute.rpartition(".")
            parts[part][name] = tables[kind]
        return cls(Fleet(**parts["fleet"]), Observed(**parts["observed"]), **parts[""], at=at, seq=seq)


TABLES: Final[Mapping[str, tuple[str, Any]]] = {
    "settings": ("settings", Settings),
    "demand": ("observed.demand", Demand),
    "request": ("observed.request", Demand),
    "node": ("observed.node", WorkNode),
    "word": ("observed.acknowledgement", Acknowledgement),
    "instance": ("observed.instance", Instance),
    "trouble": ("observed.problems", str),
    "unknown": ("observed.unknown", bool),
    "seller": ("observed.listed_by", str),
    "slice": ("fleet.slices", SliceRecord),
    "luck": ("fleet.provider_health", ProviderHealth),
    "gone": ("fleet.gone", Gone),
    "frozen": ("fleet.frozen", str),
    "waiting": ("waiting", Waiting),
    "stay": ("stay", Reason),
    "account": ("account", Account),
    "would": ("would", ShadowAction),
    "spending": ("spending", Spending),
    "heard": ("applied_orders", int),
    "clock": ("clock", float),
}
"""Every table by its stored name: its attribute in the state, and the type of its values."""
KINDS: Final[Mapping[str, Any]] = {kind: type_ for kind, (_, type_) in TABLES.items()}
"""The type of the values of each table."""
_TABLES: Final = attrgetter(*(attribute for attribute, _ in TABLES.values()))
