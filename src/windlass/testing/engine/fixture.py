"""EngineStage sets up an engine, hosts for its nodes, and a listener for its events.

``ProcessStage`` is the stage of an engine whose nodes are real processes: hosts are started here, each in a session of
its own, and every process that comes from the stage is found again by a mark in its environment.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from windlass.pool.engines.protocol import CallOutcome, Engine, NodeFacts
from windlass.pool.transport.data_store import DataStore
from windlass.pool.transport.runner import Stream
from windlass.pool.transport.serialization import PackedResult, pack_arguments, pack_batch, pack_function
from windlass.workloads.protocol import Join

MARK: Final = "WINDLASS_CONFORMANCE_MARK"
PAUSE: Final = 0.01


class RecordingListener:
    """A listener that records all events in order, and can wait for them."""

    def __init__(self) -> None:
        self.all: list[tuple[Any, ...]] = []
        self._more = asyncio.Event()
        self.store: DataStore | None = None
        """The store of large values."""

    def on_node_joined(self, facts: NodeFacts) -> None:
        self._record("joined", facts.node, facts)

    def on_node_left(self, node: str, why: str) -> None:
        self._record("left", node, why)

    def on_node_silent(self, node: str, seconds: float) -> None:
        self._record("silent", node, seconds)

    def on_node_heard(self, node: str) -> None:
        self._record("heard", node)

    def on_results(self, call: str, results: Sequence[PackedResult], seconds: float) -> None:
        self._record("progressed", call, list(results), seconds)

    def on_call_shortened(self, call: str, items: int) -> None:
        self._record("shortened", call, items)

    def data_store(self) -> DataStore | None:
        return self.store

    def on_engine_down(self, why: str) -> None:
        self._record("engine", "down", why)

    def on_engine_up(self) -> None:
        self._record("engine", "up")

    def on_engine_lost(self, why: str) -> None:
        self._record("engine", "lost", why)

    def on_call_began(self, call: str) -> None:
        self._record("began", call)

    def on_output(self, call: str, item: int, stream: Stream, line: str) -> None:
        self._record("said", call, item, stream, line)

    def on_value(self, call: str, item: int, blob: bytes) -> None:
        self._record("yielded", call, item, blob)

    def on_call_ended(self, call: str, outcome: CallOutcome) -> None:
        self._record("ended", call, outcome)

    def _record(self, *event: Any) -> None:
        self.all.append(event)
        self._more.set()

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """Return all events of one call or node."""
        return [event for event in self.all if event[1] == name]

    def results(self, call: str) -> list[PackedResult]:
        """Return the results of the items of a call that have ended so far."""
        found: list[bytes] = []
        for event in self.of(call):
            if event[0] == "progressed":
                found += event[2]
            elif event[0] == "ended":
                found += event[2].results
        return found

    def outcomes(self, call: str) -> list[CallOutcome]:
        return [event[2] for event in self.of(call) if event[0] == "ended"]

    async def until(self, wanted: Callable[[], object], within: float) -> None:
        """Wait until ``wanted`` returns true."""
        try:
            async with asyncio.timeout(within):
                while not wanted():
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within:g} s; last events: {self.all[-12:]!r}") from None


class EngineStage(Protocol):
    """An engine, and the actions of the tests on its hosts."""

    engine: Engine
    directory: Path
    """A directory in which functions of the tests may leave files."""

    async def host(self, node: str, join: Join) -> None:
        """Start a host that runs the join command of the node."""
        ...

    async def kill_host(self, node: str) -> None:
        """Kill the host, as by kill -9."""
        ...

    def stop_host(self, node: str) -> None:
        """Make the host hang, as by SIGSTOP of all its processes."""
        ...

    def resume_host(self, node: str) -> None:
        """Let the host continue."""
        ...

    def held(self, call: str) -> bytes:
        """Return a batch of one item for the call of this id: it leaves a file, and runs until ``let_go``."""
        ...

    def let_go(self, call: str) -> None: ...

    async def leftovers(self) -> Sequence[tuple[int, str]]:
        """Return the processes of the engine and of its nodes that exist now."""
        ...

    async def break_off(self) -> None:
        """Remove everything that the stage has created; the engine has been closed."""
        ...


def trace(directory: str, call: str) -> None:
    """Record that a call has started, and in which process, for ``starts`` to count."""
    with Path(directory, "starts").open("a") as file:
        file.write(f"{call} {os.getpid()}\n")


def starts(directory: Path, call: str) -> list[int]:
    """Return the process of every start of a call."""
    with suppress(FileNotFoundError):
        lines = [line.split() for line in (directory / "starts").read_text().splitlines()]
        return [int(pid) for name, pid in lines if name == call]
    return []


def living(pids: Iterable[int]) -> list[int]:
    """Return those processes that exist and are not zombies."""
    found = []
    for pid in pids:
        with suppress(OSError):
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            if text[text.rindex(")") + 2] not in "ZX":
                found.append(pid)
    return found


def _until_let_go(directory: str, call: str) -> str:
    trace(directory, call)
    while not Path(directory, f"{call}.go").exists():
        time.sleep(PAUSE)
    return call


class ProcessStage:
    """The stage of an engine whose nodes are processes."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._mark = uuid.uuid4().hex
        os.environ[MARK] = self._mark  # the engine's processes inherit it
        self._directory = tempfile.TemporaryDirectory(prefix="windlass-stage-")
        self.directory = Path(self._directory.name)
        self.engine = make()
        self._hosts: dict[str, subprocess.Popen[bytes]] = {}

    async def host(self, node: str, join: Join) -> None:
        environment = {**os.environ, **join.environment, MARK: self._mark}
        self._hosts[node] = subprocess.Popen(
            join.command, env=environment, stdin=subprocess.DEVNULL, start_new_session=True
        )

    async def kill_host(self, node: str) -> None:
        self._hosts[node].kill()

    def stop_host(self, node: str) -> None:
        for pid in self._family(node):
            with suppress(OSError):
                os.kill(pid, signal.SIGSTOP)

    def resume_host(self, node: str) -> None:
        for pid in self._family(node):
            with suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    def _family(self, node: str) -> list[int]:
        """Return the processes of a host, parents first."""
        found = [self._hosts[node].pid]
        for pid in found:
            with suppress(OSError):
                for task in Path(f"/proc/{pid}/task").iterdir():
                    found += [int(child) for child in (task / "children").read_text().split()]
        return found

    def held(self, call: str) -> bytes:
        return pack_batch(pack_function(_until_let_go), [pack_arguments((str(self.directory), call))])

    def let_go(self, call: str) -> None:
        (self.directory / f"{call}.go").touch()

    async def leftovers(self) -> Sequence[tuple[int, str]]:
        for host in self._hosts.values():
            host.poll()  # reaps a host that has ended
        return marked(self._mark)

    async def break_off(self) -> None:
        os.environ.pop(MARK, None)
        for host in self._hosts.values():
            with suppress(OSError):
                os.killpg(host.pid, signal.SIGKILL)
            host.wait()
        end_marked(self._mark)
        self._directory.cleanup()


def end_marked(mark: str) -> None:
    """Kill every process with the mark, also after a test has failed because of one."""
    for pid, _ in marked(mark):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[tuple[int, str]]:
    """Return every process that has the mark in its environment, with its command."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(entry.name), command[:200]))
    return found
