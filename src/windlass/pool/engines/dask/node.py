"""This program makes a host a node of the pool: it supervises the node link and one process per slot.

    WINDLASS_DASK_NODE='{"node": ..., ...}' python -m windlass.pool.engines.dask.node

It forks the node link (`node_link`), which talks to the scheduler, and one process for each slot (`slot`). It has no
threads and no event loop of its own, so it may fork at any time. One spare process is always ready: a slot whose
process has ended continues with the spare at once.

- Ordered to kill a call, it kills the process group of its slot, if that call runs there, and starts the slot again.
- A slot that dies is started again; the pool learns which call it ran and how it ended. If a slot dies repeatedly
  before it has run anything, the node ends.
- A slot that is stopped (SIGSTOP) for longer than the limit is killed and started again.
- It sends a heartbeat every second, so that the pool notices a node that hangs.
- Asked to leave (SIGTERM, or by the link), or without its link, it ends all processes and itself.
- If it is killed, all its processes end, by the parent-death signal of the kernel. On another machine than the pool's a
  guard removes the large values that it stored.

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
from pathlib import Path
from typing import Final

from windlass.pool.transport.data_store import sweep, sweep_after_kill
from windlass.pool.transport.process_session import watch_over_this
from windlass.pool.transport.slot_page import SlotPage
from windlass.providers.remote.tunnels import is_remote

from . import messages as dask_messages
from . import slot as slot_module
from .messages import BEAT, NODE, DaskNodeOrder
from .node_link import NodeLink

GRACE: Final = 2.0
"""Seconds between SIGTERM and SIGKILL when the node leaves."""
_PR_SET_PDEATHSIG: Final = 1
_LOCK: Final = 5.0
"""Seconds that a slot may hold the lock of its page; after that it is assumed to hang."""
_AFTER_CRASH: Final = 0.05
"""Seconds until a spare process that is in use is replaced: the crash is reported and the task runs again first."""
_NEXT_SPARE: Final = 5.0
"""Seconds until an unused spare process that has ended is replaced: the next one may end as quickly."""
_FAILED_STARTS: Final = 3
"""Processes of one slot in a row that may end before they have run a call."""


@dataclass(slots=True)
class SlotProcess:
    """The process of a slot, the leader of a process group."""

    pid: int
    page: SlotPage
    calls: socket.socket
    """The node link's end of its socket."""
    life: int = 0
    stopped_since: float | None = None
    failed_starts: int = 0
    """Processes of this slot in a row that ended without having run a call."""

    def close(self) -> None:
        self.page.close()
        self.calls.close()


class DaskNode:
    """The processes of a node."""

    def __init__(self, order: DaskNodeOrder) -> None:
        self._order = order
        self._guard = watch_over_this(sweep_after_kill) if is_remote() else 0
        self._slots: dict[int, SlotProcess] = {}
        self._spare: SlotProcess | None = None
        self._spare_due = 0.0
        """When the next spare process may be started."""
        self._to_link, link = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link = self._forked(lambda: asyncio.run(NodeLink(order, link).hold()), self._to_link)
        link.close()
        self._awake = _signals_that_wake()
        self._leaving = False

    def run(self) -> None:
        """Run until the node has left."""
        for slot in range(self._order.slots):
            self._start(slot, 1)
        waits = select.poll()
        waits.register(self._awake, select.POLLIN)
        waits.register(self._to_link, select.POLLIN)
        due = time.monotonic()
        while not self._leaving:
            awaited = due if self._spare is not None else min(due, self._spare_due)
            waits.poll(max(0, 1000 * (awaited - time.monotonic())))
            with suppress(BlockingIOError):
                os.read(self._awake, 4096)
            self._handle()
            self._reap()
            if self._spare is None and time.monotonic() >= self._spare_due and not self._leaving:
                self._spare = self._new_process()
            if time.monotonic() >= due:
                due = time.monotonic() + BEAT
                self._end_stopped()
                self._send({"beat": True})
        self._end()

    def leave(self) -> None:
        self._leaving = True

    # -- orders -----------------------------------------------------------------------------------------------------

    def _handle(self) -> None:
        try:
            text = self._to_link.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            text = b""
        if not text:
            self._leaving = True  # the link is gone
            return
        order = json.loads(text)
        if "kill" in order:
            self._kill(order["slot"], order["life"], order["kill"])
        else:
            self._leaving = True

    def _kill(self, slot: int, life: int, call: str) -> None:
        """Kill the slot's process if that call runs there. While the page is locked, it cannot end and no other call
        can begin.
        """
        process = self._slots.get(slot)
        if process is None or process.life != life:
            return
        if not process.page.lock(_LOCK) or process.page.call == call:
            self._replace(slot, "was ended because the call was to be killed", killed=call)
        else:
            process.page.unlock()

    def _end_stopped(self) -> None:
        now = time.monotonic()
        for slot, process in list(self._slots.items()):
            if not _is_stopped(process.pid):
                process.stopped_since = None
            elif process.stopped_since is None:
                process.stopped_since = now
            elif now - process.stopped_since >= self._order.unhealthy_timeout:
                self._replace(slot, f"was stopped for {now - process.stopped_since:.0f} s and then ended")

    def _replace(self, slot: int, how: str, killed: str = "") -> None:
        process = self._slots[slot]
        _signal(process.pid, signal.SIGKILL)
        os.waitpid(process.pid, 0)
        self._restart(slot, how, killed)

    # -- processes --------------------------------------------------------------------------------------------------

    def _start(self, slot: int, life: int, failed_starts: int = 0) -> None:
        """Give a slot a process: the spare one if there is one."""
        process, self._spare = self._spare, None
        if process is not None:
            self._spare_due = time.monotonic() + _AFTER_CRASH
        if process is not None and _is_stopped(process.pid):
            _signal(process.pid, signal.SIGKILL)
            process.close()
            process = None
        process = self._slots[slot] = process or self._new_process()
        process.life, process.failed_starts = life, failed_starts
        message = json.dumps({"slot": slot, "life": life}).encode()
        with suppress(OSError):
            socket.send_fds(self._to_link, [message], [process.calls.fileno(), *process.page.handles])
        process.calls.close()

    def _new_process(self) -> SlotProcess:
        page = SlotPage.new()
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)

        def run() -> None:
            os.setpgid(0, 0)
            slot_module.live(self._order.directory, self._order.path, page, here)

        pid = self._forked(run, self._to_link, there, *([self._spare.calls] if self._spare is not None else []))
        with suppress(OSError):
            os.setpgid(pid, pid)  # in both processes, whichever runs first: a kill must find the group
        here.close()
        return SlotProcess(pid, page, there)

    def _restart(self, slot: int, how: str, killed: str = "") -> None:
        """Report the end of a slot's process, and start another one."""
        ended = self._slots.pop(slot)
        idle = not ended.page.used
        self._send({"gone": slot, "life": ended.life, "how": how, "killed": killed})
        ended.close()
        failed_starts = ended.failed_starts + 1 if idle else 0
        if failed_starts >= _FAILED_STARTS:
            self._send({"why": f"slot {slot} cannot start: its process {how}, {failed_starts} times in a row"})
            self._leaving = True
        else:
            self._start(slot, ended.life + 1, failed_starts)

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
                    _signal(pid, signal.SIGKILL)  # processes that its call had started
                    self._restart(slot, _how(status))
                elif self._spare is not None and pid == self._spare.pid:
                    self._spare.close()
                    self._spare, self._spare_due = None, time.monotonic() + _NEXT_SPARE
                elif pid == self._link:
                    self._leaving = True

    def _send(self, message: dict[str, object]) -> None:
        with suppress(OSError):
            flags = socket.MSG_DONTWAIT if "beat" in message else 0  # only a heartbeat may be lost
            self._to_link.send(json.dumps(message).encode(), flags)

    def _end(self) -> None:
        """End the slots first: the pool counts their calls as lost when the link is gone, so nothing may run then."""
        if self._spare is not None:
            _signal(self._spare.pid, signal.SIGKILL)  # it has nothing to finish
        left = {process.pid for process in self._slots.values()}
        for pid in left:
            _signal(pid, signal.SIGTERM)
        until = time.monotonic() + GRACE
        while left:
            left = {pid for pid in left if not _gone(pid)}
            if time.monotonic() > until:
                for pid in left:
                    _signal(pid, signal.SIGKILL)
            self._wait()
        for process in self._slots.values():
            _signal(process.pid, signal.SIGKILL)  # processes that a call had started, and those that ignored SIGTERM
        self._to_link.close()  # the link sends its remaining messages, and ends
        until = time.monotonic() + GRACE
        while not _gone(self._link):
            if time.monotonic() > until:
                with suppress(OSError):
                    os.kill(self._link, signal.SIGKILL)
            self._wait()
        if self._guard:
            sweep()  # files of the link, if it was killed
            with suppress(OSError):
                os.kill(self._guard, signal.SIGKILL)

    def _wait(self) -> None:
        """Wait until a process has ended, or for a moment."""
        select.select([self._awake], [], [], 0.05)
        with suppress(BlockingIOError):
            os.read(self._awake, 4096)


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        return text[text.rindex(")") + 2] in "Tt"
    return False


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
    dask_messages.set_up()
    gc.freeze()  # loaded modules are shared with all forked processes
    node = DaskNode(DaskNodeOrder.of(text).arrived())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: node.leave())
    node.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
