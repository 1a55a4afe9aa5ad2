"""Luck: what is remembered of a group's provider, what the planner believes because of it, and how fast it is asked.

Each failed launch, failed boot or preemption makes a group's health worse, and time heals it. The health makes the
pause after a failure longer and the launch rate lower. Even at its worst one launch at a time is tried. A quota error
is apart: a block for a fixed time, which the first success ends. All of it is in the journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Final

from windlass.control.settings import BackOff
from windlass.control.state.fleet import Failure, Luck
from windlass.core.model.reasons import Code, plural
from windlass.core.model.snapshot import Availability

BOOTS_KEPT = 20
"""Enough for a median that follows a change of season within a day."""
EXACT = 0.0005
"""Seconds by which a turn may be late: no loop wakes more exactly."""
NOTHING_KNOWN: Final = Availability()
"""What is believed of a provider of which nothing bad is known."""


def unlucky(luck: Luck, failure: Failure, why: str, rules: BackOff) -> Luck:
    """One more failure. Those of one instant are one: a burst that meets an empty shelf is one piece of news."""
    recent = tuple(one for one in luck.failures if failure.at - one.at < rules.heal and one.at != failure.at)
    return replace(luck, failures=(*recent, failure), last_error=why)


def over_quota(luck: Luck, why: str, rules: BackOff, now: float) -> Luck:
    return replace(luck, quota_until=now + rules.quota_block, last_error=why)


def succeeded(luck: Luck, now: float, boot: float | None) -> Luck:
    """A machine came up, ``boot`` seconds after it was asked for."""
    boots = luck.boots if boot is None else (*luck.boots, boot)[-BOOTS_KEPT:]
    return replace(luck, succeeded_at=now, quota_until=None, boots=boots)


def health(luck: Luck, rules: BackOff, now: float) -> float:
    """Between the floor and 1: how well launches of a group went lately."""
    fading = max(rules.heal - rules.window, 1e-9)
    weight = sum(min(1.0, max(0.0, (rules.heal - (now - one.at)) / fading)) for one in luck.failures)
    return max(rules.floor, rules.factor**weight)


def availability_of(luck: Luck, rules: BackOff, now: float) -> Availability:
    """What the planner believes of a group's provider."""
    if not luck.failures and luck.quota_until is None:
        return NOTHING_KNOWN
    if luck.quota_until is not None and now < luck.quota_until:
        return Availability("quota_exceeded", luck.quota_until, luck.last_error)
    recent = [one for one in luck.failures if now < one.at + rules.heal]
    if not recent or (luck.succeeded_at is not None and luck.succeeded_at > recent[-1].at):
        return NOTHING_KNOWN
    until = recent[-1].at + rules.pause / health(luck, rules, recent[-1].at)
    if now >= until and all(one.code == Code.PREEMPTED for one in recent):
        return NOTHING_KNOWN  # machines came up and were taken: nothing says that there is no stock
    return Availability("backoff", until, f"{plural(len(recent), 'failure')} lately, the last: {luck.last_error}")


def turning_points(luck: Luck, rules: BackOff, now: float) -> Iterator[float]:
    """When the planner will believe something else of a group although nothing new is seen of it: a pause or a block is
    over, and later the failures are forgotten."""
    belief = availability_of(luck, rules, now)
    if belief.until is not None:
        yield belief.until
    if belief.state == "backoff":
        yield max(one.at for one in luck.failures) + rules.heal


def may_ask(luck: Luck, rate: float, rules: BackOff, now: float) -> bool:
    """Whether the launch rate lets one more launch out now: a minute's worth at once, then one by one."""
    return max(luck.paced_until, now) + _spacing(luck, rate, rules, now) <= now + 60 + 1e-9


def asked(luck: Luck, rate: float, rules: BackOff, now: float) -> Luck:
    """One launch went out."""
    return replace(luck, paced_until=max(luck.paced_until, now) + _spacing(luck, rate, rules, now))


def held_off(luck: Luck, until: float) -> Luck:
    """The provider wants to be left alone for a while."""
    return replace(luck, paced_until=max(luck.paced_until, until + 60))


def next_turn(luck: Luck, rate: float, rules: BackOff, now: float) -> float:
    """When the launch rate lets the next launch out. The health rises until then, so it is sooner than the health of
    now would have it: the instant is closed in on between the two."""
    early, late = now, max(now, max(luck.paced_until, now) + _spacing(luck, rate, rules, now) - 60)
    if may_ask(luck, rate, rules, early):
        return early
    while late - early > EXACT:
        middle = (early + late) / 2
        early, late = (early, middle) if may_ask(luck, rate, rules, middle) else (middle, late)
    return late


def _spacing(luck: Luck, rate: float, rules: BackOff, now: float) -> float:
    return min(60.0, 60 / (rate * health(luck, rules, now)))


def boot_time(luck: Luck) -> float | None:
    """How long a launch takes until it is of use, by the last few; None: not known yet."""
    return median(luck.boots) if luck.boots else None
