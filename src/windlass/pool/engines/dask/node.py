"""The program that a host runs to become a node of the pool: a supervisor over one process for each slot.

    WINDLASS_DASK_NODE='{"node": ..., ...}' python -m windlass.pool.engines.dask.node

It loads Dask once and then forks: the line to the scheduler (`dask_line`), and a worker for each slot (`dask_slot`), so
that a node of many slots starts in the time of one, and a slot that was killed is back in a moment. It has no threads
and no event loop of its own, so it may fork at any time.

- Ordered to kill a call, it kills the process group of its slot, if that call is what runs there, and starts the slot
  again.
- A slot that dies by itself takes the node with it: the pool hears why.
- Told to leave (SIGTERM, or by the line), or without its line, it ends all processes and itself.
- Killed, it takes all of them with it, by the parent-death signal of the kernel.

Needs Linux.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from . import messages
from . import slot as slot_module
from .messages import NODE, DaskNodeOrder
from .node_link import NodeLink
from .slot import Gate

GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL when the node leaves."""
_PR_SET_PDEATHSIG: Final = 1
_TURN: Final = 5.0
"""Seconds that a slot may need to begin or to end a call; one that needs longer holds the gate for good."""


@dataclass(slots=True)
class SlotProcess:
    """The process of a slot, the leader of a process group."""

    pid: int
    life: int
    gate: Gate


class DaskNode:
    """The processes of a node."""

    def __init__(self, order: DaskNodeOrder) -> None:
        self._order = order
        self._slots: dict[int, SlotProcess] = {}
        self._to_line, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line = self._forked(lambda: asyncio.run(NodeLink(order, line).hold()), self._to_line)
        line.close()
        self._awake = _signals_that_wake()
        self._leaving = False

    def run(self) -> None:
        """Until it has left."""
        for slot in range(self._order.slots):
            self._start(slot, 1)
        waits = select.poll()
        waits.register(self._awake, select.POLLIN)
        waits.register(self._to_line, select.POLLIN)
        while not self._leaving:
            waits.poll()
            with suppress(BlockingIOError):
                os.read(self._awake, 4096)
            self._hear()
            self._reap()
        self._end()

    def leave(self) -> None:
        self._leaving = True

    # -- orders -----------------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        try:
            text = self._to_line.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            text = b""
        if not text:
            self._leaving = True  # the line is gone
            return
        order = json.loads(text)
        if "kill" in order:
            self._kill(order["slot"], order["life"], order["kill"])
        else:
            self._leaving = True

    def _kill(self, slot: int, life: int, call: str) -> None:
        """If that very call runs there: while the gate is held it can neither end nor can another begin."""
        process = self._slots[slot]
        if process.life != life:
            return
        if not process.gate.take(_TURN) or process.gate.call == call:
            _signal(process.pid, signal.SIGKILL)
            os.waitpid(process.pid, 0)
            process.gate.close()
            self._start(slot, life + 1)
        else:
            process.gate.give_back()

    # -- processes --------------------------------------------------------------------------------------------------

    def _start(self, slot: int, life: int) -> None:
        gate = Gate()
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def run() -> None:
            os.setpgid(0, 0)
            slot_module.after_fork(self._order.path)
            asyncio.run(slot_module.live(self._order, slot, life, gate, here))

        pid = self._forked(run, self._to_line, there)
        with suppress(OSError):
            os.setpgid(pid, pid)  # by whoever comes first: a kill must find the group
        self._slots[slot] = SlotProcess(pid, life, gate)
        with suppress(OSError):
            socket.send_fds(self._to_line, [b"+"], [there.fileno()])
        here.close()
        there.close()

    def _forked(self, run: Callable[[], None], *close: socket.socket) -> int:
        parent = os.getpid()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid:
            return pid
        status = 1
        try:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            for one in close:
                one.close()
            run()
            status = 0
        except BaseException as error:  # noqa: BLE001  # nothing of the child may run on in the code of the parent
            os.write(2, f"windlass: {self._order.node}: {type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(status)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                slot = next((slot for slot, process in self._slots.items() if process.pid == pid), None)
                if slot is not None:
                    del self._slots[slot]
                    self._tell(f"the process of its slot {slot} {_how(status)}")
                    self._leaving = True
                elif pid == self._line:
                    self._leaving = True

    def _tell(self, why: str) -> None:
        with suppress(OSError):
            self._to_line.send(json.dumps({"why": why}).encode())

    def _end(self) -> None:
        """End the slots first: the pool counts their calls as lost when the line is gone, so nothing may run then."""
        left = {process.pid for process in self._slots.values()}
        for pid in left:
            _signal(pid, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while left:
            left = {pid for pid in left if not _gone(pid)}
            if time.monotonic() > until:
                for pid in left:
                    _signal(pid, signal.SIGKILL)
            self._doze()
        for process in self._slots.values():
            _signal(process.pid, signal.SIGKILL)  # what a call had started, and what did not listen
        self._to_line.close()  # the line says what is left to say, and goes
        until = time.monotonic() + GRACE
        while not _gone(self._line):
            if time.monotonic() > until:
                with suppress(OSError):
                    os.kill(self._line, signal.SIGKILL)
            self._doze()

    def _doze(self) -> None:
        """Until a process has ended, or a moment is over."""
        select.select([self._awake], [], [], 0.05)
        with suppress(BlockingIOError):
            os.read(self._awake, 4096)


def _signal(group: int, number: int) -> None:
    with suppress(OSError):
        os.killpg(group, number)


def _gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _how(status: int) -> str:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"ended with code {code}"
    more = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"was ended by {signal.Signals(-code).name}{more}"


def _signals_that_wake() -> int:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def main() -> int:
    text = os.environ.pop(NODE, None)
    if text is None:
        sys.stderr.write(f"windlass: {NODE} is not set; a node is started by what a pool's engine gives as its join\n")
        return 2
    messages.set_up()
    gc.freeze()  # what is loaded is shared with all processes to come
    node = DaskNode(DaskNodeOrder.of(text))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: node.leave())
    node.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
