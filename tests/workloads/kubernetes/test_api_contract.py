"""What the controller relies on of an API server: the same on the fake one and on a real one."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import ssl
import threading
from asyncio.selector_events import _SelectorTransport  # type: ignore[attr-defined]
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from windlass.kubernetes_api import reflector
from windlass.kubernetes_api.api import Api, ApiError, patched
from windlass.kubernetes_api.connection import HttpTransport
from windlass.kubernetes_api.objects import KubeNode
from windlass.kubernetes_api.reflector import ObjectChange, Reflector
from windlass.pool.transport.tls import make_credentials

from .conftest import Server, eventually, node

NODES = "/api/v1/nodes"
CLAIMS = "/apis/windlass.dev/v1alpha1/nodeclaims"


def refused(error: pytest.ExceptionInfo[ApiError]) -> tuple[int, str]:
    return error.value.status, error.value.reason


def claim(name: str, **metadata: object) -> dict:
    return {
        "apiVersion": "windlass.dev/v1alpha1",
        "kind": "NodeClaim",
        "metadata": {"name": name, **metadata},
        "spec": {"provisioner": "a100"},
    }


def test_an_object_is_created_once(server: Server):
    async def test(api: Api) -> None:
        await api.create(CLAIMS, claim("one"))
        with pytest.raises(ApiError) as error:
            await api.create(CLAIMS, claim("one"))
        assert refused(error) == (409, "AlreadyExists")

    server.run(test)


def test_a_missing_object_is_404(server: Server):
    async def test(api: Api) -> None:
        with pytest.raises(ApiError) as error:
            await api.get(f"{NODES}/none", KubeNode)
        assert error.value.is_missing

    server.run(test)


def test_a_list_is_read_in_pages_and_completely(server: Server):
    async def test(api: Api) -> None:
        for number in range(7):
            await api.create(NODES, node(f"n{number}"))
        items, version = await api.list_pages(NODES, KubeNode, page=3)
        assert sorted(one.metadata.name for one in items) == [f"n{number}" for number in range(7)]
        assert int(version) > 0

    server.run(test)


def test_a_stale_write_is_refused_and_a_fresh_one_kept(server: Server):
    async def test(api: Api) -> None:
        first = await api.create(NODES, node("n"))
        stale = first["metadata"]["resourceVersion"]
        await api.patch(f"{NODES}/n", {"metadata": {"labels": {"a": "1"}}})
        with pytest.raises(ApiError) as error:
            await api.patch(f"{NODES}/n", {"metadata": {"resourceVersion": stale, "labels": {"b": "1"}}})
        assert refused(error) == (409, "Conflict")
        after = await patched(api, f"{NODES}/n", KubeNode, lambda _: {"metadata": {"labels": {"b": "2"}}})
        assert after is not None
        assert (after.metadata.labels or {}).items() >= {"a": "1", "b": "2"}.items()

    server.run(test)


def test_taints_are_one_list_and_their_values_are_label_values(server: Server):
    async def test(api: Api) -> None:
        await api.create(NODES, node("n", spec={"taints": [{"key": "theirs", "effect": "NoSchedule"}]}))
        taint = {"key": "windlass.dev/deleting", "value": "2026-01-01T00:00:00Z", "effect": "NoSchedule"}
        with pytest.raises(ApiError) as error:
            await api.patch(f"{NODES}/n", {"spec": {"taints": [taint]}})
        assert error.value.status == 422
        await api.patch(f"{NODES}/n", {"spec": {"taints": [{**taint, "value": "1790000000"}]}})
        found = await api.get(f"{NODES}/n", KubeNode)
        keys = [one.key for one in found.spec.taints or ()]
        assert "theirs" not in keys
        assert "windlass.dev/deleting" in keys

    server.run(test)


def test_a_finalizer_holds_a_deleted_object_until_it_is_taken_off(server: Server):
    async def test(api: Api) -> None:
        await api.create(CLAIMS, claim("held", finalizers=["windlass.dev/termination"]))
        await api.delete(f"{CLAIMS}/held")
        held = await api.get_plain(f"{CLAIMS}/held")
        assert held["metadata"]["deletionTimestamp"]
        await api.patch(f"{CLAIMS}/held", {"metadata": {"finalizers": None}})
        with pytest.raises(ApiError) as error:
            await api.get_plain(f"{CLAIMS}/held")
        assert error.value.is_missing

    server.run(test)


def test_a_delete_with_a_stale_version_is_refused(server: Server):
    async def test(api: Api) -> None:
        first = await api.create(NODES, node("n"))
        await api.patch(f"{NODES}/n", {"metadata": {"labels": {"a": "1"}}})
        with pytest.raises(ApiError) as error:
            await api.delete(f"{NODES}/n", resource_version=first["metadata"]["resourceVersion"])
        assert error.value.is_conflict
        await api.delete(f"{NODES}/n")
        await api.delete(f"{NODES}/n")

    server.run(test)


def test_status_is_written_through_its_own_path_only(server: Server):
    async def test(api: Api) -> None:
        await api.create(CLAIMS, claim("one"))
        await api.patch(f"{CLAIMS}/one", {"status": {"nodeName": "wrong"}})
        assert "nodeName" not in ((await api.get_plain(f"{CLAIMS}/one")).get("status") or {})
        await api.patch(f"{CLAIMS}/one/status", {"status": {"nodeName": "right"}})
        assert (await api.get_plain(f"{CLAIMS}/one"))["status"]["nodeName"] == "right"

    server.run(test)


def test_a_list_is_selected_by_label_and_by_node(server: Server):
    async def test(api: Api) -> None:
        await api.create(NODES, node("a", labels={"windlass.dev/provisioner": "p"}))
        await api.create(NODES, node("b"))
        found, _ = await api.list_pages(NODES, KubeNode, {"labelSelector": "windlass.dev/provisioner"})
        assert [one.metadata.name for one in found] == ["a"]
        found, _ = await api.list_pages(NODES, KubeNode, {"fieldSelector": "metadata.name=b"})
        assert [one.metadata.name for one in found] == ["b"]

    server.run(test)


class Mirror:
    """A reflector of nodes, running."""

    def __init__(self, api: Api, **more: object) -> None:
        self.changes: list[ObjectChange[str]] = []
        self.reflector: Reflector[KubeNode, str] = Reflector(
            api,
            NODES,
            KubeNode,
            lambda one: (one.metadata.labels or {}).get("v", "-"),
            on_change=self.changes.append,
            **more,  # type: ignore[arg-type]
        )

    async def __aenter__(self) -> Mirror:
        self._task = asyncio.create_task(self.reflector.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    def shows(self, **wanted: str) -> Callable[[], bool]:
        return lambda: self.reflector.synced and self.reflector.store == wanted


def test_a_reflector_mirrors_what_is_created_changed_and_deleted(server: Server):
    async def test(api: Api) -> None:
        await api.create(NODES, node("a", labels={"v": "1"}))
        async with Mirror(api) as mirror:
            await eventually(mirror.shows(a="1"))
            await api.create(NODES, node("b", labels={"v": "1"}))
            await api.patch(f"{NODES}/a", {"metadata": {"labels": {"v": "2"}}})
            await eventually(mirror.shows(a="2", b="1"))
            await api.delete(f"{NODES}/a")
            await eventually(mirror.shows(b="1"))
            assert mirror.reflector.lists == 1

    server.run(test)


def test_the_answer_to_a_write_that_comes_after_the_deletion_brings_nothing_back(server: Server):
    async def test(api: Api) -> None:
        await api.create(NODES, node("a", labels={"v": "1"}))
        async with Mirror(api) as mirror:
            await eventually(mirror.shows(a="1"))
            body = await api.patch(f"{NODES}/a", {"metadata": {"labels": {"v": "2"}}})
            mirror.reflector.learn(api.decode(body, KubeNode))
            assert mirror.reflector.store == {"a": "2"}
            await api.delete(f"{NODES}/a")
            await eventually(mirror.shows())
            mirror.reflector.learn(api.decode(body, KubeNode))
            assert mirror.reflector.store == {}
            made = json.dumps(await api.create(NODES, node("a", labels={"v": "3"}))).encode()
            mirror.reflector.learn(api.decode(made, KubeNode))
            assert mirror.reflector.store == {"a": "3"}

    server.run(test)


def test_a_reflector_is_not_synced_before_its_first_list():
    from windlass.testing.kubernetes.fake_server import FakeApiServer

    fake = FakeApiServer()
    fake.down = True

    async def test(api: Api) -> None:
        async with Mirror(api) as mirror:
            await eventually(lambda: mirror.reflector.restarts > 1)
            assert not mirror.reflector.synced
            assert "cannot be reached" in mirror.reflector.error
            fake.down = False
            await eventually(mirror.shows())

    Server(lambda: fake, fake, None).run(test)


def test_a_broken_watch_is_unknown_until_it_is_restored_and_misses_nothing():
    from windlass.testing.kubernetes.fake_server import FakeApiServer

    fake = FakeApiServer()

    async def test(api: Api) -> None:
        async with Mirror(api) as mirror:
            await eventually(mirror.shows())
            fake.down = True
            fake.break_watches()
            await eventually(lambda: not mirror.reflector.synced)
            fake.put(NODES, node("late", labels={"v": "1"}))
            fake.down = False
            await eventually(mirror.shows(late="1"))
            assert mirror.reflector.lists == 1

    Server(lambda: fake, fake, None).run(test)


def test_a_place_that_is_too_old_is_listed_again_and_only_differences_are_reported():
    from windlass.testing.kubernetes.fake_server import FakeApiServer

    fake = FakeApiServer()

    async def test(api: Api) -> None:
        fake.put(NODES, node("kept", labels={"v": "1"}))
        fake.put(NODES, node("gone", labels={"v": "1"}))
        async with Mirror(api) as mirror:
            await eventually(mirror.shows(kept="1", gone="1"))
            mirror.changes.clear()
            fake.down = True
            fake.break_watches()
            await eventually(lambda: not mirror.reflector.synced)
            fake.remove(f"{NODES}/gone")
            fake.put(NODES, node("new", labels={"v": "1"}))
            fake.compact()
            fake.down = False
            await eventually(mirror.shows(kept="1", new="1"))
            assert sorted((one.key, one.after) for one in mirror.changes) == [("gone", None), ("new", "1")]
            assert mirror.reflector.lists == 2

    Server(lambda: fake, fake, None).run(test)


def test_a_silent_watch_is_given_up_and_taken_up_again():
    from windlass.testing.kubernetes.fake_server import FakeApiServer

    fake = FakeApiServer()

    async def test(api: Api) -> None:
        async with Mirror(api, stall=0.1) as mirror:
            await eventually(mirror.shows())
            fake.stall_watches()
            fake.put(NODES, node("n", labels={"v": "1"}))
            await eventually(mirror.shows(n="1"))

    Server(lambda: fake, fake, None).run(test)


def test_a_kind_of_which_nothing_changes_stays_known_although_its_watches_are_silent(monkeypatch: pytest.MonkeyPatch):
    """A server sends no bookmarks for a kind of which nothing has changed since the server started."""
    from windlass.testing.kubernetes.fake_server import FakeApiServer

    opened = 0
    accepts = asyncio.Event()

    class Quiet(FakeApiServer):
        async def stream(self, path: str, params: Mapping[str, str], stall: float) -> AsyncIterator[bytes]:
            nonlocal opened
            opened += 1
            await accepts.wait()
            async for line in super().stream(path, params, stall):
                yield line

    fake, known = Quiet(), list[bool]()

    async def test(api: Api) -> None:
        accepts.set()
        async with Mirror(api, stall=0.02, on_synced=lambda: known.append(True)) as mirror:
            await eventually(lambda: opened > 4)
            assert mirror.reflector.synced
            assert known == [True]
            # A server that does not even accept a new watch is unknown.
            monkeypatch.setattr(reflector, "OPENING", 0.05)
            accepts.clear()
            await eventually(lambda: not mirror.reflector.synced)
            assert "was not accepted" in mirror.reflector.error
            accepts.set()
            await eventually(mirror.shows())

    Server(lambda: fake, fake, None).run(test)


@pytest.mark.kubernetes
def test_a_reflector_survives_that_the_api_server_is_killed(control_plane):
    from windlass.kubernetes_api.connection import HttpTransport

    async def test(api: Api) -> None:
        async with Mirror(api) as mirror:
            await eventually(lambda: mirror.reflector.synced)
            control_plane.kill("kube-apiserver")
            await eventually(lambda: not mirror.reflector.synced)
            await asyncio.to_thread(control_plane.restart, "kube-apiserver")
            await api.create(NODES, node("after", labels={"v": "1"}))
            await eventually(lambda: mirror.reflector.synced and mirror.reflector.store.get("after") == "1")
            await api.delete(f"{NODES}/after")
            assert mirror.reflector.restarts < 100

    Server(lambda: HttpTransport(str(control_plane.kubeconfig)), None, control_plane).run(test)


def test_a_watch_that_is_given_up_leaves_no_open_socket(tmp_path: Path):
    """The server sends one line and then reads nothing, so a graceful end of TLS would wait for it."""
    (credentials,) = make_credentials("server")
    file = tmp_path / "server.pem"
    file.write_text(credentials.certificate + credentials.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    done = threading.Event()

    def serve(listening: socket.socket) -> None:
        accepted, _ = listening.accept()
        with context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n")
            done.wait(30)

    async def main(port: int) -> list[asyncio.BaseTransport]:
        cluster = {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}
        kubeconfig = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "c",
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
        transport = HttpTransport(str(tmp_path / "kubeconfig"))
        lines = transport.stream("/api/v1/pods", {}, 10.0)
        assert await anext(lines) == b""
        assert await anext(lines) == b"{}"
        open_ones = [one for one in gc.get_objects() if isinstance(one, _SelectorTransport) and not one.is_closing()]
        await lines.aclose()  # type: ignore[attr-defined]
        await transport.close()
        return open_ones

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=[listening], daemon=True)
        thread.start()
        opened = asyncio.run(main(listening.getsockname()[1]))
        done.set()
        thread.join(30)
    assert opened
    assert all(one.is_closing() for one in opened)
