"""This program is one slot: it runs the calls that the node link sends, one after the other.

It has no event loop and no network: calls and their events go over a local socket. The number of the running item and
the results of finished items are in the `SlotPage`, so they are known even when the process dies in the middle of a
call.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from windlass.pool.transport.data_store import Packed, StorePlace, create
from windlass.pool.transport.framing import receive_frame, send_frame
from windlass.pool.transport.output_capture import ProcessOutput
from windlass.pool.transport.runner import Runner, Stream
from windlass.pool.transport.serialization import result_entry
from windlass.pool.transport.slot_page import SlotPage
from windlass.pool.transport.working_directory import enter_program
from windlass.providers.remote.tunnels import is_remote

from .messages import MOST


class SlotRunner:
    """Runs calls until the node link has ended."""

    def __init__(self, page: SlotPage, link: socket.socket, log: int) -> None:
        self._page, self._link = page, link
        self._away = is_remote()
        self._runner = Runner(ProcessOutput(log), self._fetch, self._deliver, away=self._away)
        self._place: StorePlace | None = None
        """The directories of this node's values, if the pool is on another machine."""

    def serve(self) -> None:
        while (frame := receive_frame(self._link)) is not None:
            call, items, blob, environment = frame
            self._run(call, items, blob, environment)

    def _run(self, call: str, items: int, blob: bytes, environment: dict[str, str]) -> None:
        began, page = time.perf_counter(), self._page
        with page:
            page.start(call, items)
        self.send("began", call)
        broken = ""

        def ended(_item: int, result: Any) -> bool:
            entry = result_entry(result)
            seconds = time.perf_counter() - began
            if len(entry) > MOST:
                raise OverflowError(f"the result of the call is {len(entry):,} bytes long; {MOST:,} can be carried")
            if not page.put(entry, seconds):
                self.send("results", call, seconds, entry)
            return page.next()

        try:
            self._runner.execute(blob, _Events(self, call), environment, ended)
        except Exception as error:  # noqa: BLE001  # an error of the user's is a result; this one is ours
            broken = f"the call could not be run: {type(error).__name__}: {error}"
        with page:
            page.stop()
        self.send("over", call, time.perf_counter() - began, broken)

    def _fetch(self, name: str, path: str) -> str:
        """Return the local path of a shared value: the pool's own file on its machine; on another machine a copy, which
        the node link fetches once for all slots.
        """
        if not self._away and os.path.exists(path):  # noqa: PTH110  # quick
            return path
        found, why = self._ask("fetch", name)
        if not found:
            raise LookupError(f"a value that was sent to the pool is not there any more: {why}")
        return str(found)

    def _deliver(self, name: str, value: Packed) -> str:
        """Send a large result to the pool on another machine: write a file here, which the node link sends. The call
        waits for that, so unsent results never accumulate.
        """
        if self._place is None:
            self._place = StorePlace(*self._ask("place", ""))
        path = create(self._place, name, value)
        try:
            found, why = self._ask("put", name, path)
        finally:
            Path(path).unlink(missing_ok=True)
        if not found:
            raise OSError(why)
        return str(found)

    def _ask(self, *message: Any) -> Any:
        self.send(*message)
        answer = receive_frame(self._link)
        if answer is None:
            raise OSError("the node lost its link to the pool")
        return answer

    def send(self, *message: Any) -> None:
        send_frame(self._link, message)


class _Events:
    """Forwards the output and the values of a call."""

    def __init__(self, slot: SlotRunner, call: str) -> None:
        self._slot, self._call = slot, call

    def on_output(self, item: int, stream: Stream, line: str) -> None:
        self._slot.send("said", self._call, item, stream, line)

    def on_value(self, item: int, blob: Any) -> None:
        self._slot.send("yielded", self._call, item, blob)


def live(directory: str, path: Sequence[str], page: SlotPage, link: socket.socket) -> None:
    """Run a slot in this process, which was forked for it."""
    random.seed()
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()
    enter_program(directory, path)
    with suppress(OSError):  # the node link is gone, and the node with it
        SlotRunner(page, link, os.dup(2)).serve()
