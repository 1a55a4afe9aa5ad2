"""Every second of every slice is charged to exactly one account, so the accounts add up to the bill.

Sums are whole numbers (nanodollars per hour times microseconds), so no rounding error accumulates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from windlass.control.state.diff import diff
from windlass.control.state.fast_replace import FastReplace
from windlass.control.state.fleet import Fleet, SliceRecord
from windlass.core.model.lifecycle import IN_FLIGHT, RECALLABLE, State
from windlass.core.model.reasons import Code, Reason

HOUR: Final = 3600 * 10**6
"""Microseconds."""
UNBILLED: Final = frozenset({State.QUEUED, State.REQUESTING, State.TERMINATED, State.LAUNCH_FAILED})
"""States in which a slice has no machine yet, or no longer."""


@dataclass(frozen=True)
class Account(FastReplace):
    """The cost of a group up to a time, by the activity of its slices."""

    upto: int
    """Microseconds since 1970."""
    work: int = 0
    booting: int = 0
    idle: int = 0
    spare: int = 0
    """Idle, and held ready by ``min`` or ``spare``."""
    draining: int = 0
    ending: int = 0

    @property
    def total(self) -> int:
        return sum(getattr(self, name) for name in KINDS)

    def dollars(self, kind: str = "total") -> float:
        return int(getattr(self, kind)) / (HOUR * 10**9)


KINDS: Final = ("work", "booting", "idle", "spare", "draining", "ending")


def opened(accounts: Mapping[str, Account], fleet: Fleet, now: float) -> Mapping[str, Account]:
    """Return the accounts with one for every group that has slices, starting ``now``, so that their first second is
    charged too.
    """
    new = {*fleet.activity.steady, *(record.group for record in fleet.activity.active.values())} - accounts.keys()
    return {**accounts, **{group: Account(round(now * 10**6)) for group in sorted(new)}} if new else accounts


def charged(
    accounts: Mapping[str, Account], fleet: Fleet, stays: Mapping[str, Reason], now: float, step: float = 0.0
) -> dict[str, Account]:
    """Return the accounts with the time up to ``now`` charged to the given fleet. ``step``: seconds by which the clock
    was set meanwhile; they are not charged.
    """
    instant = round(now * 10**6)
    rates = _rates(fleet, stays)
    found = dict(accounts)
    for group in sorted({*rates, *accounts}):
        account = found.get(group) or Account(instant)
        span = instant - account.upto - round(step * 10**6)
        grown = {kind: getattr(account, kind) + span * rate for kind, rate in rates.get(group, {}).items() if rate}
        found[group] = account.replace(upto=instant, **grown)
    return found


def backdated(
    accounts: Mapping[str, Account], before: Mapping[str, SliceRecord], after: Mapping[str, SliceRecord], now: float
) -> Mapping[str, Account]:
    """Return the accounts with the cost of slices before they were listed: from their order, and while a list did not
    show them.
    """
    found, instant = dict(accounts), round(now * 10**6)
    for name in diff(before, after)[0]:
        new, old = after[name], before.get(name)
        if new.billed_since is None or (old is not None and old.billed_since is not None):
            continue
        span, kind = instant - round(new.billed_since * 10**6), _kind(new)
        account = found[new.group]
        found[new.group] = account.replace(**{kind: getattr(account, kind) + span * new.price})
    return found


def refunded(
    accounts: Mapping[str, Account],
    before: Mapping[str, SliceRecord],
    after: Mapping[str, SliceRecord],
    now: float,
    step: float,
) -> Mapping[str, Account]:
    """Return the accounts corrected for slices whose end time the provider reports; most were charged for longer. Where
    the provider gives both start and end, the time between them is charged.
    """
    found = dict(accounts)
    for name in diff(before, after)[0]:
        new, old = after[name], before.get(name)
        if old is None or new.ended_at is None or old.ended_at is not None:
            continue
        if new.group not in found:
            found[new.group] = Account(round(now * 10**6))
        account, kind = found[new.group], _kind(old)
        left = overcharged(old, new, now, step) * new.price
        if left < 0:
            found[new.group] = account.replace(**{kind: getattr(account, kind) - left})
            continue
        for one in dict.fromkeys((kind, *KINDS)):
            back = min(left, getattr(account, one))
            account, left = account.replace(**{one: getattr(account, one) - back}), left - back
        found[new.group] = account
    return found


def overcharged(old: SliceRecord, new: SliceRecord, now: float, step: float) -> int:
    """Return the microseconds that a slice was charged too long; negative: too short. ``new``: the record with its end
    time.
    """
    assert new.ended_at is not None
    charged_us = old.billed_us
    if old.billed_since is not None:
        charged_us += round(now * 10**6) - round(old.billed_since * 10**6) - round(step * 10**6)
    if new.started_at is not None:
        return charged_us - max(0, round((new.ended_at - new.started_at) * 10**6))
    ordered = old.billed_since if old.asked_at is not None and not old.billed_us else None
    if ordered is not None and new.ended_at < ordered:
        return 0  # nothing ends before it is ordered: our clock and the provider's differ
    charged_to = now - step if old.billed_since is not None else old.bill_from
    if charged_to is None or not old.seen:  # a slice that no list has shown was never charged
        return 0
    if charged_to <= new.ended_at:
        missed = old.billed_since is None  # a list lost it before its end
        return round((charged_to - min(new.ended_at, now - step)) * 10**6) if missed else 0
    since = new.ended_at if old.billed_since is None else max(old.billed_since, new.ended_at)
    return round((charged_to - since) * 10**6)


def _kind(record: SliceRecord) -> str:
    if record.state in IN_FLIGHT or record.joined_at is None:
        return "booting"
    return "idle" if record.state is State.READY else "draining" if record.state in RECALLABLE else "ending"


def _rates(fleet: Fleet, stays: Mapping[str, Reason]) -> dict[str, dict[str, int]]:
    """Return the hourly rate of each account of each group; per group they add up to the prices of its slices."""
    rates: dict[str, dict[str, int]] = {}
    for group, totals in fleet.activity.steady.items():
        rates[group] = {**_NOTHING, "work": totals.work, "idle": totals.price - totals.work}
    for record in fleet.activity.active.values():
        mine = rates.get(record.group)
        if mine is None:
            mine = rates[record.group] = dict(_NOTHING)
        price = record.price
        if record.billed_since is None:
            continue
        if record.state is State.READY:
            work = record.price_at_work
            mine["work"] += work
            if work < price:
                stay = stays.get(record.id)
                mine["spare" if stay is not None and stay.code in _HELD_READY else "idle"] += price - work
        elif record.state in IN_FLIGHT:
            mine["booting"] += price
        elif record.state in RECALLABLE:
            mine["work"] += record.price_at_work
            mine["draining"] += price - record.price_at_work
        else:
            mine["ending"] += price
    return rates


_NOTHING: Final = dict.fromkeys(KINDS, 0)
_HELD_READY: Final = frozenset({Code.SPARE, Code.MIN})
