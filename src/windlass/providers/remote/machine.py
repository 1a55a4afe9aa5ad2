"""RemoteMachine is one machine with SSH: its connection, the agent on it, and the tunnel to its program.

It connects at the first request and reconnects automatically. A request in flight when the connection breaks raises
``Unreachable``; every request can be repeated. A tunnel survives broken connections: it attaches again as soon as the
machine answers, and its streams continue where they stopped.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import itertools
import json
import logging
import secrets
import shlex
import time
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import asyncssh

from windlass.providers.remote import agent, machine_store, mux, supervisor
from windlass.providers.remote.connection import Login, Unreachable, connect, plain
from windlass.providers.remote.image import ImageSpec

log = logging.getLogger(__name__)

ANSWER_LIMIT: Final = 15.0
BOOTSTRAP_LIMIT: Final = 1800.0
LONGEST_LINE: Final = 1 << 20
"""The longest answer in bytes. A longer one ends the connection."""
PIECE: Final = 1 << 19
_BACK_OFF: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
PING_EVERY: Final = 2.0


class AgentRefused(Exception):
    """The agent has refused a request; ``kind`` is its reason as a code."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind


@cache
def agent_archive() -> tuple[str, bytes]:
    """Build the agent as one file for Python 3.8 or later; return its name, which has its hash, and its bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for package in ("windlass", "windlass/providers", "windlass/providers/remote"):
            archive.writestr(zipfile.ZipInfo(f"{package}/__init__.py"), "")
        for module in (agent, machine_store, mux, supervisor):
            source = Path(str(module.__file__)).read_text(encoding="utf-8")
            archive.writestr(zipfile.ZipInfo(module.__name__.replace(".", "/") + ".py"), source)
        archive.writestr(zipfile.ZipInfo("__main__.py"), f"from {agent.__name__} import main\n\nmain()\n")
    data = buffer.getvalue()
    return f"agent-{hashlib.sha256(data).hexdigest()[:16]}.pyz", data


class RemoteMachine:
    """Sends requests of one cluster's controller to the agent on a machine."""

    def __init__(self, login: Login, cluster: str, directory: str = "~/.windlass", limit: float = ANSWER_LIMIT) -> None:
        self.login = login
        self.label = ""
        """A name that its provider chooses."""
        self.cluster = cluster
        self.directory = directory
        self.limit = limit
        self.silent_since: float | None = None
        """The ``time.monotonic`` of the first failure since the last answer; None while it answers."""
        self.problem = ""
        """The reason why it does not answer, for people."""
        self._connection: asyncssh.SSHClientConnection | None = None
        self._session: asyncssh.SSHClientProcess[bytes] | None = None
        self._connecting = asyncio.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._events: dict[int, Callable[[Mapping[str, Any]], None]] = {}
        self._reading: asyncio.Task[None] | None = None
        self._tunnel: Tunnel | None = None

    # -- requests ---------------------------------------------------------------------------------------------------

    async def ask(
        self,
        op: str,
        *,
        limit: float | None = None,
        on_event: Callable[[Mapping[str, Any]], None] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises ``AgentRefused`` if the agent refuses it, ``Unreachable`` if there is no answer in time.
        """
        try:
            async with asyncio.timeout(limit or self.limit):
                session = await self._connected()
                number = next(self._numbers)
                answer = self._waiting[number] = asyncio.get_running_loop().create_future()
                if on_event is not None:
                    self._events[number] = on_event
                try:
                    request = {"id": number, "op": op, "cluster": self.cluster, **fields}
                    session.stdin.write(json.dumps(request).encode() + b"\n")
                    result = await answer
                finally:
                    self._waiting.pop(number, None)
                    self._events.pop(number, None)
        except TimeoutError as error:
            problem = f"{self.login.name}: no answer to {op} within {limit or self.limit:g} s"
            if limit is None:
                await self._drop(problem)
            raise Unreachable(problem) from error
        except (OSError, asyncssh.Error) as error:
            text = plain(error)
            await self._drop(text if text.startswith(self.login.name) else f"{self.login.name}: {text}")
            raise Unreachable(self.problem) from error
        self.silent_since = None
        return dict(result)

    async def _connected(self) -> asyncssh.SSHClientProcess[bytes]:
        async with self._connecting:
            if self._session is not None:
                return self._session
            try:
                self._connection = await connect(self.login)
                self._session = await self._begun(self._connection)
            except (OSError, asyncssh.Error) as error:
                await self._drop(f"{self.login.name}: {plain(error)}")
                raise Unreachable(self.problem) from error
            except Unreachable as error:
                await self._drop(str(error))
                raise
            except BaseException:
                await self._drop(f"{self.login.name}: the connection was given up")
                raise
            self._reading = asyncio.create_task(self._read(self._session))
            return self._session

    async def _begun(self, connection: asyncssh.SSHClientConnection) -> asyncssh.SSHClientProcess[bytes]:
        """Install the agent, unless it is there, and start its session."""
        name, data = agent_archive()
        home = _shell_path(self.directory)
        here = f"{home}/{name}"
        there = await connection.run(f"test -f {here}", encoding=None)
        if there.exit_status != 0:
            command = f"umask 077; mkdir -p {home} && cat > {here}.$$ && mv {here}.$$ {here}"
            done = await connection.run(command, input=data, encoding=None)
            if done.exit_status != 0:
                why = plain((done.stderr or b"").decode("utf-8", "replace")) or "it gave no reason"  # type: ignore[union-attr]
                raise Unreachable(f"{self.login.name}: {self.directory} cannot be written there: {why}")
        python = "p=$(command -v python3) || { echo 'there is no python3; install Python 3.8 or later' >&2; exit 127; }"
        return await connection.create_process(f'{python}; exec "$p" -I {here} session {home}', encoding=None)

    async def _read(self, session: asyncssh.SSHClientProcess[bytes]) -> None:
        """Deliver answers until the session ends."""
        buffer, problem = b"", "the connection broke"
        try:
            while data := await session.stdout.read(1 << 16):
                buffer += data
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    self._deliver(line)
                if len(buffer) > LONGEST_LINE:
                    problem = f"it sent more than {LONGEST_LINE} bytes as one answer"
                    break
            else:
                with suppress(asyncssh.Error, OSError, TimeoutError):
                    async with asyncio.timeout(1):
                        said = plain((await session.stderr.read(4096)).decode("utf-8", "replace"))
                        problem = f"its agent ended: {said}" if said else problem
        except (OSError, asyncssh.Error) as error:
            problem = plain(error) or problem
        except (ValueError, TypeError, KeyError):
            problem = "its agent sent an invalid answer"
        if self._session is session:
            await self._drop(f"{self.login.name}: {problem}")

    def _deliver(self, line: bytes) -> None:
        answer = json.loads(line)
        number = answer["id"]
        if "event" in answer:
            if (on_event := self._events.get(number)) is not None:
                on_event(answer["event"])
            return
        waiting = self._waiting.get(number)
        if waiting is None or waiting.done():
            return
        if "refused" in answer:
            kind, text = answer["refused"]
            waiting.set_exception(AgentRefused(str(kind), str(text)))
        else:
            waiting.set_result(answer["result"])

    async def _drop(self, problem: str, *, quietly: bool = False) -> None:
        """Close the connection and fail all requests in flight with the reason."""
        if self.silent_since is None and not quietly:
            self.silent_since = time.monotonic()
            if self._session is not None:
                log.info("connection lost: %s", problem)
        self.problem = problem
        connection, self._connection, self._session = self._connection, None, None
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(ConnectionError(problem))
        if connection is not None:
            connection.abort()

    # -- files and programs -----------------------------------------------------------------------------------------

    async def put(self, name: str, data: bytes) -> None:
        for offset in range(0, max(len(data), 1), PIECE):
            piece = base64.b64encode(data[offset : offset + PIECE]).decode()
            await self.ask("put", name=name, offset=offset, data=piece, limit=120)

    async def bootstrap(
        self,
        image: ImageSpec,
        slice_id: str,
        epoch: int,
        on_phase: Callable[[str], None] = lambda _: None,
        limit: float = BOOTSTRAP_LIMIT,
    ) -> None:
        """Run the image's bootstrap script, unless the machine has the image."""
        stamp = image.hash
        report = await self.ask("status")
        if stamp in report["images"]:
            return
        for name, data in image.archives().items():
            on_phase("sending files")
            await self.put(name, data)
        await self.ask(
            "bootstrap",
            slice=slice_id,
            epoch=epoch,
            image=stamp,
            script=image.script(),
            environment=image.environment(),
            limit_seconds=limit,
            limit=limit + 30,
            on_event=lambda event: on_phase(plain(event.get("phase", ""), 120)),
        )

    async def start(
        self,
        slice_id: str,
        epoch: int,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        image: str = "",
        reach: Sequence[str] = (),
        lease: float | None = None,
        grace: float = 5.0,
    ) -> None:
        """Start a program and a tunnel for its connections to ``reach``. Idempotent."""
        order: dict[str, Any] = {
            "slice": slice_id,
            "epoch": epoch,
            "command": list(command),
            "environment": dict(environment),
            "image": image,
            "reach": list(reach),
            "lease": lease,
            "grace": grace,
        }
        started = await self.ask("start", limit=60, **order)
        self.join_tunnel(str(started["socket"]), reach)

    def join_tunnel(self, socket: str, reach: Sequence[str]) -> None:
        if self._tunnel is None:
            self._tunnel = Tunnel(self, socket, reach)

    async def leave_tunnel(self) -> None:
        if self._tunnel is not None:
            tunnel, self._tunnel = self._tunnel, None
            await tunnel.close()

    async def open_socket(self, path: str) -> tuple[asyncssh.SSHReader[bytes], asyncssh.SSHWriter[bytes]]:
        await self._connected()
        if self._connection is None:
            raise Unreachable(self.problem)
        return await self._connection.open_unix_connection(path, encoding=None)

    async def move_to(self, login: Login) -> None:
        """Use another address from now on. Requests in flight fail, and the tunnel attaches again there."""
        self.login = login
        await self._drop(f"{login.name}: the machine has a new address", quietly=True)

    async def close(self) -> None:
        """Close the connection. The program keeps running, and a later request connects again."""
        await self.leave_tunnel()
        await self._drop(f"{self.login.name}: the connection was closed", quietly=True)
        if self._reading is not None:
            self._reading.cancel()
            with suppress(asyncio.CancelledError):
                await self._reading


class Tunnel:
    """Forwards streams from a program on a machine to local addresses, and survives broken connections."""

    def __init__(self, machine: RemoteMachine, socket: str, reach: Sequence[str]) -> None:
        self._machine = machine
        self._socket = socket
        self._reach = frozenset(reach)
        self._mux = mux.Mux(0, self._connect, session=secrets.token_hex(8))
        self._tasks = [asyncio.create_task(self._hold()), asyncio.create_task(self._ping())]

    async def _connect(self, target: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if target not in self._reach:
            raise OSError(f"{self._machine.login.name} asks for {plain(target)}, which is not in its order")
        host, _, port = target.rpartition(":")
        return await asyncio.open_connection(host.strip("[]"), int(port))

    async def _hold(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(30):
                    reader, writer = await self._machine.open_socket(self._socket)
                await self._mux.attach(reader, writer)  # type: ignore[arg-type]  # asyncssh's have the same methods
            except (OSError, TimeoutError, asyncssh.Error, Unreachable, mux.MuxError, ValueError, KeyError) as error:
                log.debug("tunnel to %s: %s", self._machine.login.name, plain(error))
            failures = 0 if time.monotonic() - began > 10 else failures + 1
            await asyncio.sleep(_BACK_OFF[min(failures, len(_BACK_OFF) - 1)])

    async def _ping(self) -> None:
        while True:
            self._mux.ping()
            await asyncio.sleep(PING_EVERY)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._mux.drop()
        self._mux.close()


def _shell_path(path: str) -> str:
    """Quote a path for a shell; ``~`` is the user's home."""
    if path.startswith("~/"):
        return '"$HOME"/' + shlex.quote(path[2:])
    return shlex.quote(path)
