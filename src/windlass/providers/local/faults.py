"""This module injects faults into the local provider, for demos and for trying out a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from windlass.providers.protocol import InsufficientCapacity, ProviderError, QuotaExceeded

LocalFaultKind = Literal["stock-out", "quota", "fail", "hang", "slow-boot"]


@dataclass(frozen=True, slots=True)
class LocalFault:
    """A fault: its kind, the group it affects, how often and until when."""

    kind: LocalFaultKind
    groups: frozenset[str] | None = None
    """None: every group."""
    launches: int | None = None
    """Number of launches that it affects; None: all of them."""
    until: float | None = None
    """End of the fault, in seconds since 1970 by the provider's clock; None: no end."""
    seconds: float = 30.0
    """Delay of a ``slow-boot`` fault; other kinds ignore it."""


class LocalFaults:
    """The active faults, and how often each was applied."""

    def __init__(self, faults: Sequence[LocalFault], now: Callable[[], float]) -> None:
        self._faults = tuple(faults)
        self._met = [0] * len(self._faults)
        self._now = now

    def next_fault(self, group: str) -> LocalFault | None:
        """Return the fault for the next launch of a group, if any, and count it."""
        for index, fault in enumerate(self._faults):
            meant = fault.groups is None or group in fault.groups
            spent = fault.launches is not None and self._met[index] >= fault.launches
            over = fault.until is not None and self._now() >= fault.until
            if meant and not spent and not over:
                self._met[index] += 1
                return fault
        return None


def refusal_of(fault: LocalFault, group: str) -> ProviderError | None:
    """Return the error that a fault raises; None when it is not a refusal."""
    match fault.kind:
        case "stock-out":
            return InsufficientCapacity(f"{group} is out of stock (an injected fault)")
        case "quota":
            return QuotaExceeded(f"the quota for {group} is used up (an injected fault)")
        case "fail":
            return ProviderError(f"the launch of {group} failed (an injected fault)")
        case "hang" | "slow-boot":
            return None
