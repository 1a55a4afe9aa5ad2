"""SchedulerProcess starts the scheduler's process and connects the pool to it.

A scheduler that has died can be restarted: it listens at the same port, so that nodes can reconnect.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict
from typing import IO, Any, Final

from distributed.comm import Comm
from distributed.core import connect

from windlass.pool.engines.protocol import EngineError
from windlass.pool.transport.process_session import program
from windlass.pool.transport.tls import Credentials

from .messages import SCHEDULER, security_of

STARTING: Final = 60.0
"""Seconds within which the scheduler's process must listen."""
_ENDING: Final = 5.0
"""Seconds between SIGTERM and SIGKILL."""


class SchedulerProcess:
    """The scheduler of one engine."""

    def __init__(self, host: str, port: int, credentials: Credentials | None) -> None:
        self._host, self.port, self._credentials = host, port, credentials
        self._secret = secrets.token_hex(16)
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the engine
        self.process: asyncio.subprocess.Process | None = None
        self.address = ""
        """Such as ``tls://127.0.0.1:8786``; empty until it has been started."""
        self.comm: Comm | None = None
        """The pool's connection to it."""

    @property
    def running(self) -> asyncio.subprocess.Process | None:
        """The process, if it has not ended."""
        return self.process if self.process is not None and self.process.returncode is None else None

    async def start(self, timeout: float = STARTING) -> list[Any]:
        """Start the process and connect to it; return the first messages that it sends. ``EngineError`` if it fails, or
        takes longer than ``timeout`` seconds.
        """
        parameters = {
            "pool": os.getpid(),
            "host": self._host,
            "port": self.port,
            "secret": self._secret,
            "credentials": self._credentials and asdict(self._credentials),
        }
        process = self.process = await asyncio.create_subprocess_exec(
            *program(sys.executable, "windlass.pool.engines.dask.scheduler"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, SCHEDULER: json.dumps(parameters)},
            start_new_session=True,  # Ctrl-C is for the pool, which ends everything in order
        )
        try:
            async with asyncio.timeout(timeout):
                assert process.stdout is not None
                line = (await process.stdout.readline()).decode()
                if not line.endswith("\n"):  # it ended before it had written its address
                    words = self.last_output() or "its process ended without output"
                    raise EngineError(f"the Dask scheduler did not start: {words}")
                self.address = line.strip()
                self.port = int(self.address.rpartition(":")[2])
                return await self._connect(process)
        except OSError as error:  # TimeoutError is one
            with suppress(ProcessLookupError):
                process.kill()  # it may be stopped, and has nothing to clean up
            await process.wait()
            message = f"{type(error).__name__} {error} {self.last_output()}"
            raise EngineError(f"the Dask scheduler cannot be reached: {message}") from error

    async def _connect(self, process: asyncio.subprocess.Process) -> list[Any]:
        """Connect to the scheduler. If it dies meanwhile, raise OSError at once: Dask would retry for a long time."""
        connecting, ended = asyncio.ensure_future(self._greet()), asyncio.ensure_future(process.wait())
        try:
            await asyncio.wait([connecting, ended], return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done():
                raise ConnectionError(f"its process ended with code {process.returncode}")
            return await connecting
        finally:
            connecting.cancel()
            ended.cancel()

    async def _greet(self) -> list[Any]:
        arguments = security_of(self._credentials).get_connection_args("client")
        self.comm = await connect(self.address, timeout=STARTING, **arguments)
        await self.comm.write({"op": "windlass_pool", "reply": False, "secret": self._secret})
        messages: list[Any] = await self.comm.read()
        return messages

    def last_output(self) -> str:
        """Return the end of its stderr."""
        if self._errors.closed:
            return ""
        self._errors.seek(0)
        return self._errors.read().decode("utf-8", "replace").strip()[-2000:]

    async def close(self) -> None:
        if self.comm is not None:
            self.comm.abort()
        if self.process is not None:
            await _end(self.process)
        self._errors.close()


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_ENDING):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
