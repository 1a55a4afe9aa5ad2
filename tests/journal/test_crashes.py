"""Kills, torn writes and full disks: no commit is lost, and none is half written."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from windlass.journal import JournalFull, JournalUnavailable, Record, open_journal

from .journals import child, entry, held, is_increasing_by_one, lead, mounted, seqs, stream, write


def whole_batches(records: Sequence[Record]) -> bool:
    """Whether each batch of ``children.write_batches`` is there whole, and they follow each other."""
    expected, index = 0, 0
    for record in records:
        if (record.data["batch"], record.data["index"]) != (expected, index):
            return False
        index += 1
        if index == record.data["size"]:
            expected, index = expected + 1, 0
    return index == 0


@pytest.mark.parametrize("seed", range(8))
def test_after_a_kill_there_is_exactly_a_prefix_with_everything_that_was_acknowledged(address, seed):
    chance = random.Random(seed)
    reached = 0
    for life in range(3):
        with child("write_batches", address, f"life-{life}") as process:
            out = stream(process.stdout)
            assert out.readline() == "ready\n"
            acked = [int(out.readline()) for _ in range(chance.randrange(40))]
            # Not waiting for anything: the kill shall come at any point of a transaction.
            time.sleep(chance.random() * 0.003)
            process.send_signal(signal.SIGKILL)
            acked += [int(line) for line in out.read().splitlines()]
            process.wait()
        with open_journal(address) as journal:
            # A server may still be at work for the one that was killed; from here on it is fenced.
            assert journal.acquire(f"after-{life}", 30.0, 2e9)
            records = list(journal.read(after=reached))
            assert is_increasing_by_one([record.seq for record in records], first=reached + 1)
            assert whole_batches(records)
            last = journal.last_seq()
            assert last == reached + len(records)
            if acked:
                assert 0 <= last - acked[-1] <= 7  # and at most the one batch that was under way
            if state := journal.latest_state():
                assert state[0] <= last
            assert journal.health().ok
            reached = last
            journal.release(held(journal))


def test_orders_that_come_while_a_leader_writes_and_is_killed_are_all_kept_and_split_no_batch(address):
    with child("write_batches", address, "leader") as process, open_journal(address) as journal:
        out = stream(process.stdout)
        assert out.readline() == "ready\n"
        given = [journal.append([entry(f"g-{number}", "freeze")], epoch=None) for number in range(20)]
        process.send_signal(signal.SIGKILL)
        acked = [int(line) for line in out.read().splitlines()]
        process.wait()
        assert journal.acquire("after", 30.0, 2e9)
        records = list(journal.read())
        assert is_increasing_by_one([record.seq for record in records])
        orders = [record for record in records if record.kind == "freeze"]
        assert [(one.seq, one.subject) for one in orders] == [(seq, f"g-{n}") for n, seq in enumerate(given)]
        batches = [record for record in records if record.kind == "batch"]
        assert whole_batches(batches)
        assert {record.seq for record in batches if record.data["index"] == record.data["size"] - 1} >= set(acked)
        assert all(one.seq - before.seq == 1 for before, one in pairwise(batches) if one.data["index"])


def test_a_torn_log_ends_with_the_last_whole_commit(tmp_path):
    """Every kind of cut: between commits, in a frame's header, in a page."""
    path = tmp_path / "journal.db"
    log = Path(f"{path}-wal")
    with open_journal(path) as journal:
        sizes = [log.stat().st_size]
        for number in range(12):
            journal.append([entry(number=number, text="x" * 300 * number)] * (number + 1), epoch=0)
            sizes.append(log.stat().st_size)
        # Copied while it is open, as a power cut would leave it: nothing is checkpointed yet.
        database, frames = path.read_bytes(), log.read_bytes()
    assert sizes == sorted(set(sizes))
    chance = random.Random(1)
    cuts = {*sizes, *(size - 1 for size in sizes[1:]), *(size + 1 for size in sizes[:-1])}
    cuts |= {chance.randrange(sizes[0], sizes[-1]) for _ in range(40)}
    for tail in (b"", b"\0" * 5000, random.Random(2).randbytes(9000)):
        for cut in sorted(cuts):
            copy = tmp_path / "copy.db"
            copy.write_bytes(database)
            Path(f"{copy}-wal").write_bytes(frames[:cut] + tail)
            whole = sum(size <= cut for size in sizes[1:])
            with open_journal(copy) as journal:
                assert journal.last_seq() == sum(range(1, whole + 1))
                assert [record.data["number"] for record in journal.read()] == [
                    number for number in range(whole) for _ in range(number + 1)
                ]
                assert journal.append([entry()], epoch=0) == journal.last_seq()
                assert journal.health().ok
            for name in tmp_path.glob("copy.db*"):
                name.unlink()


def test_a_flipped_bit_in_the_last_commit_of_the_log_loses_that_commit_alone(tmp_path):
    path = tmp_path / "journal.db"
    log = Path(f"{path}-wal")
    with open_journal(path) as journal:
        write(journal, 5)
        before = log.stat().st_size
        journal.append([entry()], epoch=1)
        shutil.copy(path, tmp_path / "copy.db")
        frames = bytearray(log.read_bytes())
    frames[before + 2000] ^= 1
    (tmp_path / "copy.db-wal").write_bytes(frames)
    with open_journal(tmp_path / "copy.db") as journal:
        assert seqs(journal) == [1, 2, 3, 4, 5]
        assert journal.health().ok


def test_a_full_disk_writes_nothing_half_and_works_again_when_there_is_room(tmp_path):
    with mounted(tmp_path / "small", "1m") as disk:
        filler = disk / "filler"
        filler.write_bytes(b"x" * 300_000)
        with open_journal(disk / "journal.db") as journal:
            acked = fill(journal)
            assert acked > 0
            assert seqs(journal) == list(range(1, acked + 1))
            with pytest.raises(JournalFull):
                journal.append([entry(text="y" * 50_000)], epoch=0)
            filler.unlink()
            assert journal.append([entry()] * 3, epoch=0) == acked + 3
            assert journal.health().ok
        with open_journal(disk / "journal.db") as journal:
            assert seqs(journal) == list(range(1, acked + 4))


def test_a_kill_on_a_full_disk_loses_nothing(tmp_path):
    with mounted(tmp_path / "small", "1m") as disk:
        with open_journal(disk / "journal.db") as journal:
            acked = fill(journal)
            for name in ("journal.db", "journal.db-wal"):  # as a kill would leave them
                shutil.copy(disk / name, tmp_path / name)
        with open_journal(tmp_path / "journal.db") as journal:
            assert seqs(journal) == list(range(1, acked + 1))


def test_a_disk_that_is_full_at_the_start_is_reported(tmp_path):
    with mounted(tmp_path / "small", "16k") as disk, pytest.raises(JournalFull, match="free some space"):
        open_journal(disk / "journal.db")


def fill(journal) -> int:
    """Write until there is no room; the last number that was acknowledged."""
    for _ in range(10_000):
        acked = journal.last_seq()
        try:
            journal.append([entry(text=os.urandom(2500).hex()) for _ in range(3)], epoch=0)
        except JournalFull:
            assert journal.last_seq() == acked
            return int(acked)
    raise AssertionError("the disk is never full")


def test_a_limit_on_the_size_of_files_is_like_a_full_disk(tmp_path):
    with child("outgrow_limit", tmp_path / "journal.db") as process:
        acked, last, after = (int(line) for line in stream(process.stdout).read().split())
    assert acked > 0
    assert last == acked
    assert after == acked + 1
    with open_journal(tmp_path / "journal.db") as journal:
        assert seqs(journal) == list(range(1, after + 1))
        assert journal.health().ok


def test_a_server_with_a_full_disk_writes_nothing_half_and_works_again(
    tmp_path_factory, postgres_server, postgres_address
):
    import psycopg

    with mounted(postgres_server.home / "small", "3m") as disk:
        space = disk / "space"
        space.mkdir()
        if postgres_server.user:
            shutil.chown(space, postgres_server.user)
        filler = disk / "filler"
        filler.write_bytes(b"x" * 1_500_000)
        with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
            admin.execute(f"CREATE TABLESPACE small LOCATION '{space}'".encode())
        try:
            address = f"{postgres_address()}%20-cdefault_tablespace%3Dsmall"
            with open_journal(address) as journal:
                acked = fill(journal)
                assert acked > 0
                filler.unlink()
                assert journal.append([entry()], epoch=0) == acked + 1
                assert seqs(journal) == list(range(1, acked + 2))
                assert journal.health().ok
            with psycopg.connect(address) as cleaning:
                cleaning.execute("DROP TABLE windlass_records, windlass_states, windlass_journal")
        finally:
            with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
                admin.execute("DROP TABLESPACE small")


def test_a_server_that_crashes_loses_nothing_and_the_journal_finds_it_again(postgres_server, postgres_address):
    with open_journal(postgres_address()) as journal:
        epoch = lead(journal).epoch
        acked = 0
        for _ in range(20):
            acked = journal.append([entry()] * 3, epoch=epoch)
        postgres_server.crash()
        try:
            with pytest.raises(JournalUnavailable, match="cannot be reached"):
                journal.append([entry()], epoch=epoch)
            with pytest.raises(JournalUnavailable):
                journal.last_seq()
        finally:
            postgres_server.start()
        assert seqs(journal) == list(range(1, acked + 1))
        assert journal.append([entry()], epoch=epoch) == acked + 1


def test_a_connection_that_was_cut_is_made_again(postgres_address):
    import psycopg

    address = postgres_address()
    with open_journal(address) as journal, psycopg.connect(address, autocommit=True) as admin:
        write(journal, 3)
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'windlass'"
        assert admin.execute(cut).fetchall()
        with pytest.raises(JournalUnavailable):
            journal.append([entry()], epoch=1)
        assert journal.append([entry()], epoch=1) == 4
