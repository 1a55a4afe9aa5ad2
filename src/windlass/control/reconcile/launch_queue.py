"""The launch queue picks the QUEUED slices to launch in this pass, within the launch rate of each group and the
concurrency limit. Pure.

Each group has its own queue, and the queues take turns, so a group whose calls hang or whose rate is used up delays no
other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from math import ceil
from typing import Final

from windlass.control.settings import GroupSettings, Settings
from windlass.control.state.fleet import Fleet, ProviderHealth, SliceRecord, moved
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code, Reason, plural

from .provider_health import asked, health, may_ask


def ask(fleet: Fleet, settings: Settings, calling: Collection[str], now: float) -> Fleet:
    """Start queued launches within the limits, and repeat unanswered ones with the same token.

    ``calling``: slices whose launch call is under way.
    """
    requesting, queued = _in_order(fleet, State.REQUESTING), _in_order(fleet, State.QUEUED)
    if not requesting and not queued:
        return fleet
    policy, changed, provider_health = settings.policy, dict[str, SliceRecord](), dict[str, ProviderHealth]()
    busy: dict[str, int] = {}
    pace = _Pace(fleet, settings)
    for record in requesting:
        due = policy.next_attempt(record.since, record.attempts)
        if now >= due and record.attempts < policy.tries and record.id not in calling:
            changed[record.id] = record.replace(attempts=record.attempts + 1)
        if record.id in calling or record.id in changed:
            busy[record.group] = busy.get(record.group, 0) + 1
    for group, records in _by_group(queued).items():
        configured = settings.by_name.get(group)
        if configured is None or fleet.is_frozen(group, configured.group.family):
            continue
        for record in records:
            mine = provider_health.get(group) or fleet.provider_health.get(group, ProviderHealth())
            if busy.get(group, 0) >= policy.launch_concurrency:
                why = f"{plural(policy.launch_concurrency, 'launch call')} of {group} are under way"
            elif not may_ask(mine, policy.launch_rate, policy.backoff, now):
                well = health(mine, policy.backoff, now)
                why = f"{group} may launch {policy.launch_rate} a minute, at a health of {well:.2f}"
            elif full := pace.full(configured):
                why = full
            else:
                pace.add(configured)
                busy[group] = busy.get(group, 0) + 1
                provider_health[group] = asked(mine, policy.launch_rate, policy.backoff, now)
                changed[record.id] = _requested(record, configured, now)
                continue
            if record.reason.code != Code.RATE_LIMITED:
                changed[record.id] = record.replace(reason=Reason(Code.RATE_LIMITED, f"waits for its turn: {why}"))
    return fleet.after(
        changed, provider_health={**fleet.provider_health, **provider_health} if provider_health else None
    )


class _Pace:
    """Counts the slices that may start at once, under the limits beyond calls and rates."""

    def __init__(self, fleet: Fleet, settings: Settings) -> None:
        self._settings = settings
        coming = [record for record in fleet.activity.active.values() if record.state in _COMING]
        self._all = len(coming)
        self._by_group = Counter(record.group for record in coming)
        self._by_provider = Counter(record.provider for record in coming)
        self._running = Counter({name: one.slices for name, one in fleet.activity.steady.items()})
        self._running.update(record.group for record in fleet.activity.active.values() if record.state in _RUNNING)

    def full(self, configured: GroupSettings) -> str:
        """Return why no further slice of a group may start now; empty: one may."""
        name, settings = configured.group.name, self._settings
        if configured.upscaling_speed is not None:
            most = max(1, ceil(configured.upscaling_speed * max(self._running[name], 1)))
            if self._by_group[name] >= most:
                times = f"upscaling_speed {configured.upscaling_speed:g}"
                return f"{plural(most, 'machine')} of {name} may start at once, with {times} at {self._running[name]}"
        if settings.max_concurrent_launches is not None and self._all >= settings.max_concurrent_launches:
            return f"{plural(settings.max_concurrent_launches, 'machine')} may start at once (max_concurrent_launches)"
        limit = settings.starting.get(configured.provider)
        if limit is not None and self._by_provider[configured.provider] >= limit:
            return f"{plural(limit, 'machine')} may start at once at {configured.provider}"
        return ""

    def add(self, configured: GroupSettings) -> None:
        self._all += 1
        self._by_group[configured.group.name] += 1
        self._by_provider[configured.provider] += 1


_COMING: Final = frozenset({State.REQUESTING, State.BOOTING, State.INITIALIZING})
_RUNNING: Final = frozenset({State.READY, State.CORDONED, State.DRAINING})


def _in_order(fleet: Fleet, state: State) -> list[SliceRecord]:
    found = [record for record in fleet.activity.active.values() if record.state is state and not record.quarantine]
    return sorted(found, key=lambda one: (one.since, one.id))


def _by_group(queued: Iterable[SliceRecord]) -> dict[str, list[SliceRecord]]:
    found: dict[str, list[SliceRecord]] = {}
    for record in queued:
        found.setdefault(record.group, []).append(record)
    return dict(sorted(found.items()))


def _requested(record: SliceRecord, configured: GroupSettings, now: float) -> SliceRecord:
    """Return the launching record. Its provider is the group's current one, which may have changed meanwhile."""
    why = Reason(Code.LAUNCHING, "requested from the provider")
    following, _ = moved(record, State.REQUESTING, now, why)
    return following.replace(
        provider=configured.provider,
        price=configured.group.price or 0,
        hosts=configured.group.hosts,
        attempts=record.attempts + 1,
        asked_at=record.asked_at or now,
        bill_from=record.bill_from or now,
    )
