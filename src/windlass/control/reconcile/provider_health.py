"""Provider health counts failures per group, and derives the back-off and the launch rate from them.

Each failed launch, failed boot or preemption lowers a group's health, and time restores it. Lower health means a longer
back-off and a lower launch rate; even at the lowest, one launch at a time is tried. A quota error blocks the group for
a fixed time, which the first success ends. All of it is kept in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Final

from windlass.control.settings import BackOff
from windlass.control.state.fleet import Failure, ProviderHealth
from windlass.core.model.reasons import Code, plural
from windlass.core.model.snapshot import Availability

BOOTS_KEPT = 20
"""Enough for a median that follows a change within a day."""
ONE_CRASH = 10.0
"""Seconds within which hosts that die before they join count as one crash."""
EXACT = 0.0005
"""Tolerance in seconds for the next launch: no loop wakes more exactly."""
NOTHING_KNOWN: Final = Availability()
"""The availability of a group without known failures."""


def record_failure(provider_health: ProviderHealth, failure: Failure, why: str, rules: BackOff) -> ProviderHealth:
    """Count a failure. Failures of one instant count once, so that one burst into a stock-out is not penalised N
    times."""
    recent = tuple(one for one in provider_health.failures if failure.at - one.at < rules.heal and one.at != failure.at)
    return replace(provider_health, failures=(*recent, failure), last_error=why)


def over_quota(provider_health: ProviderHealth, why: str, rules: BackOff, now: float) -> ProviderHealth:
    return replace(provider_health, quota_until=now + rules.quota_block, last_error=why)


def succeeded(provider_health: ProviderHealth, now: float, boot: float | None) -> ProviderHealth:
    """Record that a machine started, ``boot`` seconds after its launch."""
    boots = provider_health.boots if boot is None else (*provider_health.boots, boot)[-BOOTS_KEPT:]
    return replace(provider_health, succeeded_at=now, quota_until=None, boots=boots)


def ended_after(provider_health: ProviderHealth, took: float) -> ProviderHealth:
    """Record how many seconds after its terminate call a machine was confirmed gone."""
    return replace(provider_health, ends=(*provider_health.ends, took)[-BOOTS_KEPT:])


def health(provider_health: ProviderHealth, rules: BackOff, now: float) -> float:
    """Return the health of a group, between the floor and 1, from its recent failures."""
    fading = max(rules.heal - rules.window, 1e-9)
    weight = sum(min(1.0, max(0.0, (rules.heal - (now - one.at)) / fading)) for one in provider_health.failures)
    return max(rules.floor, rules.factor**weight)


def availability_of(provider_health: ProviderHealth, rules: BackOff, now: float) -> Availability:
    """Return the availability of a group for the planner."""
    if not provider_health.failures and provider_health.quota_until is None:
        return NOTHING_KNOWN
    if provider_health.quota_until is not None and now < provider_health.quota_until:
        return Availability("quota_exceeded", provider_health.quota_until, provider_health.last_error)
    recent = [one for one in provider_health.failures if now < one.at + rules.heal]
    if not recent or (provider_health.succeeded_at is not None and provider_health.succeeded_at > recent[-1].at):
        return NOTHING_KNOWN
    if all(one.code == Code.LOST for one in recent) and recent[-1].at - recent[0].at < ONE_CRASH:
        return NOTHING_KNOWN  # hosts that started and died together are replaced at once, the first time
    until = recent[-1].at + _pause(provider_health, recent[-1], rules)
    if now >= until and all(one.code == Code.PREEMPTED for one in recent):
        return NOTHING_KNOWN  # machines started and were preempted: that does not show a stock-out
    return Availability(
        "backoff", until, f"{plural(len(recent), 'failure')} lately, the last: {provider_health.last_error}"
    )


def _pause(provider_health: ProviderHealth, last: Failure, rules: BackOff) -> float:
    """Return the seconds without a launch after a failure."""
    if last.code == Code.UNKNOWN_INPUT and not rules.grows_after_errors:
        return rules.pause
    failed_boot = last.code == Code.REPLACE_FAILED and rules.boot_pause is not None
    pause = rules.boot_pause if failed_boot and rules.boot_pause is not None else rules.pause
    return pause / health(provider_health, rules, last.at)


def turning_points(provider_health: ProviderHealth, rules: BackOff, now: float) -> Iterator[float]:
    """Return when the availability of a group changes without a new observation: at the end of a back-off or a block,
    and when failures expire.
    """
    belief = availability_of(provider_health, rules, now)
    if belief.until is not None:
        yield belief.until
    if belief.state == "backoff":
        yield max(one.at for one in provider_health.failures) + rules.heal


def may_ask(provider_health: ProviderHealth, rate: float, rules: BackOff, now: float) -> bool:
    """Whether the launch rate allows one more launch now: a minute's worth at once, then one by one."""
    return max(provider_health.paced_until, now) + _spacing(provider_health, rate, rules, now) <= now + 60 + 1e-9


def asked(provider_health: ProviderHealth, rate: float, rules: BackOff, now: float) -> ProviderHealth:
    """Record one launch."""
    return replace(
        provider_health, paced_until=max(provider_health.paced_until, now) + _spacing(provider_health, rate, rules, now)
    )


def throttle_until(provider_health: ProviderHealth, until: float) -> ProviderHealth:
    """Record that the provider throttles: no launch for a while."""
    return replace(provider_health, paced_until=max(provider_health.paced_until, until + 60))


def next_turn(provider_health: ProviderHealth, rate: float, rules: BackOff, now: float) -> float:
    """Return when the launch rate allows the next launch. The health rises until then, so that is earlier than the
    current health gives; the time is found by bisection.
    """
    early, late = (
        now,
        max(now, max(provider_health.paced_until, now) + _spacing(provider_health, rate, rules, now) - 60),
    )
    if may_ask(provider_health, rate, rules, early):
        return early
    while late - early > EXACT:
        middle = (early + late) / 2
        early, late = (early, middle) if may_ask(provider_health, rate, rules, middle) else (middle, late)
    return late


def _spacing(provider_health: ProviderHealth, rate: float, rules: BackOff, now: float) -> float:
    return min(60.0, 60 / (rate * health(provider_health, rules, now)))


def end_time(provider_health: ProviderHealth) -> float | None:
    """Return how long a machine takes to end, from the last few; None: not known yet."""
    return median(provider_health.ends) if provider_health.ends else None


def boot_time(provider_health: ProviderHealth) -> float | None:
    """Return how long a launch takes until the machine is READY, from the last few; None: not known yet."""
    return median(provider_health.boots) if provider_health.boots else None
