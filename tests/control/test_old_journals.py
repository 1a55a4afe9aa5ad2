"""Journals that an older version wrote are read, replayed and continued.

The version before the modules were moved recorded all of them: ``old-simulated`` by the simulator with faults (kills,
refusals, hanging calls, jumping clocks), ``old-queue`` by ``windlass run`` with the queue and local processes,
``old-pool`` by a pool of a program with local processes.
"""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from windlass.control.record.state_reader import recovered
from windlass.control.replay import replayed
from windlass.journal import open_journal

HERE = Path(__file__).parent / "journals"


@pytest.fixture(params=["old-simulated", "old-queue", "old-pool"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"{request.param}.db"
    path.write_bytes(gzip.decompress((HERE / f"{request.param}.db.gz").read_bytes()))
    return path


def test_every_record_is_read_and_nothing_is_damaged(old: Path) -> None:
    with open_journal(old, create=False) as journal:
        health = journal.health()
        assert health.ok, health.problems
        state = recovered(journal)
        assert state.seq == health.last_seq > 50
        assert state.account, "what the slices have cost is still known"


def test_every_recorded_pass_takes_the_same_actions_today(old: Path) -> None:
    """Sentences and the bill have changed since; which slice changes its state, to which, and when, has not."""
    with open_journal(old, create=False) as journal:
        output = replayed(journal, settings=lambda recorded: recorded)
    assert output.passes > 10
    assert output.differing == 0, output.first


def test_every_recorded_pass_can_be_made_again(old: Path) -> None:
    with open_journal(old, create=False) as journal:
        output = replayed(journal)
    assert output.passes > 10
    assert output.unmarked == 0


def test_the_cluster_gets_an_id_once(old: Path) -> None:
    with open_journal(old, create=False) as journal:
        first = journal.cluster_id
    with open_journal(old, create=False) as journal:
        assert first == journal.cluster_id
    assert len(first) == 10


def test_a_new_leader_continues_where_the_old_one_stopped(old: Path) -> None:
    with open_journal(old, create=False) as journal:
        before, last = journal.health().epoch, journal.last_seq()
        lease = journal.acquire("new", 15, 1e12)
        assert lease is not None
        assert lease.epoch == before + 1
        assert journal.append((), epoch=lease.epoch) == last
