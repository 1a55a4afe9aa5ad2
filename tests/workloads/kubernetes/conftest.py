"""API servers for the tests: one within the process, and a real one where its binaries are."""

from __future__ import annotations

import asyncio
import time
import urllib.error
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from windlass.kubernetes_api.api import Api, Transport
from windlass.kubernetes_api.connection import HttpTransport
from windlass.testing.kubernetes.control_plane import TRANSPORT_ERRORS, ControlPlane, missing
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.testing.kubernetes.kubelet import FakeKubelet
from windlass.workloads.kubernetes.install.manifests import manifests, text

from .cluster import Cluster

REAL = pytest.param("real", marks=pytest.mark.kubernetes)


@contextmanager
def installed(**options: str) -> Iterator[ControlPlane]:
    """Start a real control plane with Windlass installed, scheduler and controllers included."""
    if why := missing():
        pytest.skip(why)
    with ControlPlane(**options) as plane:  # type: ignore[arg-type]
        plane.kubectl("apply", "--server-side", "-f", "-", given=text(manifests()))
        plane.kubectl("delete", "deployment", "windlass", "-n", "windlass-system")
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield plane


@pytest.fixture(scope="package")
def control_plane() -> Iterator[ControlPlane]:
    """The control plane that all tests of this package share."""
    with installed() as plane:
        yield plane


class Server:
    """An API server, fake or real, through its transport."""

    def __init__(self, make: Callable[[], Transport], fake: FakeApiServer | None, plane: ControlPlane | None) -> None:
        self._make, self.fake, self.plane = make, fake, plane

    def run(self, test: Callable[[Api], Awaitable[Any]]) -> Any:
        """Run an async test with a client of this server."""

        async def main() -> Any:
            api = Api(self._make())
            try:
                async with asyncio.timeout(60):
                    return await test(api)
            finally:
                await api.close()

        return asyncio.run(main())


@pytest.fixture(params=["fake", REAL])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Both kinds of server, one after the other."""
    if request.param == "fake":
        fake = FakeApiServer()
        yield Server(lambda: fake, fake, None)
        return
    plane: ControlPlane = request.getfixturevalue("control_plane")
    yield Server(lambda: HttpTransport(str(plane.kubeconfig)), None, plane)
    clean(plane)


@contextmanager
def operated(plane: ControlPlane, home: Path) -> Iterator[Cluster]:
    """Run a kubelet for all nodes of a control plane; ``run()`` of what is given starts Windlass on it."""
    found = Cluster(plane, home)
    try:
        with FakeKubelet(plane):
            yield found
    finally:
        found.stop()
        clean(plane)


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Cluster]:
    """The shared control plane with a kubelet."""
    with operated(control_plane, tmp_path) as found:
        yield found


LEFTOVERS = (
    "/apis/batch/v1/namespaces/default/jobs",
    "/apis/apps/v1/namespaces/default/daemonsets",
    "/apis/apps/v1/namespaces/default/deployments",
    "/apis/apps/v1/namespaces/default/replicasets",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/api/v1/namespaces/default/pods",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates",
    "/apis/resource.k8s.io/v1/resourceslices",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/windlass.dev/v1alpha1/nodeclaims",
    "/apis/windlass.dev/v1alpha1/nodeprovisioners",
    "/api/v1/nodes",
    "/apis/coordination.k8s.io/v1/namespaces/windlass-system/leases",
    "/api/v1/namespaces/default/events",
)
"""What tests make, owners before what they own. The Lease of a killed controller would make the next one wait."""


def clean(plane: ControlPlane) -> None:
    """Remove what a test has left, whatever state the API server is in just now."""
    deadline = time.monotonic() + 90
    while True:
        try:
            left = [one for path in LEFTOVERS for one in _erase(plane, path)]
            if not left:
                return
        except TRANSPORT_ERRORS as error:
            left = [str(error)]
        if time.monotonic() > deadline:
            raise AssertionError(f"these are left on the control plane: {left[:5]}")
        time.sleep(0.1)


def _erase(plane: ControlPlane, path: str) -> list[str]:
    """Delete all objects of a kind without grace and without their finalizers; what was there."""
    items = plane.call("GET", path)["items"]
    for item in items:
        if item["metadata"].get("finalizers"):
            patch = {"metadata": {"finalizers": None}}
            with suppress(urllib.error.HTTPError):
                plane.call(
                    "PATCH", f"{path}/{item['metadata']['name']}", patch, content_type="application/merge-patch+json"
                )
    if items:
        plane.call("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
    # Events of a deletion may still come in: they disturb no test.
    return [] if path.endswith("/events") else [f"{path}/{one['metadata']['name']}" for one in items]


async def eventually(check: Callable[[], Any], what: str = "", limit: float = 60.0) -> Any:
    """What a check gives as soon as it gives something; it fails when it has not within the limit."""
    deadline = time.monotonic() + limit
    while True:
        found = check()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {limit:g} s: {what or check}")
        await asyncio.sleep(0.02)


def node(name: str, *, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    """A node as a user would write it."""
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels or {}}, **more}


def pod(name: str, *, requests: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod with one container."""
    container = {"name": "main", "image": "none", "resources": {"requests": requests or {}, "limits": {}}}
    if requests:
        container["resources"]["limits"] = {key: value for key, value in requests.items() if "/" in key}  # type: ignore[index]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [container], **spec},
    }
