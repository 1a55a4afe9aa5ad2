"""This module is the network transport: the official client's configuration, authentication and TLS, raw responses."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Final

from windlass._extras import install_command
from windlass._version import __version__

from .api import ApiError, Response, WatchSilent, refusal

LONGEST_LINE: Final = 2**24
"""The most bytes of a watch line: etcd stores 1.5 MB per object at most, and its JSON may be longer."""
SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
RENEWAL: Final = 10.0
"""The least seconds between two readings of the credentials: a program that prints a token may take seconds itself."""
UNAUTHORIZED: Final = 401


class HttpTransport:
    """Talks to one API server over HTTPS. The connection is made by the first call."""

    def __init__(self, kubeconfig: str | None = None, context: str | None = None, *, section: str = "workload") -> None:
        """``kubeconfig``: None for the pod's own account inside a cluster, else for ``$KUBECONFIG`` or the usual
        place. ``section``: where both are in the configuration, for messages."""
        self._kubeconfig, self._context, self._section = kubeconfig, context, section
        self._configuration: Any = None
        self._session: Any = None
        self._opening = asyncio.Lock()
        self._loaded_at = 0.0

    async def request(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None, content_type: str, timeout: float
    ) -> Response:
        answer, used = await self._sent(method, path, params, body, content_type, timeout)
        if answer.status == UNAUTHORIZED and await self._renew(used):
            answer, _ = await self._sent(method, path, params, body, content_type, timeout)
        return answer

    async def _sent(
        self, method: str, path: str, params: Mapping[str, str], body: bytes | None, content_type: str, timeout: float
    ) -> tuple[Response, Any]:
        """Return the answer, and the configuration with which it was requested."""
        import aiohttp

        session, headers = await self._opened()
        used = self._configuration
        if body is not None:
            headers["Content-Type"] = content_type
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with session.request(
                method, self._url(path), params=dict(params), data=body, headers=headers, timeout=limit
            ) as answer:
                return Response(answer.status, await answer.read(), answer.headers), used
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def stream(self, path: str, params: Mapping[str, str], stall: float) -> AsyncIterator[bytes]:
        import aiohttp

        session, headers = await self._opened()
        used = self._configuration
        limit = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=stall)
        try:
            async with session.get(self._url(path), params=dict(params), headers=headers, timeout=limit) as answer:
                if answer.status == UNAUTHORIZED:
                    await self._renew(used)  # for the next attempt of the caller
                if answer.status >= 400:
                    raise refusal(Response(answer.status, await answer.read(), answer.headers))
                yield b""
                try:
                    async for line in _lines(answer.content, path):
                        yield line
                except TimeoutError:
                    raise WatchSilent(path, stall) from None
                finally:
                    _abort(answer)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise self._unreachable(error) from error

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            await asyncio.sleep(0)  # aborted connections close their sockets in the next iteration of the loop

    def _url(self, path: str) -> str:
        return f"{self._configuration.host}{path}"

    def _unreachable(self, error: BaseException) -> ApiError:
        why = str(error) or type(error).__name__
        return ApiError(0, f"the API server at {self._configuration.host} cannot be reached: {why}")

    async def _opened(self) -> tuple[Any, dict[str, str]]:
        async with self._opening:
            if self._session is None:
                await self._open()
        headers = {"Accept": "application/json", "User-Agent": f"windlass/{__version__}"}
        token = await self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
        return self._session, headers

    async def _open(self) -> None:
        from_before, before = self._session, self._configuration
        self._configuration = await self._configured()
        self._loaded_at = time.monotonic()
        if from_before is not None and _same_connection(before, self._configuration):
            return
        from kubernetes.aio.client.rest import RESTClientObject

        self._session = RESTClientObject(self._configuration)._create_pool_manager()
        if from_before is not None:
            await from_before.close()

    async def _renew(self, refused: Any) -> bool:
        """Read the credentials again after the server has refused them, and return whether there may be others. A token
        of a kubeconfig runs out, after 15 minutes in some clouds: its program is run again, its file is read again."""
        async with self._opening:
            if self._configuration is refused:
                if time.monotonic() - self._loaded_at < RENEWAL:
                    return False
                await self._open()
            return True

    async def _configured(self) -> Any:
        try:
            from kubernetes.aio import client
            from kubernetes.aio import config as loading
        except ImportError as error:
            raise ApiError(
                0,
                f"{self._section}.type needs {error.name}, which is not installed: {install_command('kubernetes')}",
            ) from None
        config: Any = loading
        configuration = client.Configuration()
        configuration.connection_pool_maxsize = 100
        try:
            if self._kubeconfig is None and self._context is None and os.environ.get(SERVICE_HOST):
                config.load_incluster_config(client_configuration=configuration)
            else:
                where = self._kubeconfig
                if where is not None and not Path(where).is_file():
                    raise ApiError(0, f"{self._section}.kubeconfig: {where} is not a file")
                usual = os.environ.get("KUBECONFIG") or "~/.kube/config"
                if where is None and not any(Path(one).expanduser().is_file() for one in usual.split(os.pathsep)):
                    remedy = f"name one with {self._section}.kubeconfig or $KUBECONFIG, or run inside the cluster"
                    raise ApiError(0, f"there is no kubeconfig at {usual}: {remedy}")
                await config.load_kube_config(where, context=self._context, client_configuration=configuration)
        except config.ConfigException as error:
            place = self._kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
            raise ApiError(0, f"the cluster's configuration {place} cannot be used: {error}") from None
        # The official client would retry thousands of times a second on a dead server. The reflectors retry instead.
        configuration.retries = None
        return configuration


def _same_connection(one: Any, other: Any) -> bool:
    """Whether two configurations differ in their token at most."""
    keys = ("host", "ssl_ca_cert", "cert_file", "key_file", "verify_ssl", "tls_server_name", "proxy")
    return all(getattr(one, key, None) == getattr(other, key, None) for key in keys)


async def _lines(content: Any, path: str) -> AsyncIterator[bytes]:
    """Yield the lines of a watch."""
    pending = b""
    async for chunk in content.iter_any():
        pending += chunk
        if b"\n" in chunk:
            *lines, pending = pending.split(b"\n")
            for line in lines:
                if line:
                    yield line
        elif len(pending) > LONGEST_LINE:
            raise ApiError(0, f"the watch of {path} sent a line of more than {LONGEST_LINE} bytes")


def _abort(answer: Any) -> None:
    """Close the connection of a watch at once. A graceful end of TLS waits for the server, for longer than the event
    loop may run, and would leave the socket open."""
    connection = answer.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
