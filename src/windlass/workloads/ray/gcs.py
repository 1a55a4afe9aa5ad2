"""This gRPC client calls the GCS of a Ray head, and raylets.

Every call has a timeout and fails with ``GcsError``. Channels reconnect on their own. The first call reads the id of
the cluster, and every later call sends it: a head that was restarted without its storage refuses that id, which raises
``OtherCluster``.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import grpc

from windlass.workloads.protocol import WorkloadError

from . import wire_pb2 as wire

TIMEOUT: Final = 3.0
"""Seconds for one call; most take a millisecond."""
IDLE_TERMINATION: Final = 1
"""Drain reason: refused by a raylet that is not idle."""
PREEMPTION: Final = 2
"""Drain reason: never refused; running work goes on, nothing new starts."""
DRAINED_PREEMPTED: Final = 3
DRAINED_IDLE: Final = 4
"""Death reasons of a drained node, by the reason of its drain."""
EVERY_JOB: Final = b"\xff\xff\xff\xff"
"""The job id of errors that every driver prints."""
V2_NAMESPACE: Final = b"__autoscaler"
V2_KEY: Final = b"__autoscaler_v2_enabled"

_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 3000),  # the time limit of a connection attempt, in spite of its name
    ("grpc.max_reconnect_backoff_ms", 1000),  # the default grows to two minutes
    ("grpc.max_receive_message_length", 512 * 2**20),  # 1,000 nodes with their labels exceed the default of 4 MiB
    ("grpc.enable_http_proxy", 0),  # Ray itself connects to heads without a proxy
)
_REFUSED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.ABORTED})
_UNREACHED: Final = "RpcError"
"""What the GCS answers, with ABORTED, if its own call to a raylet failed."""
_PAUSES: Final = (0.2, 0.5, 1.0)
"""Seconds between attempts to drain nodes of which the GCS could not reach a raylet. It reuses the connection to an
earlier raylet at the same address, and that one may have ended."""
_JOB_ERROR_SERVICES: Final = ("ObservabilityPubSubService", "JobInfoGcsService")
"""The services with ReportJobError: in new versions, in old ones."""


class GcsError(WorkloadError):
    """Means that a call to the head or to a raylet failed."""

    silent: bool = False
    """Whether there was no answer at all, which may pass."""
    unreached: bool = False
    """Whether the head answered that it could not reach a raylet, which may pass."""


class OtherCluster(GcsError):
    """Means that the head has another cluster id than before: it was restarted without its storage."""


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802


class _Reply(Protocol):
    def ParseFromString(self, serialized: bytes) -> int: ...  # noqa: N802


R = TypeVar("R", bound=_Reply)


class Gcs:
    """Calls the head at ``HOST:PORT``, and raylets."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        tls: Mapping[str, str | None] | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        """``tls``: the paths ``ca_file``, ``cert`` and ``key``."""
        self.address, self._token, self._timeout = address, token, timeout
        self._tls = {key: value for key, value in (tls or {}).items() if value}
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._cluster_id: bytes = b""
        self._learning = asyncio.Lock()
        self._job_errors: Sequence[str] = _JOB_ERROR_SERVICES

    @property
    def cluster_id(self) -> str:
        """The id of the cluster in hex; empty before the first answer."""
        return self._cluster_id.hex()

    def forget_cluster(self) -> None:
        """Read the id of the cluster again at the next call."""
        self._cluster_id = b""

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)

    # -- reading ------------------------------------------------------------------------------------------------------

    async def resource_state(self) -> wire.ClusterResourceState:
        path = "ray.rpc.autoscaler.AutoscalerStateService/GetClusterResourceState"
        return (await self._ask(path, wire.Empty(), wire.GetClusterResourceStateReply())).cluster_resource_state

    async def nodes(self) -> Sequence[wire.GcsNodeInfo]:
        """Return all nodes, dead ones too. The request is empty: its fields have other numbers in other versions."""
        path = "ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
        return list((await self._ask(path, wire.Empty(), wire.GetAllNodeInfoReply())).node_info_list)

    async def actors(self) -> Sequence[wire.ActorTableData]:
        path = "ray.rpc.ActorInfoGcsService/GetAllActorInfo"
        return list((await self._ask(path, wire.Empty(), wire.GetAllActorInfoReply())).actor_table_data)

    async def version(self) -> str:
        path = "ray.rpc.NodeInfoGcsService/CheckAlive"
        return (await self._ask(path, wire.Empty(), wire.CheckAliveReply())).ray_version

    async def status(self) -> wire.GetClusterStatusReply:
        """Return what ``ray status`` shows."""
        path = "ray.rpc.autoscaler.AutoscalerStateService/GetClusterStatus"
        return await self._ask(path, wire.Empty(), wire.GetClusterStatusReply())

    async def load(self, raylet: str) -> wire.ResourceLoad:
        """Return what waits at the raylet ``HOST:PORT``; the GCS shows it up to a second later."""
        path = "ray.rpc.NodeManagerService/GetResourceLoad"
        reply = await self.call(raylet, path, wire.Empty(), wire.GetResourceLoadReply())
        return reply.resources.resource_load_by_shape

    async def get(self, namespace: bytes, key: bytes) -> bytes:
        """Return the value of a key; empty: there is no such key."""
        request = wire.InternalKVGetRequest(key=key, namespace=namespace)
        reply = await self._ask("ray.rpc.InternalKVGcsService/InternalKVGet", request, wire.InternalKVGetReply())
        return reply.value

    # -- writing ------------------------------------------------------------------------------------------------------

    async def drain(self, node_id: bytes, reason: int, message: str, deadline_ms: int = 0) -> wire.DrainNodeReply:
        """Drain a node. The GCS keeps ``message`` with the dead node. ``deadline_ms``: since the epoch; 0: none."""
        request = wire.DrainNodeRequest(
            node_id=node_id, reason=reason, reason_message=message, deadline_timestamp_ms=deadline_ms
        )
        return await self._ask("ray.rpc.autoscaler.AutoscalerStateService/DrainNode", request, wire.DrainNodeReply())

    async def unregister(self, node_id: bytes, message: str) -> None:
        """Mark a node as dead whose machine is gone; the GCS alone would notice 14 s later."""
        death = wire.NodeDeathInfo(reason=DRAINED_PREEMPTED, reason_message=message)
        request = wire.UnregisterNodeRequest(node_id=node_id, node_death_info=death)
        await self._ask("ray.rpc.NodeInfoGcsService/UnregisterNode", request, wire.Empty())

    async def report(self, state: wire.AutoscalingState) -> None:
        request = wire.ReportAutoscalingStateRequest(autoscaling_state=state)
        await self._ask("ray.rpc.autoscaler.AutoscalerStateService/ReportAutoscalingState", request, wire.Empty())

    async def print_in_drivers(self, text: str) -> None:
        """Make every driver print a text in its terminal."""
        error = wire.ErrorTableData(job_id=EVERY_JOB, type="windlass", error_message=text, timestamp=time.time())
        request = wire.ReportJobErrorRequest(job_error=error)
        for service in self._job_errors:
            try:
                await self._ask(f"ray.rpc.{service}/ReportJobError", request, wire.Empty())
            except GcsError as failed:
                if _code(failed) is grpc.StatusCode.UNIMPLEMENTED and service != self._job_errors[-1]:
                    continue
                raise
            self._job_errors = (service,)
            return

    async def put(self, namespace: bytes, key: bytes, value: bytes) -> None:
        request = wire.InternalKVPutRequest(key=key, value=value, overwrite=True, namespace=namespace)
        await self._ask("ray.rpc.InternalKVGcsService/InternalKVPut", request, wire.Empty())

    # -- calls --------------------------------------------------------------------------------------------------------

    async def _ask(self, path: str, request: _Message, reply: R) -> R:
        if not self._cluster_id:
            await self._learn_cluster()
        return await self.call(self.address, path, request, reply, guarded=True)

    async def _learn_cluster(self) -> None:
        async with self._learning:
            if not self._cluster_id:
                path = "ray.rpc.NodeInfoGcsService/GetClusterId"
                answer = await self.call(self.address, path, wire.Empty(), wire.GetClusterIdReply())
                self._cluster_id = answer.cluster_id

    async def call(self, target: str, path: str, request: _Message, reply: R, *, guarded: bool = False) -> R:
        """Call the method at ``path`` of ``target``. ``guarded``: send the cluster id, so that another cluster refuses.
        Tests with a cluster in memory override only this method."""
        call = self._channel(target).unary_unary(f"/{path}", request_serializer=None, response_deserializer=None)
        metadata = [("authorization", f"Bearer {self._token}")] if self._token else []
        if guarded:
            metadata.append(("ray_cluster_id", self._cluster_id.hex()))
        try:
            answer = await call(request.SerializeToString(), timeout=self._timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self._explained(target, error) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:  # the channel was closed meanwhile
            raise GcsError(f"{target} did not answer: the connection was closed") from error
        reply.ParseFromString(answer)
        return reply

    def _channel(self, target: str) -> grpc.aio.Channel:
        channel = self._channels.get(target)
        if channel is None:
            if self._tls:
                channel = grpc.aio.secure_channel(target, self._credentials(), options=_OPTIONS)
            else:
                channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
            self._channels[target] = channel
        return channel

    def _credentials(self) -> grpc.ChannelCredentials:
        ca, key, cert = (self._file(name) for name in ("ca_file", "key", "cert"))
        return grpc.ssl_channel_credentials(ca, key, cert)

    def _file(self, name: str) -> bytes | None:
        path = self._tls.get(name)
        try:
            return Path(path).read_bytes() if path else None
        except OSError as error:
            raise GcsError(f"tls.{name} {path} cannot be read: {error.strerror}") from error

    def _explained(self, target: str, error: grpc.aio.AioRpcError) -> GcsError:
        code, details = error.code(), error.details() or ""
        where = f"the Ray head at {target}" if target == self.address else f"the raylet at {target}"
        if code in _REFUSED and ("WrongClusterID" in details or "AuthError" in details):
            return OtherCluster(f"{where} has another cluster id than before: it has been restarted")
        if code is grpc.StatusCode.UNAUTHENTICATED:
            which = "refused the token" if self._token else "wants a token: give token_file, or RAY_AUTH_TOKEN"
            return GcsError(f"{where} {which}")
        if code is grpc.StatusCode.DEADLINE_EXCEEDED:
            return _silent(f"{where} gave no answer within {self._timeout:g} s")
        if code is grpc.StatusCode.UNAVAILABLE:
            return _silent(f"{where} cannot be reached: {_cause(details)}")
        if code is grpc.StatusCode.ABORTED and details == _UNREACHED:
            unreached = GcsError(f"{where} could not reach the raylet of a node")
            unreached.unreached = True
            return unreached
        return GcsError(f"{where} refused: {code.name}: {details}")


def _silent(text: str) -> GcsError:
    error = GcsError(text)
    error.silent = True
    return error


def _cause(details: str) -> str:
    """Return the innermost cause in a message of gRPC, which puts it last: ``…: Connection refused``."""
    return details.partition("\n")[0].rpartition(": ")[2] or "unavailable"


def _code(error: GcsError) -> grpc.StatusCode | None:
    cause = error.__cause__
    return cause.code() if isinstance(cause, grpc.aio.AioRpcError) else None


async def again_if_unreached(call: Callable[[], Awaitable[None]]) -> None:
    """Make a call that drains nodes, again if the GCS could not reach a raylet."""
    for pause in _PAUSES:
        try:
            await call()
            return
        except GcsError as failed:
            if not failed.unreached:
                raise
        await asyncio.sleep(pause)
    await call()


async def refuses_connections(address: str) -> bool:
    """Return whether nothing listens at an address of this machine."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    # Not a stream: a stream whose opening is cancelled may stay open.
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setblocking(False)
        try:
            async with asyncio.timeout(1):
                await asyncio.get_running_loop().sock_connect(probe, (host, int(port)))
        except ConnectionRefusedError:
            return True
        except (OSError, TimeoutError):
            return False
    return False
