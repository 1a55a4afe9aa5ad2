"""Shared by tests of machines elsewhere: a small package in an index of its own, and a network behind NAT."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import socketserver
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from windlass.testing.clouds import SshHosts

PACKAGE = "windlasstoy"


def package_index(directory: Path) -> str:
    """The URL of a package index with one small package that no machine has."""
    home = directory / "simple" / PACKAGE
    home.mkdir(parents=True)
    wheel = home / f"{PACKAGE}-1.0-py3-none-any.whl"
    files = {
        f"{PACKAGE}.py": "def triple(n):\n    return 3 * n\n",
        f"{PACKAGE}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{PACKAGE}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{PACKAGE}-1.0.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    files[record] = "\n".join([*lines, f"{record},,"]) + "\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    (home / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return (directory / "simple").as_uri()


class GatedIndex:
    """The same index over HTTP. It answers only once it is opened, so that a test sees machines that install."""

    def __init__(self, directory: Path, address: str) -> None:
        package_index(directory)
        self.opened = opened = threading.Event()

        class Serve(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                opened.wait(300)
                super().do_GET()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((address, 0), partial(Serve, directory=str(directory)))
        self._server.daemon_threads = True

    def __enter__(self) -> GatedIndex:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def image(self) -> dict[str, Any]:
        """What an image needs to install the package from here."""
        host, port = self._server.server_address[:2]
        url = f"http://{host!s}:{port}/simple"
        return {"pip": [PACKAGE], "pip_index": url, "env": {"PIP_TRUSTED_HOST": str(host), "PIP_TIMEOUT": "300"}}


@contextmanager
def behind_nat(hosts: SshHosts) -> Iterator[tuple[list[str], list[dict[str, Any]], Path]]:
    """A network of its own for a program, which reaches the hosts through a router; the hosts have no way back to it.

    Gives the words before a command that runs there, the hosts as the program sees them, and their ``known_hosts``.
    The router is this process: it accepts connections on an address of the program's network and carries them on.
    """
    name, network = f"wlc{os.getpid()}", f"10.214.{os.getpid() % 250}"
    ip("netns", "add", name)
    servers: list[socketserver.ThreadingTCPServer] = []
    known = hosts.directory / "known_hosts_behind_nat"
    try:
        ip("link", "add", f"{name}o", "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("addr", "add", f"{network}.1/24", "dev", f"{name}o")
        ip("link", "set", f"{name}o", "up")
        for words in (("addr", "add", f"{network}.2/24", "dev", "eth0"), ("link", "set", "eth0", "up")):
            ip("-n", name, *words)
        ip("-n", name, "link", "set", "lo", "up")
        specs, lines = [], ""
        for host in hosts:
            ip("-n", host.namespace, "route", "add", "blackhole", f"{network}.0/24")
            servers.append(_carrying(f"{network}.1", (host.address, host.port)))
            port = servers[-1].server_address[1]
            specs.append({**host.spec, "address": f"{network}.1", "port": port})
            lines += f"[{network}.1]:{port} {host.public_key}\n"
        known.write_text(lines)
        yield ["ip", "netns", "exec", name], specs, known
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def _carrying(address: str, target: tuple[str, int]) -> socketserver.ThreadingTCPServer:
    class Carry(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(target, timeout=10) as there:
                there.settimeout(None)
                back = threading.Thread(target=_copy, args=(there, self.request), daemon=True)
                back.start()
                _copy(self.request, there)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    server = Server((address, 0), Carry)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
