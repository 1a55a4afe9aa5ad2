"""Output capture reads everything that is printed on a slot, also by C code and by programs that a task starts.

The slot's stdout and stderr are pipes for the whole life of its process. A thread reads them while an item runs, so
that lines are reported as they come; between two items what is still in the pipes is read by the runner itself, so that
no line is reported for the wrong one, at the price of one system call.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from windlass.pool.transport.runner import Stream

from .runner import LONGEST_LINE, Sink, Turn

_STREAMS: Final[tuple[tuple[int, Stream], ...]] = ((1, "stdout"), (2, "stderr"))


class ProcessOutput:
    """Catches the output of this very process. Made once, before the first item."""

    def __init__(self, log: int) -> None:
        """``log``: a file descriptor to which goes what is printed between two items."""
        self._log = log
        self._lock = threading.Lock()
        self._sink: Sink | None = None
        """Of the batch that runs; None: none does."""
        self._item = 0
        self._pipes: dict[int, Stream] = {}
        self._printed = select.epoll()
        self._parts: dict[Stream, bytes] = {}
        """Of lines that have not come to their end."""
        for number, stream in _STREAMS:
            reading, writing = os.pipe()
            os.dup2(writing, number)
            os.close(writing)
            os.set_blocking(reading, False)
            self._pipes[reading] = stream
            self._printed.register(reading, select.EPOLLIN)
        # Whole lines at once, as on a terminal; the default for a pipe would keep them back until a buffer is full.
        sys.stdout = os.fdopen(1, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)
        threading.Thread(target=self._listen, name="windlass-output", daemon=True).start()

    @contextmanager
    def batch(self, sink: Sink) -> Iterator[Turn]:
        try:
            yield partial(self._switch, sink)
        finally:
            self._switch(None, 0)

    def _switch(self, sink: Sink | None, item: int) -> None:
        """Report what was printed until now for the item whose turn it was."""
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except Exception:  # noqa: BLE001  # a task may have closed them
            pass
        with self._lock:
            # One system call when nothing was printed, which is nearly always.
            if ready := self._printed.poll(0):
                self._read(ready)
            if self._parts:
                self._finish()
            self._sink, self._item = sink, item

    def _listen(self) -> None:
        while True:
            ready = self._printed.poll()
            with self._lock:
                self._read(ready)

    def _read(self, ready: Iterable[tuple[int, int]]) -> None:
        for pipe, _ in ready:
            stream = self._pipes[pipe]
            with suppress(BlockingIOError):
                while some := os.read(pipe, 1 << 16):
                    *lines, rest = (self._parts.pop(stream, b"") + some).split(b"\n")
                    for line in lines:
                        self._deliver(stream, line)
                    while len(rest) > LONGEST_LINE:
                        self._deliver(stream, rest[:LONGEST_LINE])
                        rest = rest[LONGEST_LINE:]
                    if rest:
                        self._parts[stream] = rest

    def _finish(self) -> None:
        """What stands after the last end of a line is a line too."""
        for stream, part in self._parts.items():
            self._deliver(stream, part)
        self._parts.clear()

    def _deliver(self, stream: Stream, line: bytes) -> None:
        if self._sink is None:
            with suppress(OSError):
                os.write(self._log, line + b"\n")
        else:
            self._sink.on_output(self._item, stream, line.decode("utf-8", "backslashreplace"))
