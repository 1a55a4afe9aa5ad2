"""This module serves probes and metrics over HTTP: ``/healthz``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from windlass.core.model.lifecycle import State
from windlass.workloads.protocol import DecisionReport

from .mirror import ClusterMirror

Answer = tuple[int, str]
LONGEST_REQUEST: Final = 8192


class HealthServer:
    """Answers probes. Each path has a function that returns status and text."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._server: asyncio.Server | None = None
        self.paths: dict[str, Callable[[], Answer]] = {}

    async def start(self) -> None:
        """Start to listen, once; ``OSError`` if the address is not available."""
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, self._host, self._port)

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1]) if self._server is not None else self._port

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
            words = head[:LONGEST_REQUEST].decode("latin-1").split()
            path = words[1].partition("?")[0] if len(words) > 1 else ""
            status, text = self.paths[path]() if path in self.paths else (404, "not found\n")
            body = text.encode()
            reason = {200: "OK", 404: "Not Found"}.get(status, "Service Unavailable")
            writer.write(
                f"HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, IndexError):
            pass
        finally:
            writer.close()


def metrics(mirror: ClusterMirror, decision: DecisionReport | None, leading: bool, queued: int) -> str:
    """Return the metrics of the cluster in Prometheus' text format."""
    lines: list[str] = []

    def family(name: str, kind: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> None:
        lines.append(f"# HELP {name} {text}")
        lines.append(f"# TYPE {name} {kind}")
        for labels, value in samples:
            inside = ",".join(f'{key}="{value}"' for key, value in labels.items())
            lines.append(f"{name}{{{inside}}} {value:g}" if inside else f"{name} {value:g}")

    family("windlass_leading", "gauge", "Whether this controller leads.", [({}, float(leading))])
    family("windlass_kubernetes_synced", "gauge", "Whether the cluster is known.", [({}, float(mirror.is_synced))])
    family("windlass_kubernetes_pods", "gauge", "Pods in memory.", [({}, len(mirror.pods.store))])
    family("windlass_kubernetes_pods_waiting", "gauge", "Pods that no node can take.", [({}, len(mirror.waiting))])
    family("windlass_kubernetes_writes_queued", "gauge", "Writes that wait or failed.", [({}, queued)])
    family(
        "windlass_kubernetes_lists_total",
        "counter",
        "Lists of a kind that were read.",
        [({"path": one.path}, one.lists) for one in mirror.reflectors],
    )
    family(
        "windlass_kubernetes_watch_restarts_total",
        "counter",
        "Watches that broke.",
        [({"path": one.path}, one.restarts) for one in mirror.reflectors],
    )
    if decision is not None:
        counts: dict[tuple[str, State], int] = {}
        for one in decision.slices.values():
            counts[(one.group, one.state)] = counts.get((one.group, one.state), 0) + 1
        family(
            "windlass_machines",
            "gauge",
            "Machines of a provisioner in a state.",
            [({"provisioner": group, "state": str(state)}, count) for (group, state), count in sorted(counts.items())],
        )
    return "\n".join(lines) + "\n"
