"""This module writes events on pods, nodes and provisioners, with the reasons that people already alert on. Repeats
are folded.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2s
from typing import Any, Final

from windlass.core.model.reasons import Reason
from windlass.kubernetes_api.api import Api, ApiError
from windlass.kubernetes_api.names import API_VERSION
from windlass.kubernetes_api.objects import rfc3339

from .work_queue import WorkQueue

COMPONENT: Final = "windlass"
REMEMBERED: Final = 10_000
"""How many events are remembered, so that repeats can be folded."""
FOLD: Final = 60.0
"""Seconds between two updates of the count of a folded event."""
_TASKS: Final = re.compile(r"\b(\d[\d,]*) task(s?)\b")
LONGEST: Final = 1000
"""Characters of a message: the API server refuses more than 1024."""
WARNINGS: Final = frozenset({"NotTriggerScaleUp", "ScaleDownBlocked", "ProviderError", "Blocked"})


@dataclass(frozen=True, slots=True)
class Subject:
    """The object that an event is about."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""

    @property
    def api_version(self) -> str:
        return API_VERSION if self.kind in ("NodeProvisioner", "NodeClaim") else "v1"


@dataclass(slots=True)
class _SentEvent:
    name: str
    count: int
    at: float


def with_pods(text: str) -> str:
    """Return a text of the planner about tasks, in the words of Kubernetes: ``2 tasks of x`` becomes ``2 pods of
    x``.
    """
    return _TASKS.sub(r"\1 pod\2", text)


class EventRecorder:
    """Writes events through a work queue."""

    def __init__(self, api: Api, queue: WorkQueue, now: Callable[[], float], instance: str = COMPONENT) -> None:
        self._api, self._queue, self._now, self._instance = api, queue, now, instance
        self._sent: OrderedDict[tuple[Subject, str, str], _SentEvent] = OrderedDict()
        self._last: OrderedDict[tuple[Subject, str], str] = OrderedDict()

    def send(self, subject: Subject, reason: str, why: Reason | str, *, only_if_new: bool = False) -> None:
        """Send an event. ``only_if_new``: skip it if it equals the last one about this subject."""
        message = with_pods(why if isinstance(why, str) else f"{why.code}: {why.why}")[:LONGEST]
        if only_if_new and self._last.get((subject, reason)) == message:
            return
        self._remember(self._last, (subject, reason), message)
        key, now = (subject, reason, message), self._now()
        sent = self._sent.get(key)
        if sent is None:
            sent = _SentEvent(f"{subject.name[:200]}.{self._mark(key, now)}", 1, now)
            self._remember(self._sent, key, sent)
            self._queue.put(f"event {sent.name}", lambda: self._create(subject, reason, message, sent.name, now))
            return
        sent.count += 1
        if now - sent.at >= FOLD:
            sent.at = now
            self._queue.put(f"event {sent.name}", lambda: self._count(subject, reason, message, sent))

    def _mark(self, key: tuple[Subject, str, str], now: float) -> str:
        """Return a suffix that is unique for each event and identical when a simulation is repeated."""
        return blake2s(repr((self._instance, key, now)).encode(), digest_size=8).hexdigest()

    def forget(self, subject: Subject, reason: str) -> None:
        """Send the next event of this kind even if it equals the last one."""
        self._last.pop((subject, reason), None)

    def _remember(self, table: OrderedDict[Any, Any], key: Any, value: Any) -> None:
        table[key] = value
        if len(table) > REMEMBERED:
            table.popitem(last=False)

    async def _create(self, subject: Subject, reason: str, message: str, name: str, at: float) -> None:
        namespace = subject.namespace or "default"
        about = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "name": subject.name,
            "namespace": subject.namespace,
            "uid": subject.uid,
        }
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {key: value for key, value in about.items() if value},
            "reason": reason,
            "message": message,
            "type": "Warning" if reason in WARNINGS else "Normal",
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
            "firstTimestamp": rfc3339(at),
            "lastTimestamp": rfc3339(at),
            "count": 1,
        }
        try:
            await self._api.create(f"/api/v1/namespaces/{namespace}/events", body)
        except ApiError as error:
            if error.status not in (403, 404, 409, 422):  # the namespace is terminating, or the event exists already
                raise

    async def _count(self, subject: Subject, reason: str, message: str, sent: _SentEvent) -> None:
        path = f"/api/v1/namespaces/{subject.namespace or 'default'}/events/{sent.name}"
        try:
            await self._api.patch(path, {"count": sent.count, "lastTimestamp": rfc3339(sent.at)})
        except ApiError as error:
            if not error.is_missing:
                raise
            await self._create(subject, reason, message, sent.name, sent.at)
