"""The supervisor starts the program of a machine, forwards its streams, and ends all of its processes.

The order comes on standard input, because it may hold private keys. The program runs in a session of its own, and its
orphans become children of the supervisor. The supervisor ends all of them on SIGTERM, when the program has ended, or
when no controller has connected for the duration of the lease, if there is one. So after the lease a controller knows
that the program has ended.

It runs on the machine as a part of the agent, with Python 3.8 or later and the standard library only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from typing import Any

from windlass.providers.remote.machine_store import (
    MARK,
    Store,
    descendants,
    identity,
    prctl,
    secrets_of,
    shorten,
    tail,
    write_json,
)
from windlass.providers.remote.mux import Mux

TUNNELS = "WINDLASS_TUNNELS"
"""A variable of a program: JSON with the local address for each address in the controller's network."""
PYTHON = "{python}"
"""A placeholder in a command for the interpreter of the image."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """Runs one program and forwards streams between it and the controller."""

    def __init__(self, store: Store, order: dict[str, Any]) -> None:
        self._store = store
        self._order = order
        self._mux = Mux(1, self._connect, session="none")
        self._program: subprocess.Popen[bytes] | None = None
        self._ending = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ending.set)
        self._mux.last_heard = loop.time()
        tunnels = {}
        for target in self._order["reach"]:
            server = await asyncio.start_server(self._accepting(target), "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            tunnels[target] = f"127.0.0.1:{port}"
        os.umask(0o077)
        await asyncio.start_unix_server(self._attached, str(self._store.run / "mux.sock"))
        me = {"pid": os.getpid(), "start": identity(os.getpid()), "tunnels": tunnels}
        write_json(self._store.run / "supervisor.json", me)
        self._start(tunnels)
        sys.stdout.write("started\n")
        sys.stdout.close()
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        alone = False
        try:
            alone = await self._watch()
        finally:
            code = await self._end()
            if alone:
                self._release()
            hidden = secrets_of(self._order["environment"])
            exited = {"code": code, "tail": tail(self._store.run / "program.log", hidden)}
            with contextlib.suppress(OSError):
                write_json(self._store.run / "supervisor.json", {**me, "exited": exited})

    def _accepting(self, target: str) -> Any:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._mux.open(target, reader, writer)

        return accept

    async def _attached(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._mux.attach(reader, writer)

    async def _connect(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = target.rpartition(":")
        return await asyncio.open_connection(host, int(port))

    def _start(self, tunnels: dict[str, str]) -> None:
        order = self._order
        environment = {
            **os.environ,
            **order["environment"],
            MARK: str(self._store.run),
            TUNNELS: json.dumps(tunnels),
        }
        command = order["command"]
        if order["image"]:
            image = self._store.root / "images" / order["image"]
            command = [str(image / "python") if word == PYTHON else word for word in command]
            environment["PYTHONPATH"] = str(image / "site")
            programs = (image / "path").read_text(encoding="utf-8")
            environment["PATH"] = f"{programs}:{environment.get('PATH', os.defpath)}"
        log = os.open(str(self._store.run / "program.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._program = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd=str(self._store.run),
            preexec_fn=_in_new_session,
        )
        os.close(log)

    def _release(self) -> None:
        """Free the machine after the lease, because no controller has come back."""
        with self._store.changing():
            assignment = self._store.assignment
            if assignment is not None and assignment["slice"] == self._order["slice"]:
                self._store.release(assignment)

    async def _watch(self) -> bool:
        """Wait until the program ends, SIGTERM comes, or the lease is over; return whether it was the lease."""
        lease = self._order.get("lease")
        loop = asyncio.get_running_loop()
        assert self._program is not None
        while self._program.poll() is None and not self._ending.is_set():
            shorten(self._store.run / "program.log")
            if lease and loop.time() - self._mux.last_heard > lease:
                sys.stderr.write(f"no controller has connected for {lease:g} s: the program is ended\n")
                return True
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._ending.wait(), 0.2)  # noqa: TID251  # Python 3.8 has no asyncio.timeout
        return False

    async def _end(self) -> int | None:
        program = self._program
        if program is None:
            return None
        asked: set[int] = set()
        for last, seconds in ((False, self._order.get("grace", 5.0)), (True, 5.0)):
            deadline = time.monotonic() + seconds
            while True:
                with contextlib.suppress(ChildProcessError):
                    while program.poll() is not None and os.waitpid(-1, os.WNOHANG)[0]:
                        pass
                left = descendants()
                if not left or time.monotonic() > deadline:
                    break
                for pid in left:
                    if last or pid not in asked:
                        asked.add(pid)
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL if last else signal.SIGTERM)
                await asyncio.sleep(0.05)
        return program.poll()


def _in_new_session() -> None:
    os.setsid()
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def supervise(directory: str) -> None:
    order = json.loads(sys.stdin.readline())
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    asyncio.run(Supervisor(Store(directory), order).run())
