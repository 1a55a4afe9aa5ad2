"""Any sequence of calls, against a model that is a few lists."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from windlass.journal import Entry, Fenced, Journal, JournalCorrupt, Lease, LeaseLost, Record, open_journal

from .journals import tamper

HOLDERS = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from(["k0", "k1", "k2"])
SUBJECTS = st.sampled_from(["s0", "s1", "s2"])
TIMES = st.integers(0, 50).map(float)
ENTRIES = st.builds(Entry, KINDS, SUBJECTS, TIMES, st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))
TTL = 10.0


class Model(RuleBasedStateMachine):
    """The journal and what it must be equal to."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.journal: Journal = open_journal(address)
        self.records: list[Record] = []
        self.last = 0
        self.states: dict[int, dict[str, Any] | None] = {}  # None: damaged
        self.compacted_to = 0
        self.epoch = 0
        self.held: Lease | None = None
        self.granted: list[Lease] = []

    def teardown(self) -> None:
        self.journal.close()

    @rule(entries=st.lists(ENTRIES, max_size=4), leads=st.booleans())
    def the_leader_or_an_operator_appends(self, entries, leads):
        new = [
            Record(self.last + n, self.epoch, e.kind, e.subject, e.at, e.data) for n, e in enumerate(entries, start=1)
        ]
        self.last += len(new)
        self.records += new
        assert self.journal.append(entries, epoch=self.epoch if leads else None) == self.last

    @rule(entries=st.lists(ENTRIES, max_size=2), off=st.integers(-3, 3).filter(bool))
    def somebody_else_appends(self, entries, off):
        with pytest.raises(Fenced):
            self.journal.append(entries, epoch=self.epoch + off)

    @rule(holder=HOLDERS, now=TIMES)
    def somebody_acquires(self, holder, now):
        lease = self.journal.acquire(holder, TTL, now)
        held = self.held
        if held and held.holder != holder and now < held.expires_at:
            assert lease is None
            self.held = Lease(held.holder, held.epoch, held.ttl, min(held.expires_at, now + held.ttl))
        else:
            self.epoch += 1
            assert lease == Lease(holder, self.epoch, TTL, now + TTL)
            self.held = lease
            self.granted.append(lease)

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), now=TIMES)
    def somebody_renews(self, data, now):
        lease = data.draw(st.sampled_from(self.granted))
        if self.held and lease.epoch == self.epoch:
            self.held = self.journal.renew(lease, now)
            assert self.held == Lease(lease.holder, lease.epoch, TTL, now + TTL)
        else:
            with pytest.raises(LeaseLost):
                self.journal.renew(lease, now)

    @precondition(lambda self: self.granted)
    @rule(data=st.data())
    def somebody_releases(self, data):
        lease = data.draw(st.sampled_from(self.granted))
        self.journal.release(lease)
        if lease.epoch == self.epoch:
            self.held = None

    @rule(data=st.data(), number=st.integers())
    def a_state_is_saved(self, data, number):
        seq = data.draw(st.integers(0, self.last + 1))
        if self.compacted_to <= seq <= self.last:
            self.journal.save_state(seq, {"n": number}, epoch=self.epoch)
            self.states[seq] = {"n": number}
        else:
            with pytest.raises(ValueError):
                self.journal.save_state(seq, {"n": number})

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def a_state_is_damaged(self, data):
        seq = data.draw(st.sampled_from(sorted(self.states)))
        tamper(self.address, f"UPDATE windlass_states SET state = '{{}}' WHERE seq = {seq}")
        self.states[seq] = None

    @rule(before=TIMES, kinds=st.sets(KINDS, max_size=2), subjects=st.sets(SUBJECTS, max_size=2))
    def it_is_compacted(self, before, kinds, subjects):
        readable = sorted(seq for seq, state in self.states.items() if state is not None)
        gone: list[Record] = []
        covering = [seq for seq in readable[:-1] if seq < self.first_since(before)]
        if covering:
            covered = covering[-1]
            self.compacted_to = covered
            self.states = {seq: state for seq, state in self.states.items() if seq >= covered}
            gone = [
                record
                for record in self.records
                if record.seq < covered
                and record.at < before
                and record.kind not in kinds
                and record.subject not in subjects
            ]
        assert self.journal.compact(before, keep_kinds=kinds, keep_subjects=subjects, epoch=self.epoch) == len(gone)
        self.records = [record for record in self.records if record not in gone]

    def first_since(self, instant):
        """The number of the first record of that instant or later, by the clock; it may jump."""
        later = [(record.at, record.seq) for record in self.records if record.at >= instant]
        return min(later)[1] if later else self.last + 1

    @rule(before=TIMES)
    def somebody_asks_for_the_past(self, before):
        readable = [seq for seq, state in self.states.items() if state is not None and seq < self.first_since(before)]
        found = self.journal.latest_state(before)
        assert found == ((max(readable), self.states[max(readable)]) if readable else None)

    @rule()
    def it_is_reopened(self):
        self.journal.close()
        self.journal = open_journal(self.address)

    @rule(
        after=st.integers(-1, 20),
        upto=st.none() | st.integers(0, 30),
        kinds=st.none() | st.sets(KINDS),
        subject=st.none() | SUBJECTS,
        since=st.none() | TIMES,
        until=st.none() | TIMES,
        limit=st.none() | st.integers(0, 5),
        newest_first=st.booleans(),
    )
    def somebody_reads(self, after, upto, kinds, subject, since, until, limit, newest_first):
        expected = [
            record
            for record in self.records
            if record.seq > after
            and (upto is None or record.seq <= upto)
            and (kinds is None or record.kind in kinds)
            and (subject is None or record.subject == subject)
            and (since is None or record.at >= since)
            and (until is None or record.at < until)
        ]
        if newest_first:
            expected.reverse()
        found = self.journal.read(
            after,
            upto=upto,
            kinds=kinds,
            subject=subject,
            since=since,
            until=until,
            limit=limit,
            newest_first=newest_first,
        )
        assert list(found) == expected[:limit]

    @invariant()
    def they_are_equal(self):
        assert self.journal.last_seq() == self.last
        assert list(self.journal.read()) == self.records
        assert self.journal.lease() == self.held
        newest = max((seq for seq, state in self.states.items() if state is not None), default=None)
        if newest is not None:
            assert self.journal.latest_state() == (newest, self.states[newest])
        elif self.compacted_to:
            with pytest.raises(JournalCorrupt):
                self.journal.latest_state()
        else:
            assert self.journal.latest_state() is None

    @invariant()
    def a_restart_misses_nothing(self):
        start = self.compacted_to
        assert [record.seq for record in self.journal.read(start)] == list(range(start + 1, self.last + 1))


def test_it_does_what_the_model_does(new_address):
    run_state_machine_as_test(
        lambda: Model(new_address()),  # type: ignore[arg-type]
        settings=settings(max_examples=settings().max_examples // 2, stateful_step_count=30),
    )
