"""FakeKubelet serves nodes without machines: bound pods run at once, and end when they are deleted."""

from __future__ import annotations

import threading
import urllib.error
from typing import Any

from .control_plane import TRANSPORT_ERRORS, ControlPlane


class FakeKubelet:
    """Simulates the kubelets of all nodes of a control plane, in a thread."""

    def __init__(self, plane: ControlPlane, pause: float = 0.15) -> None:
        self._plane, self._pause = plane, pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet", daemon=True)

    def __enter__(self) -> FakeKubelet:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(self._pause):
            try:
                for pod in self._plane.call("GET", "/api/v1/pods?fieldSelector=spec.nodeName!=")["items"]:
                    self._play(pod)
            except TRANSPORT_ERRORS:
                continue  # the server is down or overloaded: the next round tries again

    def _play(self, pod: dict[str, Any]) -> None:
        metadata, status = pod["metadata"], pod.get("status") or {}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        try:
            if metadata.get("deletionTimestamp"):
                body = {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}}
                self._plane.call("DELETE", path, body)
            elif status.get("phase") == "Pending":
                kept = [one for one in status.get("conditions") or () if one["type"] == "PodScheduled"]
                ready = {"type": "Ready", "status": "True"}
                patch = {"status": {"phase": "Running", "conditions": [*kept, ready]}}
                self._plane.call("PATCH", f"{path}/status", patch, content_type="application/merge-patch+json")
        except urllib.error.HTTPError as error:
            if error.code not in (404, 409):
                raise
