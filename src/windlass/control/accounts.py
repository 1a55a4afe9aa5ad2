"""Accounts: every second of every slice is charged to exactly one account, so that they add up to the bill.

Sums are whole numbers (nanodollars per hour times microseconds), so that nothing is lost however often they are taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from windlass.core.lifecycle import IN_FLIGHT, RECALLABLE, State
from windlass.core.reasons import Code, Reason

from .records import Book, SliceRecord

HOUR: Final = 3600 * 10**6
"""Microseconds."""
UNBILLED: Final = frozenset({State.QUEUED, State.REQUESTING, State.TERMINATED, State.LAUNCH_FAILED})
"""Nothing is there yet, or any more."""


@dataclass(frozen=True, slots=True)
class Account:
    """What a group has cost up to an instant, by what its slices were doing."""

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


def opened(accounts: Mapping[str, Account], book: Book, now: float) -> dict[str, Account]:
    """With an account for every group that has slices from ``now`` on, so that their first second is charged too."""
    new = {record.group for record in book.slices.values()} - accounts.keys()
    return {**accounts, **{group: Account(round(now * 10**6)) for group in sorted(new)}}


def charged(accounts: Mapping[str, Account], book: Book, stays: Mapping[str, Reason], now: float) -> dict[str, Account]:
    """The accounts with the time up to ``now`` charged, in which the book was as it is."""
    instant = round(now * 10**6)
    sums: dict[str, dict[str, int]] = {}
    for record in book.slices.values():
        mine = sums.setdefault(record.group, dict.fromkeys(KINDS, 0))
        if record.state in UNBILLED or not record.price:
            continue
        for kind, part in _parts(record, stays.get(record.id)):
            mine[kind] += part
    found = dict(accounts)
    for group in sorted({*sums, *accounts}):
        account = found.get(group) or Account(instant)
        span = max(0, instant - account.upto)
        grown = {kind: getattr(account, kind) + span * part for kind, part in sums.get(group, {}).items()}
        found[group] = replace(account, upto=max(account.upto, instant), **grown)
    return found


def _parts(record: SliceRecord, stay: Reason | None) -> list[tuple[str, int]]:
    """What each account bears of a slice's price, per hour; together its price."""
    if record.state in IN_FLIGHT:
        return [("booting", record.price)]
    if record.state != State.READY and record.state not in RECALLABLE:
        return [("ending", record.price)]
    busy = sum(node.busy for node in record.nodes)
    work = record.price * busy // len(record.nodes) if record.nodes else 0
    rest = "idle" if stay is None or stay.code not in (Code.SPARE, Code.MIN) else "spare"
    if record.state in RECALLABLE:
        rest = "draining"
    return [("work", work), (rest, record.price - work)]
