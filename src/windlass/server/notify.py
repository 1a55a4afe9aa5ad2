"""The Notifier posts alarms to webhooks, signed, at least once. A repeated alarm is counted, not sent again.

A notification keeps its id over all tries. One that is not accepted is sent again with exponential back-off. An alarm
that repeats within ten minutes is counted, and the count is sent with the next one of its kind. How far the journal was
read, and everything before it delivered, is kept in a file, so that a restart misses nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from windlass.config.server import Webhook
from windlass.control.report.events import QUARANTINED, EventLine, later_events
from windlass.core.model.lifecycle import State
from windlass.core.model.reasons import Code
from windlass.journal import Journal, JournalError

SCHEMA: Final = "windlass.notification/v1"
QUIET: Final = 600.0
"""An alarm that repeats within this many seconds is counted and not sent again."""
FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
GIVEN_UP: Final = 24 * 3600.0
"""A notification that is not accepted for this many seconds is dropped."""
TIMEOUT: Final = 10.0
MOST: Final = 1000
"""At most this many notifications wait for one webhook; beyond, the oldest are dropped."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats a redirect as a failure: the new address would get no body, and its answer would look like success."""

    def redirect_request(self, *_args: Any, **_more: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirect)


def topics(line: EventLine) -> frozenset[str]:
    """Returns the kinds of ``on`` that an event belongs to; empty if it is not for a notification."""
    found = set()
    if line.alarm:
        found.add("alarm")
    if line.kind == "waiting" and line.code == Code.BUDGET:
        found.add("ceiling")
    if line.kind == "trouble" and line.alarm:
        source = any(one == "workload" or one.startswith("provider ") for one in line.subjects)
        found.add("unknown" if source else "alarm")
    if line.state == State.TERMINATE_FAILED:
        found.add("terminate_failed")
    if line.state == QUARANTINED:
        found |= {"breach", "alarm"}
    if line.kind == "frozen":
        found.add("frozen")
    return frozenset(found)


def sameness(line: EventLine) -> str:
    """Returns a key that is equal for alarms that differ only in numbers."""
    return re.sub(r"\d+", "#", f"{line.kind} {line.code} {line.text}")


@dataclass
class _Waiting:
    """A notification that was not accepted yet."""

    body: bytes
    id: str
    since: float
    pause: float = FIRST_PAUSE
    due: float = 0.0


@dataclass
class _Hook:
    webhook: Webhook
    waiting: deque[_Waiting] = field(default_factory=deque)
    sent: dict[str, tuple[float, int]] = field(default_factory=dict)
    """When each alarm was last sent, and how often it has repeated since."""


class Notifier:
    """Reads events in a thread and posts those that webhooks subscribe to."""

    def __init__(
        self,
        journal: Journal,
        webhooks: tuple[Webhook, ...],
        state: Path,
        *,
        on_outcome: Callable[[str], None] = lambda _: None,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._journal, self._hooks = journal, [_Hook(one) for one in webhooks]
        self._state, self._on_outcome, self._environment, self._clock = state, on_outcome, environment, clock
        self._written: int | None = None
        self._seq = self._read_state()
        self._wake, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="windlass-notify", daemon=True)

    def start(self) -> None:
        self._write_state()  # from here on no event is missed, even if this process ends before it sends anything
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join(TIMEOUT + 1)

    def wake(self) -> None:
        self._wake.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.turn()
            self._wake.wait(self._next_due())
            self._wake.clear()

    def turn(self) -> None:
        """Reads new events, and sends the notifications that are due."""
        try:
            upto = self._journal.last_seq()
            for together in later_events(self._journal, self._seq, upto):
                for number, line in enumerate(together):
                    self._take(line, number)
        except JournalError:
            return
        for hook in self._hooks:
            self._send(hook)
        self._seq = max(self._seq, upto)
        if not any(hook.waiting for hook in self._hooks):
            self._write_state()

    def _take(self, line: EventLine, number: int) -> None:
        found = topics(line)
        for hook in self._hooks:
            if not found & hook.webhook.on:
                continue
            key, now = sameness(line), self._clock()
            last, count = hook.sent.get(key, (-QUIET, 0))
            if now - last < QUIET:
                hook.sent[key] = (last, count + 1)
                self._on_outcome("repeated")
                continue
            hook.sent[key] = (now, 0)
            name = f"{line.seq}-{number}"
            body = json.dumps(
                {
                    "schema": SCHEMA,
                    "id": name,
                    "on": sorted(found & hook.webhook.on),
                    "repeated": count,
                    "event": line.document(),
                }
            ).encode()
            hook.waiting.append(_Waiting(body, name, now))
            if len(hook.waiting) > MOST:
                hook.waiting.popleft()
                self._on_outcome("dropped")

    def _send(self, hook: _Hook) -> None:
        while hook.waiting and not self._stop.is_set():
            one = hook.waiting[0]
            if one.due > self._clock():
                return
            if self._posted(hook.webhook, one):
                hook.waiting.popleft()
                self._on_outcome("sent")
                continue
            self._on_outcome("failed")
            if self._clock() - one.since > GIVEN_UP:
                hook.waiting.popleft()
                self._on_outcome("dropped")
                continue
            one.due = self._clock() + one.pause
            one.pause = min(LONGEST_PAUSE, one.pause * 2)
            return

    def _posted(self, webhook: Webhook, one: _Waiting) -> bool:
        stamp = str(int(time.time()))
        headers = {"Content-Type": "application/json", "Windlass-Id": one.id, "Windlass-Timestamp": stamp}
        if webhook.secret_env is not None:
            secret = self._environment.get(webhook.secret_env, "")
            if not secret:
                return False
            headers["Windlass-Signature"] = f"sha256={signature(secret, stamp, one.body)}"
        request = urllib.request.Request(webhook.url, one.body, headers, method="POST")
        try:
            with _OPENER.open(request, timeout=TIMEOUT) as answer:
                return 200 <= int(answer.status) < 300
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def _next_due(self) -> float:
        return max(0.05, min(self._waits(), default=1.0))

    def _waits(self) -> Iterator[float]:
        for hook in self._hooks:
            if hook.waiting:
                yield hook.waiting[0].due - self._clock()

    def _read_state(self) -> int:
        try:
            return int(json.loads(self._state.read_text(encoding="utf-8"))["seq"])
        except (OSError, ValueError, KeyError, TypeError):
            return self._journal.last_seq()

    def _write_state(self) -> None:
        if self._written == self._seq:
            return
        data: dict[str, Any] = {"seq": self._seq}
        temporary = self._state.with_name(f".{self._state.name}.{os.getpid()}")
        try:
            self._state.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_text(json.dumps(data), encoding="utf-8")
            temporary.replace(self._state)
        except OSError:
            return
        self._written = self._seq


def signature(secret: str, stamp: str, body: bytes) -> str:
    """Signs a notification: HMAC-SHA256 over the timestamp, a dot and the body."""
    return hmac.new(secret.encode(), f"{stamp}.".encode() + body, hashlib.sha256).hexdigest()
