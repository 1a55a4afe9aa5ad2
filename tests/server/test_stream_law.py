"""The law of the stream over a simulated day with faults: a status with its patches applied is the next status. A
reader that is cut off anywhere and comes back misses nothing and sees nothing twice."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from windlass.control.report.current import planned_state, read_state
from windlass.control.report.events import later_events
from windlass.control.report.leader import leader_of
from windlass.control.report.status import Status, spent_since
from windlass.journal.memory import MemoryJournal
from windlass.server.live.feed import Feed
from windlass.sim.fuzz.random_script import arbitrary_script
from windlass.sim.run.simulation import Simulation

EVERY = 9
"""Steps between two comparisons with a freshly built status, which is the most expensive part."""
KEPT = 8
"""Messages that the feed keeps: a reader that is away for longer is served from the journal."""
TABLES = {"groups": "name", "slices": "id", "demands": "id"}
BY_TIME_ALONE = {"at", "as_of", "seq", "seen_at", "ready_in", "starts_in", "cost"}
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


class Reader:
    """A program that follows the stream by its documentation, and by nothing else."""

    def __init__(self, status: dict[str, Any], seq: int) -> None:
        self.status, self.seq, self.loads = status, seq, 0
        self.events: list[dict[str, Any]] = []

    def take(self, sent: bytes) -> None:
        head, _, body = sent.decode().partition("\ndata: ")
        assert head.endswith("\nevent: pass")
        message = json.loads(body)
        assert head.startswith(f"id: {message['seq']}\n")
        assert message["seq"] >= self.seq
        self.seq = message["seq"]
        self.events += message["events"]
        for key, value in message["status"]["set"].items():
            self.status[key] = {**self.status[key], **value} if key in TABLES else value
        for table, names in message["status"]["gone"].items():
            for name in names:
                del self.status[table][name]

    def load(self, document: dict[str, Any]) -> None:
        self.status, self.seq, self.loads = by_name(document), document["seq"], self.loads + 1


def by_name(document: dict[str, Any]) -> dict[str, Any]:
    rows = {table: {row[name]: row for row in document[table]} for table, name in TABLES.items()}
    return {**document, **rows}


def timeless(value: Any) -> Any:
    """A document without instants and without the numbers inside sentences."""
    if isinstance(value, dict):
        return {key: timeless(one) for key, one in value.items() if key not in BY_TIME_ALONE}
    if isinstance(value, list):
        return [timeless(one) for one in value]
    return NUMBER.sub("#", value) if isinstance(value, str) and " " in value else value


class Day:
    """A simulated day, a feed that looks after every step, and two readers: one stays, the other is cut off."""

    def __init__(self, seed: int, hours: float) -> None:
        self.random, self.journal = random.Random(seed), MemoryJournal(keep_all=True)
        self.engine = Simulation(
            arbitrary_script(seed, hours), journal=self.journal, watch=self.look, thorough=False, to_the_end=False
        )
        self.sent: list[tuple[int, bytes]] = []
        self.feed: Feed | None = None
        self.away, self.compared, self.came_back = 0, 0, 0

    def look(self, engine: Simulation) -> None:
        if self.feed is None:
            self.feed = Feed(
                self.journal,
                lambda: engine.settings,
                keep=KEPT,
                now=engine.now,
                on_message=lambda message: self.sent.append((message.seq, message.whole)),
            )
        self.feed.poll(force=True)
        assert self.feed.problem is None
        current = self.feed.current
        assert current is not None
        if not self.compared:
            document = json.loads(current.body)
            self.steady, self.broken = Reader(by_name(document), current.seq), Reader(by_name(document), current.seq)
            self.first = current.seq
            self.sent.clear()
        for _, message in self.sent:
            self.steady.take(message)
            if not self.away:
                self.broken.take(message)
        self.sent.clear()
        back = self._cut_off()
        if back or self.compared % EVERY == 0:
            self._compare(engine)
        self.compared += 1

    def _cut_off(self) -> bool:
        """Cut the second reader off, or let it come back with the number that it had last; whether it did."""
        if self.away:
            self.away -= 1
            if not self.away:
                self._come_back()
                return True
        elif self.random.random() < 0.1:
            self.away = self.random.choice((1, 2, 5, 40))
        return False

    def _come_back(self) -> None:
        assert self.feed is not None
        assert self.feed.current is not None
        missed, seq = self.feed.after(self.broken.seq), self.broken.seq
        self.came_back += 1
        if missed is None:
            self.broken.load(json.loads(self.feed.current.body))
            return
        for message in missed:
            self.broken.take(message.body(frozenset({"status", "events"}), max(seq, message.after)))

    def _compare(self, engine: Simulation) -> None:
        """What the readers have is what anybody is told who asks now, made anew from the journal."""
        assert self.feed is not None
        current = self.feed.current
        assert current is not None
        now = engine.now()
        leader = leader_of(self.journal, now)
        planned = planned_state(read_state(self.journal), engine.settings, leader.instant(now))
        status = Status(engine.settings, leader, planned, now, spent_since(self.journal), current.unblocks)
        anew = timeless(by_name(json.loads(json.dumps(status.to_dict()))))
        assert timeless(by_name(json.loads(current.body))) == anew
        assert timeless(self.steady.status) == anew
        if not self.away:
            assert timeless(self.broken.status) == anew


@pytest.mark.parametrize(("seed", "hours"), [(11, 24), (3, 3)], ids=["a day", "many faults"])
def test_with_faults_readers_have_the_status_and_every_event_once(seed, hours):
    day = Day(seed, hours)
    result = day.engine.run()
    assert not result.breaches
    assert sum(result.faults.values()) > 10
    assert day.compared > 100
    assert day.came_back > 5
    if day.away:
        day._come_back()
    recorded = [
        one.document()
        for together in later_events(day.journal, day.first, day.journal.last_seq())
        for one in together
        if (one.seq or 0) > day.first
    ]
    assert len(recorded) > 50
    assert day.steady.events == recorded
    if not day.broken.loads:
        assert day.broken.events == recorded
