"""MemoryJournal keeps the journal contract in memory, for simulations.

It keeps only the records after the newest checkpoint, unless ``keep_all`` is set. It can hash every record as it is
written, so that two runs can be compared by one digest.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from types import TracebackType
from typing import Any, Self

from . import Entry, Fenced, JournalHealth, Lease, LeaseLost, Record

KEPT_KINDS = frozenset({"order"})
"""Kinds of records that are queried by kind alone; they are few, and always kept."""


_PLAIN = json.JSONEncoder(sort_keys=True, allow_nan=False)

_Kept = tuple[int, int, Entry]
"""The number, the epoch and the entry. A record is built when it is read; few are."""
_SEQ = itemgetter(0)


class MemoryJournal:
    """A journal in lists and dictionaries."""

    def __init__(self, *, keep_all: bool = False, hashed: bool = True) -> None:
        """``keep_all``: keep every record, for tests that read the whole history. ``hashed``: compute a digest of all
        records, which costs more than keeping them.
        """
        self._keep_all = keep_all
        self.cluster_id = ""  # not random: a simulated run must be reproducible
        self._records: list[_Kept] = []
        self._orders: list[_Kept] = []
        self._last = 0
        self._epoch = 0
        self._lease: Lease | None = None
        self._state: tuple[int, Mapping[str, Any]] | None = None
        self._hash = hashlib.sha256() if hashed else None

    @property
    def own_clock(self) -> bool:
        return False

    @property
    def digest(self) -> str:
        """The hash of all records ever written; empty without ``hashed``."""
        return "" if self._hash is None else self._hash.hexdigest()

    # -- records ------------------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry], *, epoch: int | None) -> int:
        written = self._epoch if epoch is None else epoch
        self._fence(written)
        entries = tuple(entries)  # build all rows first: if an entry is invalid, none is kept
        for entry in entries:
            self._last += 1
            kept = self._last, written, entry
            self._records.append(kept)
            if entry.kind in KEPT_KINDS:
                self._orders.append(kept)
        if self._hash is not None:
            encoded = [_PLAIN.encode([entry.kind, entry.subject, entry.at, dict(entry.data)]) for entry in entries]
            self._hash.update("".join(encoded).encode())
        return self._last

    def read(
        self,
        after: int = 0,
        *,
        upto: int | None = None,
        kinds: Collection[str] | None = None,
        subject: str | None = None,
        since: float | None = None,
        until: float | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> Iterator[Record]:
        few = kinds is not None and KEPT_KINDS.issuperset(kinds)
        records = self._orders if few else self._records
        found = records[bisect_right(records, after, key=_SEQ) :] if records else []
        for seq, epoch, entry in reversed(found) if newest_first else found:
            if (
                (upto is None or seq <= upto)
                and (kinds is None or entry.kind in kinds)
                and (subject is None or entry.subject == subject)
                and (since is None or entry.at >= since)
                and (until is None or entry.at < until)
            ):
                if limit == 0:
                    return
                limit = None if limit is None else limit - 1
                yield Record(seq, epoch, entry.kind, entry.subject, entry.at, entry.data)

    def last_seq(self) -> int:
        return self._last

    # -- states -------------------------------------------------------------------------------------------------------

    def save_state(self, seq: int, state: Mapping[str, Any], *, epoch: int | None = None) -> None:
        if seq > self._last:
            raise ValueError(f"seq is {seq}: the last record is {self._last}")
        if epoch is not None:
            self._fence(epoch)
        self._state = (seq, state)
        if not self._keep_all:
            self._records = self._records[bisect_right(self._records, seq, key=_SEQ) :]

    def latest_state(self, before: float | None = None) -> tuple[int, Mapping[str, Any]] | None:
        return self._state if before is None else None

    def oldest_state(self) -> tuple[int, Mapping[str, Any]] | None:
        return None if self._keep_all else self._state

    def compact(
        self,
        before: float,  # noqa: ARG002
        *,
        keep_kinds: Collection[str] = (),  # noqa: ARG002
        keep_subjects: Collection[str] | Callable[[str], bool] = (),  # noqa: ARG002
        epoch: int | None = None,  # noqa: ARG002
    ) -> int:
        return 0

    # -- the lease ----------------------------------------------------------------------------------------------------

    def acquire(self, holder: str, ttl: float, now: float | None) -> Lease | None:
        assert now is not None
        old = self._lease
        if old is not None and old.holder != holder and now < old.expires_at:
            if old.expires_at > now + old.ttl:  # the clock was set back: the lease counts from the new time on
                self._lease = Lease(old.holder, old.epoch, old.ttl, now + old.ttl)
            return None
        self._epoch += 1
        self._lease = Lease(holder, self._epoch, ttl, now + ttl)
        return self._lease

    def renew(self, lease: Lease, now: float | None) -> Lease:
        assert now is not None
        held = self._lease
        if held is None or (held.epoch, held.holder) != (lease.epoch, lease.holder):
            raise LeaseLost(f"{lease.holder} has lost its lease; another controller leads now")
        self._lease = Lease(lease.holder, lease.epoch, lease.ttl, now + lease.ttl)
        return self._lease

    def release(self, lease: Lease) -> None:
        if self._lease is not None and self._lease.epoch == lease.epoch:
            self._lease = None

    def lease(self) -> Lease | None:
        return self._lease

    def _fence(self, epoch: int) -> None:
        if epoch != self._epoch:
            raise Fenced("another controller has taken over the journal")

    # -- the rest -----------------------------------------------------------------------------------------------------

    def health(self) -> JournalHealth:
        oldest = self._records[0] if self._records else None
        return JournalHealth(
            location="memory",
            size=0,
            records=len(self._records),
            last_seq=self._last,
            oldest_seq=oldest[0] if oldest else None,
            oldest_at=oldest[2].at if oldest else None,
            schema_version=1,
            epoch=self._epoch,
            holder=self._lease.holder if self._lease else None,
            states=0 if self._state is None else 1,
            problems=(),
        )

    def close(self) -> None:
        """Nothing is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
