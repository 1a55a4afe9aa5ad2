"""This gRPC client talks to a Ray head: its GCS, and the raylets that the GCS lists.

Every call has a time limit and fails with ``GcsError``. The channel reconnects on its own. The first answer has the
id of the cluster, which goes with every later call: a head that was restarted without its storage refuses it, and that
is ``OtherCluster``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
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
"""Drain reason: never refused; what runs goes on, nothing new starts."""
DRAINED_PREEMPTED: Final = 3
DRAINED_IDLE: Final = 4
"""Reasons of a dead node: its drain was ours."""
EVERY_JOB: Final = b"\xff\xff\xff\xff"
"""The job id with which an error is printed by every driver."""
V2_NAMESPACE: Final = b"__autoscaler"
V2_KEY: Final = b"__autoscaler_v2_enabled"

_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),  # the default grows to two minutes
    ("grpc.max_receive_message_length", 512 * 2**20),  # 1,000 nodes with their labels exceed the default of 4 MiB
    ("grpc.enable_http_proxy", 0),  # heads are reached directly, as Ray itself does
)
_REFUSED: Final = frozenset({grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.ABORTED})
_JOB_ERROR_SERVICES: Final = ("ObservabilityPubSubService", "JobInfoGcsService")
"""Where ReportJobError is: in new versions, in old ones."""


class GcsError(WorkloadError):
    """The head could not be asked."""

    silent: bool = False
    """Whether it gave no answer at all; it may be back in a moment."""


class OtherCluster(GcsError):
    """The head answers for another cluster than before: it was restarted without its storage."""


class _Message(Protocol):
    def SerializeToString(self) -> bytes: ...  # noqa: N802


class _Reply(Protocol):
    def ParseFromString(self, serialized: bytes) -> int: ...  # noqa: N802


R = TypeVar("R", bound=_Reply)


class Gcs:
    """One head at ``HOST:PORT``."""

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
        """In hex; empty before the first answer."""
        return self._cluster_id.hex()

    def forget_cluster(self) -> None:
        """Take the head's next answer as the cluster from now on."""
        self._cluster_id = b""

    async def close(self) -> None:
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close(None)

    # -- what the head shows ------------------------------------------------------------------------------------------

    async def resource_state(self) -> wire.ClusterResourceState:
        path = "ray.rpc.autoscaler.AutoscalerStateService/GetClusterResourceState"
        return (await self._ask(path, wire.Empty(), wire.GetClusterResourceStateReply())).cluster_resource_state

    async def nodes(self) -> Sequence[wire.GcsNodeInfo]:
        """All of them, dead ones too. An empty request: its fields have other numbers in other versions."""
        path = "ray.rpc.NodeInfoGcsService/GetAllNodeInfo"
        return list((await self._ask(path, wire.Empty(), wire.GetAllNodeInfoReply())).node_info_list)

    async def actors(self) -> Sequence[wire.ActorTableData]:
        path = "ray.rpc.ActorInfoGcsService/GetAllActorInfo"
        return list((await self._ask(path, wire.Empty(), wire.GetAllActorInfoReply())).actor_table_data)

    async def version(self) -> str:
        path = "ray.rpc.NodeInfoGcsService/CheckAlive"
        return (await self._ask(path, wire.Empty(), wire.CheckAliveReply())).ray_version

    async def status(self) -> wire.GetClusterStatusReply:
        """What the GCS holds for ``ray status``."""
        path = "ray.rpc.autoscaler.AutoscalerStateService/GetClusterStatus"
        return await self._ask(path, wire.Empty(), wire.GetClusterStatusReply())

    async def load(self, raylet: str) -> wire.ResourceLoad:
        """What waits at one raylet, ``HOST:PORT``: a second fresher than what the GCS shows."""
        path = "ray.rpc.NodeManagerService/GetResourceLoad"
        reply = await self.call(raylet, path, wire.Empty(), wire.GetResourceLoadReply())
        return reply.resources.resource_load_by_shape

    async def get(self, namespace: bytes, key: bytes) -> bytes:
        """Empty: there is no such key."""
        request = wire.InternalKVGetRequest(key=key, namespace=namespace)
        reply = await self._ask("ray.rpc.InternalKVGcsService/InternalKVGet", request, wire.InternalKVGetReply())
        return reply.value

    # -- what the head is asked to do ---------------------------------------------------------------------------------

    async def drain(self, node_id: bytes, reason: int, message: str, deadline_ms: int = 0) -> wire.DrainNodeReply:
        """``message`` comes back in the death of the node. ``deadline_ms``: of the clock; 0: none."""
        request = wire.DrainNodeRequest(
            node_id=node_id, reason=reason, reason_message=message, deadline_timestamp_ms=deadline_ms
        )
        return await self._ask("ray.rpc.autoscaler.AutoscalerStateService/DrainNode", request, wire.DrainNodeReply())

    async def unregister(self, node_id: bytes, message: str) -> None:
        """Declare a node dead whose machine is gone; the GCS would find out 14 s later."""
        death = wire.NodeDeathInfo(reason=DRAINED_PREEMPTED, reason_message=message)
        request = wire.UnregisterNodeRequest(node_id=node_id, node_death_info=death)
        await self._ask("ray.rpc.NodeInfoGcsService/UnregisterNode", request, wire.Empty())

    async def report(self, state: wire.AutoscalingState) -> None:
        request = wire.ReportAutoscalingStateRequest(autoscaling_state=state)
        await self._ask("ray.rpc.autoscaler.AutoscalerStateService/ReportAutoscalingState", request, wire.Empty())

    async def tell_drivers(self, text: str) -> None:
        """Every driver prints the text in its terminal."""
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
        """Call the method at ``path`` of ``target``. ``guarded``: only if it is still the same cluster. A cluster in
        memory overrides this one method."""
        call = self._channel(target).unary_unary(f"/{path}", request_serializer=None, response_deserializer=None)
        metadata = [("authorization", f"Bearer {self._token}")] if self._token else []
        if guarded:
            metadata.append(("ray_cluster_id", self._cluster_id.hex()))
        try:
            answer = await call(request.SerializeToString(), timeout=self._timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise self._explained(target, error) from error
        except (grpc.aio.UsageError, asyncio.InvalidStateError) as error:  # the channel was closed meanwhile
            raise GcsError(f"{target} cannot be asked: the connection was closed") from error
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
            return _silent(f"{where} cannot be reached: {details.splitlines()[0] if details else 'unavailable'}")
        return GcsError(f"{where} refused: {code.name}: {details}")


def _silent(text: str) -> GcsError:
    error = GcsError(text)
    error.silent = True
    return error


def _code(error: GcsError) -> grpc.StatusCode | None:
    cause = error.__cause__
    return cause.code() if isinstance(cause, grpc.aio.AioRpcError) else None
