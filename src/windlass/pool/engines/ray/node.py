"""This program makes a host a node of a pool on Ray: it runs Ray's processes and a connection to the pool.

    WINDLASS_RAY_NODE='{"node": ..., ...}' python -m windlass.pool.engines.ray.node

A process of Ray that is stopped (SIGSTOP) for too long is killed: a slot's process starts again, and without its raylet
the node ends.

It ends, with all of Ray's processes on this host, when it is ordered to (SIGTERM, or by the driver), when the
connection breaks, and when Ray ends. If it is killed, a guard process ends Ray's processes.
"""

from __future__ import annotations

import json
import os
import platform
import select
import signal
import socket
import ssl
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from windlass.pool.transport.data_store import DataStore, sweep_after_kill
from windlass.pool.transport.node_data import DataAccess
from windlass.pool.transport.process_session import ProcessSession, program, session_directory, watch_over_this
from windlass.pool.transport.tls import tls_context
from windlass.providers.remote.tunnels import is_remote

from .loopback import is_loopback
from .messages import DATA, NODE, RayNodeOrder, ray_environment, resource_of, watch_over

_PATIENCE: Final = 60.0
_LOOK: Final = 1.0
"""Seconds between two heartbeats, and between two checks whether Ray still runs."""


def ray_command(host: str, *arguments: str) -> list[str]:
    """Return the command of Ray, for the Python of this process. ``host``: the address of Ray's servers."""
    if is_loopback(host):
        return [*program(sys.executable, "windlass.pool.engines.ray.loopback"), *arguments]
    return [sys.executable, "-m", "ray.scripts.scripts", *arguments]


def stay(order: RayNodeOrder, line: ssl.SSLSocket, session: ProcessSession) -> None:
    """Send heartbeats until the node must leave."""
    hello = {"node": order.node, "slots": order.slots, "python": platform.python_version()}
    line.sendall(json.dumps({**hello, "address": line.getsockname()[0]}).encode() + b"\n")
    while not session.ended:
        line.setblocking(False)
        if select.select([line], [], [], _LOOK)[0]:
            with suppress(ssl.SSLWantReadError):  # the error concerns the encryption
                line.recv(1)
                return  # the only message from the pool is to leave; the end of the connection says the same
        line.setblocking(True)
        session.end_stopped(order.unhealthy_timeout)
        line.sendall(b'{"beat": true}\n')
    line.sendall(json.dumps({"why": f"Ray has ended on it: {session.last_output()}"}).encode() + b"\n")


def main() -> int:
    text = os.environ.pop(NODE, None)
    if text is None:
        sys.stderr.write(f"windlass: {NODE} is not set; a node is started by what a pool's engine gives as its join\n")
        return 2
    order = RayNodeOrder.of(text)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    directory = session_directory()
    if is_remote():
        watch_over_this(sweep_after_kill)  # before there is a store: it must not inherit the store's lock
    access = Path(directory, "data.json")
    store = [] if order.object_store is None else [f"--object-store-memory={order.object_store}"]
    with socket.create_connection(order.line, timeout=_PATIENCE) as plain:
        watch_over(plain)
        address = plain.getsockname()[0]
        session = ProcessSession(
            ray_command(
                address,
                *("start", "--block", f"--address={order.head}", f"--node-ip-address={address}", "--num-cpus=0"),
                *("--num-gpus=0", f"--resources={json.dumps({resource_of(order.node): 1})}"),
                *(f"--temp-dir={directory}", "--disable-usage-stats", *store),
            ),
            {**ray_environment(order.token, order.path, address), DATA: str(access)},
            directory,
        )
        values = DataStore(cache=True) if is_remote() and order.data else None
        try:
            if values is not None:
                DataAccess(order.data, order.credentials, values.place).write(access)
            with tls_context(order.credentials, server=False).wrap_socket(plain) as line:
                line.settimeout(_PATIENCE)
                stay(order, line, session)
        except OSError:
            return 1  # the pool is gone
        finally:
            session.end()
            if values is not None:
                values.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
