"""One leader at a time; earlier leaders are fenced."""

from __future__ import annotations

import math
from contextlib import ExitStack

import pytest

from windlass.journal import Fenced, JournalError, Lease, LeaseLost, open_journal

from .journals import child, entry, held, is_increasing_by_one, lead, stream, tamper


def test_the_first_to_ask_gets_it(journal):
    assert journal.lease() is None
    lease = journal.acquire("a", 30.0, 1000.0)
    assert lease == Lease("a", 1, 30.0, 1030.0)
    assert journal.lease() == lease


def test_another_waits_until_it_expires_and_gets_a_higher_epoch(journal):
    first = journal.acquire("a", 30.0, 1000.0)
    assert journal.acquire("b", 30.0, 1000.0) is None
    assert journal.acquire("b", 30.0, 1029.9) is None
    second = journal.acquire("b", 30.0, 1030.0)
    assert second.epoch == first.epoch + 1
    assert journal.acquire("a", 30.0, 1031.0) is None


def test_who_takes_its_own_again_gets_a_higher_epoch_and_fences_its_past(journal):
    before = lead(journal, "a")
    after = lead(journal, "a")
    assert after.epoch == before.epoch + 1
    with pytest.raises(Fenced):
        journal.append([entry()], epoch=before.epoch)
    assert journal.append([entry()], epoch=after.epoch) == 1


def test_who_was_overtaken_writes_nothing_more(journal):
    old = journal.acquire("a", 30.0, 1000.0)
    journal.append([entry()], epoch=old.epoch)
    new = journal.acquire("b", 30.0, 1030.0)
    with pytest.raises(Fenced, match=r"another controller has taken over.*b leads now"):
        journal.append([entry(), entry()], epoch=old.epoch)
    assert journal.append([entry()], epoch=new.epoch) == 2


def test_an_expired_lease_that_was_not_taken_still_writes(journal):
    lease = journal.acquire("a", 1.0, 1000.0)
    assert journal.append([entry(at=5000.0)], epoch=lease.epoch) == 1


def test_an_epoch_that_was_never_granted_here_is_fenced(journal):
    lease = lead(journal)
    with pytest.raises(Fenced, match="has not granted this lease"):
        journal.append([entry()], epoch=lease.epoch + 1)
    assert journal.last_seq() == 0


def test_renewing_keeps_the_epoch_and_moves_the_end(journal):
    lease = journal.acquire("a", 30.0, 1000.0)
    renewed = journal.renew(lease, 1020.0)
    assert renewed == Lease("a", lease.epoch, 30.0, 1050.0)
    assert journal.acquire("b", 30.0, 1049.0) is None
    assert journal.renew(renewed, 1060.0).expires_at == 1090.0  # late, but nobody took it
    assert journal.renew(lease, 1070.0).expires_at == 1100.0  # an older copy of the same lease


def test_a_holder_that_lost_the_lease_learns_it_when_renewing(journal):
    lease = journal.acquire("a", 30.0, 1000.0)
    journal.acquire("b", 30.0, 1030.0)
    with pytest.raises(LeaseLost, match=r"a has lost its lease.*b leads now"):
        journal.renew(lease, 1031.0)
    journal.release(lease)
    assert held(journal).holder == "b"


def test_a_released_one_is_free_at_once_and_cannot_be_renewed(journal):
    lease = journal.acquire("a", 30.0, 1000.0)
    journal.release(lease)
    journal.release(lease)
    assert journal.lease() is None
    with pytest.raises(LeaseLost, match="released"):
        journal.renew(lease, 1001.0)
    assert journal.acquire("b", 30.0, 1001.0).epoch == lease.epoch + 1


def test_it_survives_reopening(address):
    with open_journal(address) as journal:
        lease = lead(journal, "a")
    with open_journal(address) as journal:
        assert journal.lease() == lease
        assert journal.acquire("b", 30.0, 1001.0) is None
        assert journal.renew(lease, 1002.0).epoch == lease.epoch


def test_a_clock_that_was_set_back_does_not_keep_a_dead_leader_alive(journal):
    journal.acquire("a", 30.0, 100_000.0)
    assert journal.acquire("b", 30.0, 1000.0) is None
    assert journal.acquire("b", 30.0, 1029.0) is None
    assert journal.acquire("b", 30.0, 1030.0).epoch == 2


def test_a_clock_that_jumps_forwards_costs_the_lease_and_never_lets_two_write(journal):
    old = journal.acquire("a", 30.0, 1000.0)
    new = journal.acquire("b", 30.0, 99_000.0)
    with pytest.raises(Fenced):
        journal.append([entry()], epoch=old.epoch)
    assert journal.append([entry()], epoch=new.epoch) == 1


@pytest.mark.parametrize(
    ("holder", "ttl", "now"),
    [
        ("", 30.0, 0.0),
        ("a", 0.0, 0.0),
        ("a", -1.0, 0.0),
        ("a", math.nan, 0.0),
        ("a", math.inf, 0.0),
        ("a", 30.0, math.nan),
    ],
)
def test_a_lease_that_makes_no_sense_is_refused(journal, holder, ttl, now):
    with pytest.raises(ValueError):
        journal.acquire(holder, ttl, now)
    assert journal.lease() is None


def test_without_a_time_the_databases_own_clock_judges_where_there_is_one(journal, address):
    if not journal.own_clock:
        with pytest.raises(ValueError, match="pass now"):
            journal.acquire("a", 30.0, None)
        assert journal.lease() is None
        return
    lease = journal.acquire("a", 30.0, None)
    assert journal.acquire("b", 30.0, None) is None
    assert journal.renew(lease, None).expires_at >= lease.expires_at
    tamper(address, "UPDATE windlass_journal SET expires_at = expires_at - 30")
    assert journal.acquire("b", 30.0, None).epoch == lease.epoch + 1


def test_of_processes_that_ask_at_once_exactly_one_gets_it(address):
    open_journal(address).close()
    for _ in range(3):
        with ExitStack() as stack:
            processes = [stack.enter_context(child("claim", address, f"p{i}")) for i in range(4)]
            for process in processes:
                assert stream(process.stdout).readline() == "ready\n"
            for process in processes:
                print("go", file=stream(process.stdin), flush=True)
            epochs = [int(stream(process.stdout).readline()) for process in processes]
        assert sorted(map(bool, epochs)) == [False, False, False, True]
        with open_journal(address) as journal:
            journal.release(held(journal))


def test_processes_that_fight_for_it_never_write_under_the_same_epoch_or_a_lower_one(address):
    with ExitStack() as stack:
        processes = [stack.enter_context(child("fight", address, f"p{i}", 60)) for i in range(3)]
        for process in processes:
            assert stream(process.stdout).readline() == "ready\n"
        for process in processes:
            print("go", file=stream(process.stdin), flush=True)
        had = [int(stream(process.stdout).readline()) for process in processes]
    with open_journal(address) as journal:
        records = list(journal.read())
        lease = journal.lease()
    assert lease is not None
    assert lease.epoch == sum(had)  # every acquisition had an epoch of its own
    assert is_increasing_by_one([record.seq for record in records])
    assert [record.epoch for record in records] == sorted(record.epoch for record in records)
    holders: dict[int, set[str]] = {}
    for record in records:
        holders.setdefault(record.epoch, set()).add(record.subject)
    assert all(len(names) == 1 for names in holders.values())


def test_processes_that_open_an_empty_journal_at_once_all_succeed(address):
    with ExitStack() as stack:
        processes = [stack.enter_context(child("open_at_once", address)) for _ in range(6)]
        for process in processes:
            assert stream(process.stdout).readline() == "ready\n"
        for process in processes:
            print("go", file=stream(process.stdin), flush=True)
        assert [stream(process.stdout).readline() for process in processes] == ["0\n"] * 6


def test_errors_of_the_lease_are_errors_of_the_journal():
    assert issubclass(Fenced, JournalError)
    assert issubclass(LeaseLost, JournalError)
