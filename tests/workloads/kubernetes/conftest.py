"""API servers for the tests: one within the process, and a real one where its binaries are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from windlass.kubernetes_api.api import Api, Transport
from windlass.kubernetes_api.connection import HttpTransport
from windlass.testing.kubernetes.control_plane import ControlPlane, missing
from windlass.testing.kubernetes.fake_server import FakeApiServer
from windlass.workloads.kubernetes.install.manifests import manifests, text

REAL = pytest.param("real", marks=pytest.mark.kubernetes)


@pytest.fixture(scope="session")
def control_plane() -> Iterator[ControlPlane]:
    """A real control plane with Windlass installed, scheduler and controllers included."""
    if why := missing():
        pytest.skip(why)
    with ControlPlane() as plane:
        plane.kubectl("apply", "--server-side", "-f", "-", given=text(manifests()))
        plane.kubectl("delete", "deployment", "windlass", "-n", "windlass-system")
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
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


def clean(plane: ControlPlane) -> None:
    """Remove what a test has left."""
    for path in (
        "/api/v1/nodes",
        "/apis/windlass.dev/v1alpha1/nodeclaims",
        "/apis/windlass.dev/v1alpha1/nodeprovisioners",
    ):
        for item in plane.call("GET", path)["items"]:
            name = item["metadata"]["name"]
            if item["metadata"].get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                plane.call("PATCH", f"{path}/{name}", patch, content_type="application/merge-patch+json")
            plane.kubectl("delete", "--raw", f"{path}/{name}") if not item["metadata"].get(
                "deletionTimestamp"
            ) else None
    plane.kubectl("delete", "pods,jobs,daemonsets,deployments,events", "--all", "-n", "default", "--force")


async def eventually(check: Callable[[], Any], what: str = "", limit: float = 30.0) -> Any:
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
