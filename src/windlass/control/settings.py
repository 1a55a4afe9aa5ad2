"""``Settings`` holds the groups of a controller and their providers, limits, time limits and launch rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from windlass.core.model.lifecycle import TABLE, State
from windlass.core.model.snapshot import Cluster, Group


def _limit(state: State) -> float:
    """Return the setting that limits the time in each state, from the table of states."""
    limit = TABLE[state].limit
    assert limit is not None
    return limit


@dataclass(frozen=True, slots=True)
class Interval:
    """Minimum and maximum seconds between two passes of the loop."""

    min: float = 0.2
    max: float = 5.0


@dataclass(frozen=True, slots=True)
class BackOff:
    """How failures of a provider slow a group down."""

    factor: float = 0.7
    """Each failure that counts multiplies the group's health by this."""
    window: float = 900
    """Seconds for which a failure counts in full."""
    heal: float = 3600
    """Seconds after which it no longer counts; in between its weight falls linearly."""
    floor: float = 0.05
    """Health never falls below this, so one launch at a time is always tried."""
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
    """Limit for one observation of a workload or provider; after it, the source is unknown in that pass."""
    call_timeout: float = 120
    """Limit for one outside call; after it, the call is cancelled, and the next list shows its effect."""
    retry_pause: float = 5
    """Delay before a failed outside call is retried."""
    requesting_timeout: float = _limit(State.REQUESTING)
    boot_timeout: float = _limit(State.BOOTING)
    initializing_timeout: float = _limit(State.INITIALIZING)
    cordon_timeout: float = _limit(State.CORDONED)
    drain_timeout: float = _limit(State.DRAINING)
    terminate_timeout: float = _limit(State.TERMINATING)
    vanish_timeout: float = 15
    """Seconds that a slice must be missing from its provider's list before it counts as gone: lists lag."""
    unhealthy_timeout: float = 300
    """Seconds after which a slice that the workload does not see complete and healthy is replaced."""
    allow_eviction: bool = False
    launch_concurrency: int = 20
    """Launch calls under way at once."""
    launch_rate: int = 600
    """Launches of one group in a minute, at full health."""
    backoff: BackOff = BackOff()

    def limit_of(self, state: State) -> float | None:
        """Return the seconds that a slice may stay in a state before it goes to ``TABLE[state].after_limit``. None: the
        state has no configurable limit.
        """
        setting = TABLE[state].limit_setting
        return float(getattr(self, setting)) if setting else None

    def next_attempt(self, since: float, attempts: int) -> float:
        """Return when the next launch attempt of a slice that has been REQUESTING since ``since`` is due: the attempts
        share the time limit.
        """
        return since + (self.limit_of(State.REQUESTING) or 0.0) * attempts / self.tries

    @property
    def tries(self) -> int:
        """Number of launch calls for one slice, with the same token, before the launch counts as failed."""
        return 3


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A group, its provider, and the provider's own settings for it."""

    group: Group
    provider: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    actions_per_pass: int = 0
    """Number of kinds of action that one pass carries out, in the order unmark, launch, drain, mark; 0: all of them."""
    max_leaving: int | None = None
    """Limit of slices that may be leaving at once to save money; None: no limit."""
    upscaling_speed: float | None = None
    """Limit of slices that may start at once, for each that runs; None: no limit."""
    from_workload: bool = False
    """Whether the workload defines the group, and not the configuration file."""
    billed_as_listed: bool = False
    """Whether an instance is billed at the price that its provider lists for it, and not at the group's price."""


@dataclass(frozen=True)
class Settings:
    """All inputs of the loop that are not observed. Replaced as a whole when the configuration changes."""

    groups: tuple[GroupSettings, ...]
    cluster: Cluster = field(default_factory=Cluster)
    policy: Policy = field(default_factory=Policy)
    max_concurrent_launches: int | None = None
    """Limit of slices that may start at once, over all groups."""
    final_cordons: bool = False
    """Whether the workload cannot take a cordon back, and refuses one where work runs."""
    starting: Mapping[str, int] = field(default_factory=dict)
    """Limit of slices that may start at once, for providers whose slices share one machine."""

    @property
    def of_file(self) -> Settings:
        """The settings without the parts that come from the workload: its groups, and how its hosts start and stop."""
        groups = tuple(one for one in self.groups if not one.from_workload)
        return replace(self, groups=groups, starting={}, final_cordons=False)

    @cached_property
    def by_name(self) -> dict[str, GroupSettings]:
        return {one.group.name: one for one in self.groups}

    @cached_property
    def families(self) -> dict[str, tuple[str, ...]]:
        """The groups of each family."""
        found: dict[str, tuple[str, ...]] = {family.name: () for family in self.cluster.families}
        for configured in self.groups:
            if configured.group.family:
                found[configured.group.family] = (*found.get(configured.group.family, ()), configured.group.name)
        return found


@dataclass(frozen=True, slots=True)
class Leadership:
    """The holder name and the duration of the leader lease."""

    holder: str = "controller"
    lease: float = 15
