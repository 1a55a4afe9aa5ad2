"""Calls to a Ray head over slow connections, against a gRPC server that answers like a GCS."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import grpc
import pytest

from windlass.workloads.ray import wire_pb2 as wire
from windlass.workloads.ray.gcs import Gcs, GcsError, again_if_unreached
from windlass.workloads.ray.workload import RayWorkload


async def small_head() -> tuple[grpc.aio.Server, int]:
    """Start a server that knows its cluster id only."""
    reply = bytes(wire.GetClusterIdReply(cluster_id=b"c" * 28).SerializeToString())

    async def answer(_request: bytes, _context: object) -> bytes:
        return reply

    server = grpc.aio.server()
    methods = {"GetClusterId": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("ray.rpc.NodeInfoGcsService", methods),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def test_a_head_that_takes_a_second_to_accept_a_connection_is_reached() -> None:
    """As on a busy machine, or with TLS over a long line."""

    async def story() -> str:
        server, port = await small_head()
        connections = set[asyncio.Task[None] | None]()

        async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.add(asyncio.current_task())
            await asyncio.sleep(1)
            there, back = await asyncio.open_connection("127.0.0.1", port)
            await asyncio.gather(pump(reader, back), pump(there, writer))

        proxy = await asyncio.start_server(slowly, "127.0.0.1", 0)
        gcs = Gcs(f"127.0.0.1:{proxy.sockets[0].getsockname()[1]}", timeout=60)
        try:
            path = "ray.rpc.NodeInfoGcsService/GetClusterId"
            return (await gcs.call(gcs.address, path, wire.Empty(), wire.GetClusterIdReply())).cluster_id.decode()
        finally:
            await gcs.close()
            proxy.close()
            await server.stop(None)
            await asyncio.gather(*(one for one in connections if one is not None))

    assert asyncio.run(story()) == "c" * 28


@pytest.mark.parametrize(("failures", "calls"), [(2, 3), (9, 4)])
def test_a_node_is_drained_again_if_the_head_could_not_reach_its_raylet(failures: int, calls: int) -> None:
    """As when a raylet has the address of one that has ended."""
    asked: list[int] = []

    async def drain(_request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        asked.append(len(asked))
        if len(asked) <= failures:
            await context.abort(grpc.StatusCode.ABORTED, "RpcError")
        return bytes(wire.DrainNodeReply(is_accepted=True).SerializeToString())

    async def story() -> bool:
        server, port = await small_head()
        methods = {"DrainNode": grpc.unary_unary_rpc_method_handler(drain)}
        service = "ray.rpc.autoscaler.AutoscalerStateService"
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, methods),))
        gcs = Gcs(f"127.0.0.1:{port}", timeout=60)
        accepted: list[bool] = []

        async def drained() -> None:
            accepted.append((await gcs.drain(b"n" * 28, 1, "because")).is_accepted)

        try:
            await again_if_unreached(drained)
            return accepted == [True]
        finally:
            await gcs.close()
            await server.stop(None)

    if failures < calls:
        assert asyncio.run(story())
    else:
        with pytest.raises(GcsError, match=r"could not reach the raylet of a node$"):
            asyncio.run(story())
    assert len(asked) == calls


def test_a_head_that_does_not_run_is_reported_with_the_cause_alone() -> None:
    async def story() -> None:
        gcs = Gcs("127.0.0.1:9")
        try:
            await gcs.version()
        finally:
            await gcs.close()

    with pytest.raises(GcsError, match=r"^the Ray head at 127\.0\.0\.1:9 cannot be reached: Connection refused$"):
        asyncio.run(story())


def test_the_time_for_which_a_head_may_be_silent_counts_the_call_that_gets_no_answer() -> None:
    time = 1000.0

    class Silent(Gcs):
        async def version(self) -> str:
            nonlocal time
            time += 3
            error = GcsError("no answer")
            error.silent = True
            raise error

    async def brief() -> bool:
        with pytest.raises(GcsError) as failed:
            await workload.observe()
        return failed.value.brief

    async def story() -> list[bool]:
        return [await brief() for _ in range(6)]

    workload = RayWorkload("head:1", gcs=Silent("head:1"), silent=15, now=lambda: time)
    assert asyncio.run(story()) == [True] * 4 + [False] * 2
