"""The stream: patches applied to a status give the next one, and a reader that reconnects misses nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import re
import time

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from tests.cli.clusters import Cluster, ticks
from tests.server.served import served, two_groups
from windlass.config import read_config
from windlass.control import controller as controller_module
from windlass.control.report import schemas
from windlass.control.report.rows import duration_unit
from windlass.core.model.reasons import seconds
from windlass.journal import open_journal
from windlass.server.live import feed as feed_module
from windlass.server.live.feed import Feed, PassMessage
from windlass.server.live.patches import difference, laid_over, merged
from windlass.server.live.stream import PLACES, Subscription

CONFIG = two_groups(most=3, idle=30)


class Story:
    """A controller that lives through random work and losses, and a feed that looks after every pass."""

    def __init__(self, tmp_path, seed: int) -> None:
        self.random = random.Random(seed)
        self.cluster = Cluster(tmp_path, CONFIG)
        self.config = read_config(CONFIG, path=self.cluster.config)
        self.messages: list[PassMessage] = []
        self.documents: dict[int, dict] = {}

    def feed(self, journal) -> Feed:
        return Feed(
            journal, lambda: self.config.settings, now=lambda: self.cluster.world.time, on_message=self.messages.append
        )

    def live(self, steps: int, keep=lambda feed: None) -> None:
        async def whole(world, controller) -> None:
            with open_journal(self.config.journal.location, create=False) as journal:
                feed = self.feed(journal)
                for number in range(steps):
                    self._happen(world, number)
                    await ticks(world, controller, 1, self.random.choice((0.5, 1.0, 7.0, 20.0)))
                    feed.poll(force=True)
                    assert feed.problem is None
                    assert feed.current is not None
                    self.documents.setdefault(feed.current.seq, json.loads(feed.current.body))
                    self.documents[feed.current.seq] = json.loads(feed.current.body)
                keep(feed)

        self.cluster.live(whole)

    def _happen(self, world, number: int) -> None:
        roll = self.random.random()
        if roll < 0.25:
            world.work.waiting = [*world.work.waiting, f"job-{number}"]
        elif roll < 0.4:
            world.work.finish()
        elif roll < 0.5 and world.cloud.instances:
            name = self.random.choice(sorted(world.cloud.instances))
            world.cloud.instances.pop(name)


def test_a_reader_that_reconnects_misses_no_event_and_sees_none_twice(tmp_path):
    story = Story(tmp_path, 7)
    found: list[Feed] = []

    def check(feed: Feed) -> None:
        found.append(feed)
        whole = [one for message in feed.messages for one in message.events]
        for start in (message.seq for message in list(feed.messages)[:-1]):
            rest = [one for message in feed.after(start) or () for one in message.events if one["seq"] > start]
            assert rest == [one for one in whole if one["seq"] > start]
        assert feed.after(feed.seq + 1) is None

    story.live(50, check)
    assert found


def test_a_restarted_server_continues_where_the_reader_was(tmp_path):
    story = Story(tmp_path, 3)
    seen: list[tuple[int, dict]] = []
    story.live(40, lambda feed: seen.extend((message.seq, {}) for message in feed.messages))
    whole = [one for message in story.messages for one in message.events]
    with open_journal(story.config.journal.location, create=False) as journal:
        feed = story.feed(journal)
        feed.poll(force=True)
        middle = seen[len(seen) // 2][0]
        found = feed.after(middle)
        assert found is not None
        [caught_up] = found
        assert list(caught_up.events) == [one for one in whole if one["seq"] > middle]
        assert caught_up.seq == feed.seq


def test_a_feed_that_fell_behind_compaction_shows_the_state_of_now(tmp_path, monkeypatch):
    """Compaction keeps some records, so the first one that is missing need not be the next one."""
    monkeypatch.setattr(controller_module, "SAVE_AFTER", 10)
    story = Story(tmp_path, 5)

    async def whole(world, controller) -> None:
        with open_journal(story.config.journal.location, create=False) as journal:
            world.work.waiting = ["a", "b"]
            await ticks(world, controller, 6)
            feed = story.feed(journal)
            feed.poll(force=True)
            feed.timeline()
            before = feed.seq
            for number in range(30):
                story._happen(world, number)
                await ticks(world, controller, 1, 10.0)
            following = next(journal.read(before, limit=1))
            assert journal.compact(1e12, keep_kinds=["settings"], keep_subjects=[following.subject]) > 0
            oldest = journal.oldest_state()
            assert oldest is not None
            assert oldest[0] > before
            assert feed.poll()
            fresh = story.feed(journal)
            fresh.poll(force=True)
            shown, right = (json.loads(one.current.body) for one in (feed, fresh) if one.current is not None)
            for demand in (*shown["demands"], *right["demands"]):
                del demand["unblocks"]  # they are searched in a thread of their own
            assert difference(shown, right)[0] == {"set": {}, "gone": {}}
            assert feed.after(before - 1) is None
            monkeypatch.setattr(feed_module, "FOLLOWED", 0.0)
            since, now = world.time - 600, world.time
            lanes = [
                [(lane.id, lane.ended) for lane in one.timeline().lanes_between(since, now)] for one in (feed, fresh)
            ]
            assert lanes[0] == lanes[1] != []

    story.cluster.live(whole)


def test_a_reader_that_stops_reading_costs_only_its_buffer():
    async def slow() -> Subscription:
        reader = Subscription(frozenset({"status", "events"}))
        for number in range(1000):
            reader.put(PassMessage(number + 1, number, 0.0, {"set": {}, "gone": {}}, ()))
            assert len(reader.waiting) <= PLACES
        return reader

    reader = asyncio.run(slow())
    assert reader.lost
    assert not reader.waiting


def test_a_message_that_a_reader_has_is_not_sent_again_but_one_about_time_is():
    async def whole() -> list[tuple[int, int]]:
        reader = Subscription(frozenset({"status", "events"}))
        reader.upto = 5
        for after, seq in ((2, 4), (4, 5), (5, 5), (5, 8)):
            reader.put(PassMessage(seq, after, 0.0, {"set": {}, "gone": {}}, ()))
        return [(one.after, one.seq) for one in reader.waiting]

    assert asyncio.run(whole()) == [(5, 5), (5, 8)]


def test_the_messages_of_a_quiet_cluster_are_kept_as_one(tmp_path):
    """Only the bill moves in a quiet cluster. A reader that reconnects gets one message and not one for every poll."""
    story = Story(tmp_path, 5)

    async def whole(world, controller) -> None:
        with open_journal(story.config.journal.location, create=False) as journal:
            feed = story.feed(journal)
            world.work.waiting = ["a", "b"]
            await ticks(world, controller, 5, 1.0)
            feed.poll(force=True)
            assert feed.current is not None
            before, quiet = json.loads(feed.current.body), len(feed.messages)
            for _ in range(10):
                world.time += 1.0
                feed.poll(force=True)
            assert len(story.messages) - quiet >= 10
            found = feed.after(feed.seq)
            assert found is not None
            [message] = found
            after = json.loads(feed.current.body)
            assert laid_over(before, message.patch)["bill"] == after["bill"] != before["bill"]

    story.cluster.live(whole, stopped=False)


def test_two_patches_as_one_have_the_effect_of_both():
    def document(**slices: int) -> dict:
        rows = [{"id": name, "tasks": tasks} for name, tasks in slices.items()]
        return {"headline": str(slices), "groups": [], "demands": [], "slices": rows}

    for steps in (
        ({"a": 1}, {"b": 1}, {"a": 1}),
        ({"a": 1}, {"a": 1, "b": 1}, {"a": 1}),
        ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}),
    ):
        first, second, third = (document(**step) for step in steps)
        one, other = difference(first, second)[0], difference(second, third)[0]
        assert laid_over(first, merged(one, other)) == laid_over(laid_over(first, one), other) == third


def test_the_dollars_in_the_sentence_of_a_group_are_those_of_now():
    """Beside the cost of now, a sentence with the cost of an hour ago would mislead; a countdown would not."""

    def document(why: str) -> dict:
        row = {"name": "gpu", "next": {"code": "BUDGET", "why": why}}
        return {"groups": [row], "demands": [], "slices": []}

    before = document("$2.00/h more beside $12.60/h, in 20 s")
    assert difference(before, document("$2.00/h more beside $12.60/h, in 15 s"))[0]["set"] == {}
    assert difference(before, document("$2.00/h more beside $13.37/h, in 20 s"))[0]["set"].keys() == {"groups"}


def test_at_most_five_messages_are_sent_in_a_second_however_many_passes_there_are(tmp_path):
    story = Story(tmp_path, 2)
    sent: list[float] = []

    async def whole(world, controller) -> None:
        with open_journal(story.config.journal.location, create=False) as journal:
            feed = story.feed(journal)
            feed._on_message = lambda _: sent.append(feed._sent[-1])  # not when this thread got to run
            feed.start()
            number, deadline = 0, time.monotonic() + 60
            while len(sent) < 12 and time.monotonic() < deadline:
                world.work.waiting = [f"job-{number}"]
                number += 1
                await ticks(world, controller, 1)
                await asyncio.sleep(0.01)
            feed.stop()

    story.cluster.live(whole)
    assert len(sent) >= 12
    assert all(later - first >= 0.99 for first, later in zip(sent, sent[5:], strict=False))


def test_a_message_comes_over_http_soon_after_its_pass(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(lambda world, controller: ticks(world, controller, 2))
    with served(cluster, tmp_path) as api:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
        connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {api.secrets['viewer']}"})
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.readline() == b"event: hello\n"
        assert json.loads(answer.readline()[6:])["schema"] == "windlass.hello/v1"
        answer.readline()
        api.post("/orders", {"what": "freeze", "subject": "gpu"})
        began = time.monotonic()
        number = answer.readline()
        assert number.startswith(b"id: ")
        assert answer.readline() == b"event: pass\n"
        message = json.loads(answer.readline()[6:])
        assert time.monotonic() - began < 5
        assert message["schema"] == "windlass.pass/v1"
        assert [one["kind"] for one in message["events"]] == ["order"]
        answer.close()
        connection.close()


@pytest.mark.alone
def test_a_server_that_stops_ends_its_streams_at_once(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    with served(cluster, tmp_path) as api:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
        connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {api.secrets['viewer']}"})
        answer = connection.getresponse()
        began = time.monotonic()
    assert time.monotonic() - began < 1.5
    assert answer.read().startswith(b"event: hello")
    connection.close()


def test_one_stream_too_many_is_refused(tmp_path):
    cluster = Cluster(tmp_path, CONFIG)
    cluster.live(lambda world, controller: ticks(world, controller, 1))
    with served(cluster, tmp_path, max_streams=1) as api:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=20)
        connection.request("GET", "/api/v1/stream", headers={"Authorization": f"Bearer {api.secrets['viewer']}"})
        first = connection.getresponse()
        assert first.status == 200
        more = api.get("/stream")
        assert (more.status, more.problem) == (503, "too-many-streams")
        first.close()
        connection.close()


def test_documents_match_their_schemas(tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    story = Story(tmp_path, 1)
    story.live(40)
    for document in list(story.documents.values())[::5]:
        jsonschema.validate(document, schemas.STATUS)
    with served(story.cluster, tmp_path) as api:
        for path, schema in (
            ("/why?name=gpu", schemas.WHY),
            (f"/why?name={story.cluster.world.cloud.bought[0]}", schemas.WHY),
            ("/events", schemas.EVENTS),
            ("/lanes?since=0", schemas.LANES),
            ("/series?since=0", schemas.SERIES),
            ("/accounts?by=job", schemas.ACCOUNTS),
            ("/slices", schemas.LIST),
            ("/nodes", schemas.LIST),
            ("/orders", schemas.ORDERS),
            ("/settings", schemas.SETTINGS),
        ):
            jsonschema.validate(api.get(path).data, schema)


def test_a_large_decision_is_not_in_every_message_and_readers_still_have_the_status(tmp_path, monkeypatch):
    story = Story(tmp_path, 5)
    waiting = [f"job-{number}" for number in range(feed_module.LARGE_DECISION + 20)]
    sent: list[bool] = []

    async def whole(world, controller) -> None:
        with open_journal(story.config.journal.location, create=False) as journal:
            feed = story.feed(journal)
            reader: dict = {}
            for gone in range(6):
                monkeypatch.setattr(feed_module, "DECISION_EVERY", 1000.0 if gone < 4 else 0.0)
                world.work.waiting = waiting[gone:]
                await ticks(world, controller, 1, 1.0)
                feed.poll(force=True)
                assert feed.problem is None
                assert feed.current is not None
                document = json.loads(feed.current.body)
                if gone == 0:
                    reader = document
                for message in story.messages:
                    reader = laid_over(reader, message.patch)
                assert reader["decision"] == document["decision"]
                assert {one["id"] for one in reader["demands"]} == {one["id"] for one in document["demands"]}
                sent.append(any("decision" in message.patch["set"] for message in story.messages))
                story.messages.clear()

    story.cluster.live(whole)
    assert sent == [False, False, False, False, True, True]


def test_a_row_is_made_again_when_its_duration_is_written_in_other_words():
    words = {duration_unit(amount): re.sub(r"[\d.]+", "#", seconds(amount)) for amount in range(1, 40_000, 7)}
    assert len(set(words.values())) == len(words) == 4
    assert all(
        re.sub(r"[\d.]+", "#", seconds(amount)) == words[duration_unit(amount)] for amount in range(1, 40_000, 11)
    )
