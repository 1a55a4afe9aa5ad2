"""Real controllers, killed with SIGKILL and stopped with SIGSTOP, over real machines and real work."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.control.clusters import RealCluster, a_cluster, shows
from tests.control.process_proof import journal_at, prove
from tests.journal.servers import server_binaries
from tests.providers.local_processes import marked
from windlass.control.record.journal_tables import IS
from windlass.journal import Record

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[RealCluster]:
    yield from a_cluster(tmp_path)


MOMENTS: dict[str, Callable[[list[Record]], bool]] = {
    "it has written its settings": lambda new: any(one.kind == "settings" for one in new),
    "it decided to launch": lambda new: any(one.kind == "launch" for one in new),
    "it asked": lambda new: shows(new, "requesting"),
    "a machine shows": lambda new: shows(new, "booting", "initializing"),
    "a machine is ready": lambda new: shows(new, "ready"),
    "nothing waits any more": lambda new: any(one.kind == "demand" and IS not in one.data for one in new),
    "a machine is cordoned": lambda new: shows(new, "cordoned"),
    "a task waits for room": lambda new: any(one.kind == "waiting" for one in new),
    "a machine is being ended": lambda new: shows(new, "draining", "terminating"),
    "a machine is gone": lambda new: any(one.kind == "gone" for one in new),
}


def test_killed_at_any_moment_of_a_burst_every_task_runs_once_and_nothing_is_left(cluster: RealCluster) -> None:
    for moment in MOMENTS.values():
        mark = cluster.last_seq()
        controller = cluster.start()

        def comes(moment: Callable[[list[Record]], bool] = moment, mark: int = mark) -> bool:
            if moment(cluster.records(mark)):
                return True
            if len(cluster.ran()) == cluster.submitted and not cluster.slices_left():
                cluster.submit(5)  # one burst after the other, until the moment comes
            return False

        cluster.eventually(comes)
        controller.kill()
        controller.wait()
    controller = cluster.start()
    cluster.eventually(lambda: cluster.log().count("leading as one") == len(MOMENTS) + 1)
    cluster.eventually(lambda: len(cluster.ran()) >= cluster.submitted and not cluster.slices_left())
    controller.send_signal(signal.SIGTERM)
    assert controller.wait(10) == 0
    assert len(cluster.ran()) == len(set(cluster.ran())) == cluster.submitted
    assert cluster.machines_left() == []
    assert marked(cluster.machines) == []
    assert set(cluster.ended()) <= cluster.slices_seen()  # nothing was bought that is not on record
    assert cluster.journal.health().ok


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_ten_kills_and_stops_of_two_controllers_lose_no_task_and_the_bill_is_right(tmp_path: Path, kind: str) -> None:
    """The short form of ``make prove-processes``; over so few machines a late look counts for more than 1 %."""
    if kind == "postgres" and server_binaries() is None:
        pytest.skip("no PostgreSQL server is installed: apt-get install postgresql")
    with journal_at(kind) as location:
        proof = prove(tmp_path, 10, location=location)
    assert (proof.lost, proof.doubled, proof.left_over) == (0, 0, 0)
    assert proof.kills + proof.stops == 10
    assert proof.bill_error < 0.25


LEASE = 2.0
MARGIN = 2.0
"""A standby asks for the lease every third of it; the rest is for two busy cores."""


def test_a_stopped_leader_is_replaced_and_stands_by_without_a_call_when_it_continues(cluster: RealCluster) -> None:
    first = cluster.start("one")
    cluster.eventually(lambda: "leading as one" in cluster.log("one"))
    second = cluster.start("two")
    cluster.eventually(lambda: "standing by" in cluster.log("two"))
    cluster.submit(1)
    cluster.eventually(lambda: shows(cluster.records(), "ready") and cluster.ran())
    first.send_signal(signal.SIGSTOP)
    cluster.submit(3)
    taken_over = cluster.eventually(lambda: any(one.epoch == 2 for one in cluster.records()))
    assert taken_over < LEASE * 4 / 3 + MARGIN
    cluster.eventually(lambda: len(cluster.ran()) == 4)  # and the second one acts
    first.send_signal(signal.SIGCONT)
    cluster.eventually(lambda: "not leading any more" in cluster.log("one"))
    cluster.eventually(lambda: "standing by" in cluster.log("one"))
    epochs = [one.epoch for one in cluster.records()]
    assert epochs == sorted(epochs)  # the first one wrote nothing after the second had begun
    assert "has taken over; this one has" not in cluster.log("one")  # nor did a provider have to refuse a call of it
    # Now the second one is killed, and the first leads again.
    second.kill()
    cluster.submit(2)
    cluster.eventually(lambda: len(cluster.ran()) == 6 and not cluster.slices_left())
    assert any(one.epoch == 3 for one in cluster.records())
    assert len(set(cluster.ran())) == 6
    first.send_signal(signal.SIGTERM)
    assert first.wait(10) == 0
    assert cluster.machines_left() == []
    assert marked(cluster.machines) == []
