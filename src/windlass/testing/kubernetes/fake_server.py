"""FakeApiServer is an in-process API server for fast tests and simulations; it implements what the controller
uses.

It implements the transport of ``windlass.kubernetes_api``: objects with resourceVersions, lists in pages, watches
with bookmarks, merge and JSON patches, optimistic locking, finalizers, the status subresource, evictions, and answers
of 404, 409, 410, 422 and 429 where a real server gives them. The contract tests run against it and against a real one.
Faults are injected with ``fail_next``, ``break_watches``, ``compact`` and ``stall_watches``.
"""

from __future__ import annotations

import asyncio
import copy
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from windlass.kubernetes_api.api import ApiError, Response, WatchSilent
from windlass.kubernetes_api.objects import rfc3339

Object = dict[str, Any]

_PATH: Final = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[^/]+))?)?"
)
_LABEL_VALUE: Final = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
NAMESPACED: Final = frozenset(
    {
        "pods",
        "events",
        "leases",
        "jobs",
        "daemonsets",
        "podgroups",
        "podtemplates",
        "resourceclaims",
        "resourceclaimtemplates",
        "rayclusters",
        "capacitybuffers",
        "provisioningrequests",
    }
)
WITH_STATUS: Final = frozenset(
    {"pods", "nodes", "nodeprovisioners", "nodeclaims", "rayclusters", "capacitybuffers", "provisioningrequests"}
)
KINDS: Final = {
    "pods": "Pod",
    "nodes": "Node",
    "events": "Event",
    "leases": "Lease",
    "nodeprovisioners": "NodeProvisioner",
    "nodeclaims": "NodeClaim",
}


@dataclass(frozen=True, slots=True)
class Target:
    """The collection or object that a path names."""

    kind: str
    """Group and plural, such as ``windlass.dev/nodeclaims``."""
    plural: str
    namespace: str
    name: str
    sub: str


@dataclass(eq=False)
class Watching:
    """One open watch."""

    target: Target
    accepts: Callable[[Object], bool]
    queue: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    stalled: bool = False


class FakeApiServer:
    """Keeps objects and answers calls, as a ``Transport``."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self.now = now
        self.objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._version = 100
        self._created = 0
        """Objects that were ever created. Uids count them: two equal runs give equal objects."""
        self._oldest = 0
        self._history: list[tuple[int, str, str, Object]] = []
        """(resourceVersion, kind, type of event, object) for watches that begin in the past."""
        self._watches: list[Watching] = []
        self._failures: list[tuple[Callable[[str, str], bool], Response | None]] = []
        self.absent_kinds: set[str] = set()
        self.blocked_evictions: set[str] = set()
        """Pods (namespace/name) that a disruption budget protects: their eviction answers 429."""
        self.calls: list[tuple[str, str]] = []
        """Every write, as method and path."""
        self.on_change: Callable[[str, str, Object], None] = lambda _event, _kind, _item: None
        """Called after every change, in the order of their resourceVersions."""
        self.down = False
        self.put("/api/v1/namespaces", {"metadata": {"name": "kube-system"}})
        self.on_write: Callable[[str, str], None] = lambda _method, _path: None
        """Called before a write is executed; it may raise to simulate a crash."""
        self.on_written: Callable[[str, str], None] = lambda _method, _path: None
        """Called after a write was executed; it may raise to simulate a crash before the answer."""

    # -- faults --------------------------------------------------------------------------------------------------------

    def fail_next(self, matches: Callable[[str, str], bool], answer: Response | None, times: int = 1) -> None:
        """Answer the next calls that match (method, path) with this; None: no answer at all."""
        self._failures += [(matches, answer)] * times

    def break_watches(self) -> None:
        """End all watches, as a server does that restarts."""
        for watching in list(self._watches):
            watching.queue.put_nowait(None)

    def stall_watches(self) -> None:
        """Send nothing more on the open watches."""
        for watching in self._watches:
            watching.stalled = True

    def compact(self) -> None:
        """Compact the history: a watch from an older resourceVersion answers 410."""
        self._oldest = self._version
        self._history.clear()

    # -- direct access for tests ---------------------------------------------------------------------------------------

    def put(self, path: str, body: Object) -> Object:
        """Create an object, as a user would; the path is that of its collection."""
        answer = self._create(_target(path), copy.deepcopy(body))
        if answer.status >= 400:
            raise AssertionError(answer.body.decode())
        found: Object = json.loads(answer.body)
        return found

    def get(self, path: str) -> Object | None:
        """Return a copy of an object, or None."""
        target = _target(path)
        found = self._kind(target).get((target.namespace, target.name))
        return copy.deepcopy(found)

    def all(self, kind: str) -> list[Object]:
        """Return copies of all objects of a plural, such as ``nodes``."""
        return [
            copy.deepcopy(one)
            for name, objects in sorted(self.objects.items())
            if name.rpartition("/")[2] == kind
            for one in objects.values()
        ]

    def change(self, path: str, change: Callable[[Object], None]) -> Object:
        """Change an object in place, status included, as its owner would."""
        target = _target(path)
        current = self._kind(target)[(target.namespace, target.name)]
        following = copy.deepcopy(current)
        change(following)
        return self._store(target, current, following)

    def remove(self, path: str) -> None:
        """Delete an object, as a user would."""
        self._delete(_target(path), None)

    # -- transport -----------------------------------------------------------------------------------------------------

    async def request(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        body: bytes | None,
        content_type: str,
        timeout: float,  # noqa: ARG002  # the signature of a transport
    ) -> Response:
        await asyncio.sleep(0)
        if self.down:
            raise ApiError(0, "the API server cannot be reached: it is down")
        for number, (matches, answer) in enumerate(self._failures):
            if matches(method, path):
                del self._failures[number]
                if answer is None:
                    raise ApiError(0, "the API server cannot be reached: connection reset")
                return answer
        if method == "GET":
            return self._answer(method, path, params, body, content_type)
        self.on_write(method, path)
        self.calls.append((method, path))
        answer = self._answer(method, path, params, body, content_type)
        self.on_written(method, path)
        return answer

    def _answer(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None, content_type: str
    ) -> Response:
        target = _target(path)
        if target.plural in self.absent_kinds:
            return _status(404, "NotFound", "the server could not find the requested resource")
        data: Any = json.loads(body) if body else {}
        match method:
            case "GET" if target.name:
                found = self._kind(target).get((target.namespace, target.name))
                return _missing(target) if found is None else _good(found)
            case "GET":
                return self._list(target, params)
            case "POST" if target.sub == "eviction":
                return self._evict(target)
            case "POST":
                return self._create(target, data)
            case "PUT":
                return self._update(target, lambda _: data)
            case "PATCH":
                return self._update(target, lambda current: _patched(current, data, content_type))
            case "DELETE":
                return self._delete(target, data.get("preconditions"))
            case _:
                return _status(405, "MethodNotAllowed", method)

    async def stream(self, path: str, params: Mapping[str, str], stall: float) -> AsyncIterator[bytes]:
        await asyncio.sleep(0)
        if self.down:
            raise ApiError(0, "the API server cannot be reached: it is down")
        target = _target(path)
        if target.plural in self.absent_kinds:
            raise ApiError(404, "the server could not find the requested resource", "NotFound")
        start = int(params.get("resourceVersion") or self._version)
        if start < self._oldest:
            raise ApiError(410, f"too old resource version: {start} ({self._oldest})", "Expired")
        watching = Watching(target, _selects(target, params))
        for version, kind, event, item in self._history:
            if version > start and kind == target.kind and watching.accepts(item):
                watching.queue.put_nowait(_line(event, item))
        self._watches.append(watching)
        ends = self.now() + float(params.get("timeoutSeconds", "300"))
        try:
            yield b""
            while True:
                try:
                    async with asyncio.timeout(min(stall, max(0.0, ends - self.now()))):
                        line = await watching.queue.get()
                except TimeoutError:
                    if watching.stalled or self.now() < ends:
                        raise WatchSilent(path, stall) from None
                    return
                if line is None:
                    raise ApiError(0, "the API server cannot be reached: connection closed")
                yield line
        finally:
            self._watches.remove(watching)

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    def bookmark(self) -> None:
        """Send a bookmark to every watch, as servers do about every minute."""
        for watching in self._watches:
            if not watching.stalled:
                item = {"metadata": {"resourceVersion": str(self._version)}}
                watching.queue.put_nowait(_line("BOOKMARK", item))

    # -- objects -------------------------------------------------------------------------------------------------------

    def _kind(self, target: Target) -> dict[tuple[str, str], Object]:
        return self.objects.setdefault(target.kind, {})

    def _list(self, target: Target, params: Mapping[str, str]) -> Response:
        accepts = _selects(target, params)
        found = [one for _, one in sorted(self._kind(target).items()) if accepts(one)]
        start = int(params.get("continue") or 0)
        limit = int(params.get("limit") or 0) or len(found)
        page = found[start : start + limit]
        metadata = {"resourceVersion": str(self._version)}
        if start + limit < len(found):
            metadata["continue"] = str(start + limit)
        return _good({"kind": "List", "metadata": metadata, "items": page})

    def _create(self, target: Target, body: Object) -> Response:
        metadata = body.setdefault("metadata", {})
        self._created += 1
        name = metadata.get("name") or f"{metadata.get('generateName', '')}{self._created:05x}"
        metadata["name"] = name
        namespace = target.namespace or (metadata.get("namespace", "default") if target.plural in NAMESPACED else "")
        if (namespace, name) in self._kind(target):
            return _status(409, "AlreadyExists", f'{target.plural} "{name}" already exists')
        if wrong := _invalid(target, body):
            return _status(422, "Invalid", wrong)
        metadata |= {"uid": f"{self._created:032x}", "creationTimestamp": rfc3339(self.now()), "generation": 1}
        if namespace:
            metadata["namespace"] = namespace
        metadata.pop("resourceVersion", None)
        body.setdefault("kind", KINDS.get(target.plural, target.plural))
        if target.plural in WITH_STATUS and target.plural not in ("pods", "nodes"):
            body.pop("status", None)
        named = Target(target.kind, target.plural, namespace, name, "")
        return _good(self._store(named, None, body), 201)

    def _update(self, target: Target, make: Callable[[Object], Object]) -> Response:
        current = self._kind(target).get((target.namespace, target.name))
        if current is None:
            return _missing(target)
        try:
            following = make(copy.deepcopy(current))
        except ValueError as error:
            return _status(422, "Invalid", str(error))
        version = following["metadata"].get("resourceVersion")
        if version and version != current["metadata"]["resourceVersion"]:
            text = f'{target.plural} "{target.name}": the object has been modified; please apply your changes'
            return _status(409, "Conflict", text)
        if target.plural in WITH_STATUS:
            if target.sub == "status":
                following = {**current, "status": following.get("status", {})}
            elif "status" in current:
                following["status"] = current["status"]
            else:
                following.pop("status", None)
        if wrong := _invalid(target, following):
            return _status(422, "Invalid", wrong)
        following["metadata"] = {
            **following["metadata"],
            **{key: current["metadata"][key] for key in ("uid", "creationTimestamp", "name")},
        }
        if "deletionTimestamp" in current["metadata"]:
            following["metadata"]["deletionTimestamp"] = current["metadata"]["deletionTimestamp"]
        return _good(self._store(target, current, following))

    def _delete(self, target: Target, preconditions: Mapping[str, str] | None) -> Response:
        current = self._kind(target).get((target.namespace, target.name))
        if current is None:
            return _missing(target)
        for key, value in (preconditions or {}).items():
            if current["metadata"].get(key) != value:
                return _status(409, "Conflict", f"the precondition {key} does not hold")
        if current["metadata"].get("finalizers"):
            if "deletionTimestamp" not in current["metadata"]:
                following = copy.deepcopy(current)
                following["metadata"]["deletionTimestamp"] = rfc3339(self.now())
                current = self._store(target, current, following)
            return _good(current)
        self._erase(target, current)
        return _good(current)

    def _evict(self, target: Target) -> Response:
        if f"{target.namespace}/{target.name}" in self.blocked_evictions:
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            return _status(429, "TooManyRequests", text)
        return self._delete(target, None)

    def _store(self, target: Target, before: Object | None, after: Object) -> Object:
        def bare(one: Object) -> Object:
            return {**one, "metadata": {**one["metadata"], "resourceVersion": "", "generation": 0}}

        if before is not None and bare(before) == bare(after):
            return before
        self._version += 1
        after["metadata"]["resourceVersion"] = str(self._version)
        if before is not None and before.get("spec") != after.get("spec"):
            after["metadata"]["generation"] = before["metadata"].get("generation", 1) + 1
        if before is not None and "deletionTimestamp" in after["metadata"] and not after["metadata"].get("finalizers"):
            self._erase(target, after)
            return after
        self._kind(target)[(target.namespace, target.name)] = after
        self._notify(target, "ADDED" if before is None else "MODIFIED", after, before)
        return after

    def _erase(self, target: Target, item: Object) -> None:
        self._version += 1
        before = self._kind(target).pop((target.namespace, target.name))
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self._version)}}
        self._notify(target, "DELETED", item, before)

    def _notify(self, target: Target, event: str, item: Object, before: Object | None) -> None:
        item = copy.deepcopy(item)
        self._history.append((self._version, target.kind, event, item))
        self.on_change(event, target.kind, item)
        for watching in self._watches:
            if watching.target.kind != target.kind or watching.stalled:
                continue
            was = before is not None and watching.accepts(before)
            if watching.accepts(item):
                watching.queue.put_nowait(_line(event if was or event != "MODIFIED" else "ADDED", item))
            elif was:
                watching.queue.put_nowait(_line("DELETED", item))


def _target(path: str) -> Target:
    match = _PATH.fullmatch(path)
    if match is None:
        raise ApiError(404, f"no such path: {path}", "NotFound")
    group = match["group"] or "core"
    return Target(
        f"{group}/{match['plural']}", match["plural"], match["namespace"] or "", match["name"] or "", match["sub"] or ""
    )


def _selects(target: Target, params: Mapping[str, str]) -> Callable[[Object], bool]:
    labels = [part for part in params.get("labelSelector", "").split(",") if part]
    fields = [part.partition("=") for part in params.get("fieldSelector", "").split(",") if part]

    def accepts(item: Object) -> bool:
        metadata = item["metadata"]
        if target.namespace and metadata.get("namespace") != target.namespace:
            return False
        have = metadata.get("labels") or {}
        for part in labels:
            key, equals, value = part.partition("=")
            if (have.get(key) != value) if equals else (key not in have):
                return False
        for key, _, value in fields:
            found: Any = item
            for step in key.split("."):
                found = (found or {}).get(step, "") if isinstance(found, dict) else ""
            if (found or "") != value.lstrip("="):
                return False
        return True

    return accepts


def _invalid(target: Target, item: Object) -> str:
    """Return what a real server's validation refuses of the things that the controller writes."""
    if target.plural == "nodes":
        for taint in item.get("spec", {}).get("taints") or ():
            if len(taint.get("value", "")) > 63 or not _LABEL_VALUE.fullmatch(taint.get("value", "")):
                return f'Node "{target.name}" is invalid: spec.taints.value: Invalid value: "{taint["value"]}"'
            if taint.get("effect") not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
                return f'Node "{target.name}" is invalid: spec.taints.effect'
    for key, value in (item["metadata"].get("labels") or {}).items():
        if len(value) > 63 or not _LABEL_VALUE.fullmatch(value):
            return f"metadata.labels: Invalid value: {key}={value}"
    return ""


def _patched(current: Object, patch: Any, content_type: str) -> Object:
    if content_type == "application/json-patch+json":
        for step in patch:
            _apply(current, step)
        return current
    merged: Object = _merged(current, patch)
    return merged


def _merged(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _apply(document: Any, step: Mapping[str, Any]) -> None:
    *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in step["path"].split("/")[1:]]
    place = document
    for part in parents:
        place = place[int(part)] if isinstance(place, list) else place[part]
    key: Any = last
    if isinstance(place, list):
        key = len(place) if last == "-" else int(last)
    match step["op"]:
        case "test":
            if place[key] != step["value"]:
                raise ValueError(f"the server rejected our request: testing {step['path']} failed")
        case "remove":
            del place[key]
        case "add" if isinstance(place, list):
            place.insert(key, step["value"])
        case "add" | "replace":
            place[key] = step["value"]


def _good(item: Object, status: int = 200) -> Response:
    return Response(status, json.dumps(item).encode())


def _status(code: int, reason: str, message: str) -> Response:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return Response(code, json.dumps(body).encode())


def _missing(target: Target) -> Response:
    return _status(404, "NotFound", f'{target.plural} "{target.name}" not found')


def _line(event: str, item: Object) -> bytes:
    return json.dumps({"type": event, "object": item}).encode()
