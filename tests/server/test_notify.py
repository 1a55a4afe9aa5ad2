"""Webhooks, against a real HTTP receiver."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("fastapi", reason="the server is an extra: pip install '.[server]'")

from tests.cli.clusters import Cluster, ticks
from windlass.config import read_config
from windlass.config.server import ALARMS, Webhook
from windlass.control.report.events import QUARANTINED, EventLine
from windlass.journal import open_journal
from windlass.server import notify
from windlass.server.notify import Notifier, topics

SECRET = "shared-with-the-receiver"


@dataclass
class Receiver:
    """Remembers every request; answers with the statuses of ``answers`` first, then with 204."""

    answers: list[int] = field(default_factory=list)
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    @property
    def bodies(self):
        return [json.loads(body) for _, body in self.got]


@pytest.fixture
def receiver():
    found = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            found.got.append(({key.lower(): value for key, value in self.headers.items()}, body))
            self.send_response(found.answers.pop(0) if found.answers else 204)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_):
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    found.url = f"http://127.0.0.1:{server.server_port}/hook"
    yield found
    server.shutdown()
    server.server_close()


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    made.live(lambda world, controller: ticks(world, controller, 2))
    return made


def machines_are_lost(cluster: Cluster) -> None:
    """Two machines are bought, and then the cloud has them no more."""

    async def story(world, controller):
        world.work.waiting = ["a", "b"]
        await ticks(world, controller, 5)
        world.cloud.instances.clear()
        await ticks(world, controller, 5, 3)

    cluster.live(story)


def notifier(cluster: Cluster, receiver: Receiver, clock, outcomes=None, on=ALARMS, secret=SECRET) -> Notifier:
    config = read_config(cluster.config.read_text(encoding="utf-8"), path=cluster.config)
    journal = open_journal(config.journal.location, create=False)
    hook = Webhook(receiver.url, frozenset(on), "HOOK_SECRET", "ops")
    made = Notifier(
        journal,
        (hook,),
        cluster.config.with_name("notify.json"),
        on_outcome=(outcomes if outcomes is not None else []).append,
        environment={"HOOK_SECRET": secret} if secret else {},
        clock=clock,
    )
    made._write_state()
    return made


def test_the_topics_of_an_event_do_not_depend_on_the_words_of_its_sentence():
    name = "quarantined-breach terminate_failed:"
    waits = EventLine(0.0, "waiting", "AT_MAX", f"{name} waits: cpu is at its max", (name,))
    assert topics(waits) == frozenset()
    kept = EventLine(0.0, "slice", "", "a sentence", ("cpu-1",), state=QUARANTINED)
    assert topics(kept) == {"breach", "alarm"}
    failed = EventLine(0.0, "slice", "IDLE", "a sentence", ("cpu-1",), alarm=True, state="terminate_failed")
    assert topics(failed) == {"terminate_failed", "alarm"}


def test_an_alarm_is_posted_signed_and_with_an_id(cluster, receiver):
    outcomes: list[str] = []
    made = notifier(cluster, receiver, Clock(), outcomes)
    machines_are_lost(cluster)
    made.turn()
    assert receiver.got, "nothing was posted"
    for headers, body in receiver.got:
        output = json.loads(body)
        assert output["schema"] == "windlass.notification/v1"
        assert headers["windlass-id"] == output["id"]
        assert output["event"]["alarm"] is True
        assert abs(int(headers["windlass-timestamp"]) - time.time()) < 60
        signed = f"{headers['windlass-timestamp']}.".encode() + body
        expected = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
        assert headers["windlass-signature"] == f"sha256={expected}"
    assert any("lost" in output["event"]["text"] for output in receiver.bodies)
    assert set(outcomes) <= {"sent", "repeated"}
    posted = len(receiver.got)
    made.turn()
    assert len(receiver.got) == posted, "the same event was posted again"


def test_one_that_is_not_accepted_is_sent_again_with_back_off_and_the_same_id(cluster, receiver):
    clock = Clock()
    outcomes: list[str] = []
    made = notifier(cluster, receiver, clock, outcomes, on=("frozen",))
    receiver.answers = [500, 302, 404, 503]
    freeze(cluster)
    waits: list[float] = []
    made.turn()
    while outcomes.count("sent") < 1:
        before, posted = clock.now, len(receiver.got)
        while len(receiver.got) == posted:
            clock.now += 0.25
            made.turn()
        waits.append(clock.now - before)
    assert waits == [1, 2, 4, 8]
    assert len({headers["windlass-id"] for headers, _ in receiver.got}) == 1
    assert outcomes == ["failed"] * 4 + ["sent"]


def test_a_notification_outlives_a_restart(cluster, receiver):
    made = notifier(cluster, receiver, Clock(), on=("frozen",))
    receiver.answers = [500]
    freeze(cluster)
    made.turn()
    again = notifier(cluster, receiver, Clock(), on=("frozen",))
    again.turn()
    assert [output["id"] for output in receiver.bodies] == [receiver.bodies[0]["id"]] * 2
    third = notifier(cluster, receiver, Clock(), on=("frozen",))
    third.turn()
    assert len(receiver.got) == 2, "one that was delivered was sent again"


def test_a_repeated_alarm_is_counted_and_the_count_is_reported(cluster, receiver):
    clock = Clock()
    outcomes: list[str] = []
    made = notifier(cluster, receiver, clock, outcomes, on=("frozen",))
    for _ in range(3):
        freeze(cluster)
        resume(cluster)
    made.turn()
    assert [output["event"]["text"].partition(" by ")[0] for output in receiver.bodies] == [
        "gpu is frozen",
        "gpu is resumed",
    ]
    assert outcomes.count("repeated") == 4
    clock.now += notify.QUIET
    freeze(cluster)
    made.turn()
    assert [output["repeated"] for output in receiver.bodies] == [0, 0, 2]


def test_only_what_a_webhook_asks_for_is_sent_to_it(cluster, receiver):
    made = notifier(cluster, receiver, Clock(), on=("terminate_failed",))
    freeze(cluster)
    machines_are_lost(cluster)
    made.turn()
    assert receiver.got == []


def test_without_its_secret_nothing_is_sent_unsigned(cluster, receiver):
    outcomes: list[str] = []
    made = notifier(cluster, receiver, Clock(), outcomes, on=("frozen",), secret=None)
    freeze(cluster)
    made.turn()
    assert receiver.got == []
    assert outcomes == ["failed"]


def test_the_thread_sends_as_soon_as_it_is_woken(cluster, receiver):
    made = notifier(cluster, receiver, time.monotonic, on=("frozen",))
    made.start()
    try:
        freeze(cluster)
        made.wake()
        deadline = time.monotonic() + 30
        while not receiver.got:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        made.stop()


def freeze(cluster: Cluster) -> None:
    _order(cluster, "freeze")


def resume(cluster: Cluster) -> None:
    _order(cluster, "resume")


def _order(cluster: Cluster, what: str) -> None:
    assert cluster.run(what, "gpu").exit_code == 0
    cluster.live(lambda world, controller: ticks(world, controller, 1))
