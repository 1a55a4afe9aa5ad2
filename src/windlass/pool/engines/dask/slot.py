"""The process of one slot: a Dask worker with one thread, in which calls run one after the other.

A call comes as a Dask task, pinned to this worker, whose function is ``carry``. The task gives nothing back: what
becomes of the call is told by events as it happens, results included, so that they come in order, are with the pool as
soon as they are there, and no result is left here to be lost with the node and computed again.

The ledger makes sure that a call begins at most once, and not after it was taken back. The gate, a pipe with one byte
in it, makes sure that a call is killed by the node only while it is that very call that runs: whoever holds the byte
may begin or end a call, or kill it.
"""

from __future__ import annotations

import logging
import mmap
import os
import random
import select
import socket
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from distributed import Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from windlass.pool.transport.output_capture import ProcessOutput
from windlass.pool.transport.runner import Runner, Stream
from windlass.pool.transport.shared_memory import bytes_of

from . import messages
from .messages import GATHERING, MOST, TOPIC, DaskNodeOrder, worker_name

LONGEST_ID: Final = 256
"""Bytes of the longest id of a call."""
LEDGER: Final = 10_000
"""Calls that a slot remembers, so that none begins twice: more than can ever be on their way to it."""
FORGET: Final = b"!"
"""How the line begins to say that a shared blob is not needed any more."""


class Gate:
    """Who may begin, end or kill a call now; and which one runs. Shared by the node and one slot."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        self._page = mmap.mmap(-1, mmap.PAGESIZE)
        os.write(self._writing, b".")

    def __enter__(self) -> None:
        os.read(self._reading, 1)

    def __exit__(self, *_: object) -> None:
        self.give_back()

    def take(self, seconds: float) -> bool:
        """Whether the byte could be had in time."""
        if not select.select([self._reading], [], [], seconds)[0]:
            return False
        os.read(self._reading, 1)
        return True

    def give_back(self) -> None:
        os.write(self._writing, b".")

    @property
    def call(self) -> str:
        """The call that runs; empty: none."""
        length = int.from_bytes(self._page[:2], "little")
        return self._page[2 : 2 + length].decode()

    @call.setter
    def call(self, name: str) -> None:
        text = name.encode()
        self._page[: 2 + len(text)] = len(text).to_bytes(2, "little") + text

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)
        self._page.close()


class DaskSlot(WorkerPlugin):  # type: ignore[misc, unused-ignore]
    """The worker's side of the engine."""

    name = "windlass"

    def __init__(self, life: str, gate: Gate, line: socket.socket, log: int) -> None:
        self.life = life
        self._gate = gate
        self._line = line
        self._log = log
        self._ledger = threading.Lock()
        self._known: OrderedDict[str, bool] = OrderedDict()
        """Calls of late, and whether they have begun; otherwise they were taken back."""
        self._blobs: dict[str, memoryview] = {}

    def setup(self, worker: Worker) -> None:
        self._worker = worker
        self._runner = Runner(self._fetch, ProcessOutput(self._log))
        worker.handlers["windlass_revoke"] = self.revoke
        worker.batched_stream.interval = GATHERING

    def revoke(self, call: str) -> bool:
        """Whether the call has not begun; it never will then. In the thread of the worker's loop."""
        return not self._enter(call, begun=False)

    def carry(self, call: str, blob: bytes, environment: Mapping[str, str]) -> None:
        """Run a call to its end. In the worker's one thread for tasks."""
        if self._enter(call, begun=True) is not None:
            return
        with self._gate:
            self._gate.call = call
        self.tell(call, "began")
        try:
            self._forget()
            result, broken = self._runner.execute(blob, _Telling(self, call), environment), ""
            if len(result) > MOST:
                broken = f"the results of the call are {len(result):,} bytes long; {MOST:,} can be carried"
        except Exception as error:  # noqa: BLE001  # not the user's own, which is in the result: ours
            broken = f"the call could not be run: {type(error).__name__}: {error}"
        with self._gate:
            self._gate.call = ""
        if broken:
            self.tell(call, "broken", broken)
        else:
            self.tell(call, "done", result)

    def _enter(self, call: str, *, begun: bool) -> bool | None:
        """Write into the ledger, if it is not there yet, what happens to a call first; whether it had begun before, and
        None if nothing had happened to it."""
        with self._ledger:
            before = self._known.get(call)
            if before is None:
                self._known[call] = begun
                if len(self._known) > LEDGER:
                    self._known.popitem(last=False)
            return before

    def tell(self, call: str, *words: Any) -> None:
        self._worker.log_event(TOPIC, ["call", call, *words])

    def _fetch(self, name: str) -> memoryview:
        """From the node's line, which has fetched it once for all slots, or does so now."""
        if name not in self._blobs:
            self._line.send(name.encode())
            while True:
                answer, handles, _, _ = socket.recv_fds(self._line, 1 << 16, 1)
                if answer[:1] != FORGET:
                    break
                self._drop(answer)
            if not handles:
                raise RuntimeError(answer.decode() or "the node lost its line to the pool")
            self._blobs[name] = bytes_of(handles[0])
        return self._blobs[name]

    def _forget(self) -> None:
        """Drop what the line says is not needed any more."""
        self._line.setblocking(False)
        try:
            while notice := self._line.recv(1 << 16):
                self._drop(notice)
        except BlockingIOError:
            pass
        finally:
            self._line.setblocking(True)

    def _drop(self, notice: bytes) -> None:
        name = notice[1:].decode()
        self._blobs.pop(name, None)
        self._runner.forget(name)


class _Telling:
    """What happens in a call, on its way to the pool."""

    def __init__(self, slot: DaskSlot, call: str) -> None:
        self._slot, self._call = slot, call

    def said(self, item: int, stream: Stream, line: str) -> None:
        self._slot.tell(self._call, "said", item, stream, line)

    def yielded(self, item: int, blob: bytes) -> None:
        self._slot.tell(self._call, "yielded", item, blob)


def carry(life: str, call: str, blob: bytes, environment: Mapping[str, str]) -> None:
    """The function of every Dask task of the engine. Of another life than the worker's own it does nothing: its call
    was lost with that life, even if the address of the worker has come back."""
    slot: DaskSlot = get_worker().plugins["windlass"]
    if slot.life == life:
        slot.carry(call, blob, environment)


async def live(order: DaskNodeOrder, slot: int, life: int, gate: Gate, line: socket.socket) -> None:
    """Until the scheduler is gone."""
    name = worker_name(order.node, slot, life)
    log = os.dup(2)
    for handler in logging.getLogger("distributed").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(os.fdopen(os.dup(log), "w", buffering=1))
    # A worker wants a directory, into which one without a memory limit never puts anything. It goes at once: a process
    # that is killed leaves nothing on the disk.
    with tempfile.TemporaryDirectory(prefix="windlass-slot-") as directory:
        worker = Worker(
            order.scheduler,
            nthreads=1,
            name=name,
            security=messages.security_of(order.credentials),
            memory_limit=0,
            local_directory=directory,
            dashboard=False,
            heartbeat_interval="5s",
            death_timeout=60,
            plugins=(DaskSlot(name, gate, line, log),),
        )
    await worker
    await worker.finished()


def after_fork(path: Sequence[str]) -> None:
    """Make the new process one of its own."""
    random.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    sys.path.extend(one for one in path if one not in sys.path)
