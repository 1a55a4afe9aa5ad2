"""Settings of a controller: groups and their providers, limits, time limits and launch rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from windlass.core.model.lifecycle import TABLE, State
from windlass.core.model.snapshot import Cluster, Group


def _limit(state: State) -> float:
    """The time limit of a state by the table of states."""
    limit = TABLE[state].limit
    assert limit is not None
    return limit


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds between two passes of the loop: at least, however much happens; at most, when nothing does."""

    min: float = 0.2
    max: float = 5.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """How failures of a provider slow a group down."""

    factor: float = 0.7
    """Each failure that counts multiplies the group's health by this."""
    window: float = 900
    """A failure counts in full for so many seconds."""
    heal: float = 3600
    """After so many seconds it counts for nothing; in between for less and less."""
    floor: float = 0.05
    """Health never falls below this: one launch at a time is always tried in the end."""
    pause: float = 15
    """Seconds without a launch after a failure, at full health; divided by the health."""
    quota_block: float = 300
    """Seconds without a launch after a quota error; the first success ends it."""
    boot_pause: float | None = None
    """Seconds without a launch after a machine that did not come up; None: as after any failure."""
    grows_after_errors: bool = True
    """Whether the pause grows with errors that are neither a stock-out nor a quota."""


@dataclass(frozen=True, slots=True)
class Policy:
    """How fast and how patiently the controller works. All times in seconds."""

    evaluation_interval: Interval = Interval()
    observe_timeout: float = 10
    """For a workload or provider to show what it has; later, it is unknown in that pass."""
    call_timeout: float = 120
    """For one outside call; later, it is given up, and what it did is seen in the list."""
    retry_pause: float = 5
    """Before an outside call that failed is made again."""
    requesting_timeout: float = _limit(State.REQUESTING)
    boot_timeout: float = _limit(State.BOOTING)
    initializing_timeout: float = _limit(State.INITIALIZING)
    cordon_timeout: float = _limit(State.CORDONED)
    drain_timeout: float = _limit(State.DRAINING)
    terminate_timeout: float = _limit(State.TERMINATING)
    vanish_timeout: float = 15
    """A slice must be missing from its provider's list for so long before it counts as gone: lists lag."""
    unhealthy_timeout: float = 300
    """A slice that the workload has not seen whole and healthy for so long is replaced."""
    allow_eviction: bool = False
    launch_concurrency: int = 20
    """Launch calls under way at once."""
    launch_rate: int = 600
    """Launches of one group in a minute, at full health."""
    backoff: BackOff = BackOff()

    def limit_of(self, state: State) -> float | None:
        """Seconds that a slice may stay in a state, after which it goes to ``TABLE[state].after_limit``.

        None: the state has no limit that can be set.
        """
        setting = TABLE[state].limit_setting
        return float(getattr(self, setting)) if setting else None

    def next_attempt(self, since: float, attempts: int) -> float:
        """When a launch is asked for again that has been REQUESTING since then: the attempts share the time limit."""
        return since + (self.limit_of(State.REQUESTING) or 0.0) * attempts / self.tries

    @property
    def tries(self) -> int:
        """How often a provider is asked for one slice, with the same token, before the launch counts as failed."""
        return 3


@dataclass(frozen=True, slots=True)
class SoldGroup:
    """A group, who sells it, and what the seller must know besides."""

    group: Group
    provider: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    actions_per_pass: int = 0
    """How many kinds of action one pass carries out, in the order unmark, launch, drain, mark; 0: all of them."""
    max_leaving: int | None = None
    """How many of its slices may be leaving at once to save money; None: any number."""
    upscaling_speed: float | None = None
    """Slices that may come up at once, for each that runs; None: as many as are wanted."""
    from_workload: bool = False
    """Whether the workload defines it, and no configuration file."""


@dataclass(frozen=True)
class Settings:
    """All inputs of the loop that are not observed. Replaced as a whole when the configuration changes."""

    groups: tuple[SoldGroup, ...]
    cluster: Cluster = field(default_factory=Cluster)
    policy: Policy = field(default_factory=Policy)
    max_concurrent_launches: int | None = None
    """Slices that may come up at once, over all groups."""
    final_cordons: bool = False
    """Whether the workload cannot take a cordon back, and refuses one where work runs."""
    starting: Mapping[str, int] = field(default_factory=dict)
    """Slices that may come up at once by provider, where all of them are one machine."""

    @property
    def of_file(self) -> Settings:
        """Without what the workload says: groups of its own, and how its hosts start and stop."""
        groups = tuple(sold for sold in self.groups if not sold.from_workload)
        return replace(self, groups=groups, starting={}, final_cordons=False)

    @cached_property
    def by_name(self) -> dict[str, SoldGroup]:
        return {sold.group.name: sold for sold in self.groups}

    @cached_property
    def families(self) -> dict[str, tuple[str, ...]]:
        """The groups of each family."""
        found: dict[str, tuple[str, ...]] = {family.name: () for family in self.cluster.families}
        for sold in self.groups:
            if sold.group.family:
                found[sold.group.family] = (*found.get(sold.group.family, ()), sold.group.name)
        return found


@dataclass(frozen=True, slots=True)
class Leadership:
    """As whom a controller holds the lease, and for how long at a time."""

    holder: str = "controller"
    lease: float = 15
