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


class Heard:
    """A listener that keeps all it hears, in order, and can wait for it."""

    def __init__(self) -> None:
        self.words: list[tuple[Any, ...]] = []
        self._more = asyncio.Event()
        self.store: DataStore | None = None
        """Where large values are."""

    def on_node_joined(self, facts: NodeFacts) -> None:
        self._hear("joined", facts.node, facts)

    def on_node_left(self, node: str, why: str) -> None:
        self._hear("left", node, why)

    def on_node_silent(self, node: str, seconds: float) -> None:
        self._hear("silent", node, seconds)

    def on_node_heard(self, node: str) -> None:
        self._hear("heard", node)

    def on_results(self, call: str, results: Sequence[PackedResult], seconds: float) -> None:
        self._hear("progressed", call, list(results), seconds)

    def on_call_shortened(self, call: str, items: int) -> None:
        self._hear("shortened", call, items)

    def data_store(self) -> DataStore | None:
        return self.store

    def on_engine_down(self, why: str) -> None:
        self._hear("engine", "down", why)

    def on_engine_up(self) -> None:
        self._hear("engine", "up")

    def on_engine_lost(self, why: str) -> None:
        self._hear("engine", "lost", why)

    def on_call_began(self, call: str) -> None:
        self._hear("began", call)

    def on_output(self, call: str, item: int, stream: Stream, line: str) -> None:
        self._hear("said", call, item, stream, line)

    def on_value(self, call: str, item: int, blob: bytes) -> None:
        self._hear("yielded", call, item, blob)

    def on_call_ended(self, call: str, outcome: CallOutcome) -> None:
        self._hear("ended", call, outcome)

    def _hear(self, *words: Any) -> None:
        self.words.append(words)
        self._more.set()

    def of(self, name: str) -> list[tuple[Any, ...]]:
        """All events of one call or node."""
        return [words for words in self.words if words[1] == name]

    def results(self, call: str) -> list[PackedResult]:
        """The results of the items of a call that have ended so far."""
        found: list[bytes] = []
        for words in self.of(call):
            if words[0] == "progressed":
                found += words[2]
            elif words[0] == "ended":
                found += words[2].results
        return found

    def outcomes(self, call: str) -> list[CallOutcome]:
        return [words[2] for words in self.of(call) if words[0] == "ended"]

    async def until(self, wanted: Callable[[], object], within: float) -> None:
        """Until what was heard is ``wanted``."""
        try:
            async with asyncio.timeout(within):
                while not wanted():
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            raise AssertionError(f"not within {within:g} s; heard last: {self.words[-12:]!r}") from None


class EngineStage(Protocol):
    """An engine, and what the tests do to it."""

    engine: Engine
    directory: Path
    """Where functions of the tests may leave a trace."""

    async def host(self, node: str, join: Join) -> None:
        """A host runs what makes it the node."""
        ...

    async def kill_host(self, node: str) -> None:
        """The host dies, as by kill -9."""
        ...

    def stop_host(self, node: str) -> None:
        """The host hangs, as by SIGSTOP of all its processes."""
        ...

    def resume_host(self, node: str) -> None:
        """The host goes on."""
        ...

    def held(self, call: str) -> bytes:
        """A batch of one item for the call of this id: it leaves its trace, and runs until ``let_go`` of it."""
        ...

    def let_go(self, call: str) -> None: ...

    async def leftovers(self) -> Sequence[tuple[int, str]]:
        """Processes of the engine or of its nodes that are there now."""
        ...

    async def break_off(self) -> None:
        """Take away what the stage itself has made; the engine has been closed."""
        ...


def trace(directory: str, call: str) -> None:
    """Say that a call has started, and in which process, for ``starts`` to count."""
    with Path(directory, "starts").open("a") as file:
        file.write(f"{call} {os.getpid()}\n")


def starts(directory: Path, call: str) -> list[int]:
    """The process of every start of a call."""
    with suppress(FileNotFoundError):
        lines = [line.split() for line in (directory / "starts").read_text().splitlines()]
        return [int(pid) for name, pid in lines if name == call]
    return []


def living(pids: Iterable[int]) -> list[int]:
    """Those that run, or could."""
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
    """The stage of an engine of processes."""

    def __init__(self, make: Callable[[], Engine]) -> None:
        self._mark = uuid.uuid4().hex
        os.environ[MARK] = self._mark  # processes that the engine starts inherit it
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
        """The processes of a host, those that started others first."""
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
            host.poll()  # a host that has ended must be waited for by its parent
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
    """Leave nothing behind, also when a test has failed because something was."""
    for pid, _ in marked(mark):
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def marked(mark: str) -> list[tuple[int, str]]:
    """Every process that has the mark in its environment, with its command."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(entry.name), command[:200]))
    return found
