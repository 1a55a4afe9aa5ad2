"""The stream: patches laid over a status give the next one, and a reader that comes back misses and repeats nothing."""

from __future__ import annotations

import asyncio
import http.client
import json
import random
import time

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")
pytest.importorskip("prometheus_client", reason="the server is an extra: pip install '.[server]'")

from tests.cli.clusters import Cluster, ticks
from tests.server.served import served, two_groups
from windlass.config import read_config
from windlass.control.report import schemas
from windlass.journal import open_journal
from windlass.server.live.feed import Feed, PassMessage
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
                    feed._look(force=True)
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


def test_a_reader_that_comes_back_anywhere_misses_no_event_and_sees_none_twice(tmp_path):
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


def test_a_server_that_started_again_goes_on_where_the_reader_was(tmp_path):
    story = Story(tmp_path, 3)
    seen: list[tuple[int, dict]] = []
    story.live(40, lambda feed: seen.extend((message.seq, {}) for message in feed.messages))
    whole = [one for message in story.messages for one in message.events]
    with open_journal(story.config.journal.location, create=False) as journal:
        feed = story.feed(journal)
        feed._look(force=True)
        middle = seen[len(seen) // 2][0]
        found = feed.after(middle)
        assert found is not None
        [caught_up] = found
        assert list(caught_up.events) == [one for one in whole if one["seq"] > middle]
        assert caught_up.seq == feed.seq


def test_a_reader_that_stops_reading_costs_its_places_and_no_more():
    async def slow() -> Subscription:
        reader = Subscription(frozenset({"status", "events"}))
        for number in range(1000):
            reader.put(PassMessage(number + 1, number, 0.0, {"set": {}, "gone": {}}, ()))
            assert len(reader.waiting) <= PLACES
        return reader

    reader = asyncio.run(slow())
    assert reader.lost
    assert not reader.waiting


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
