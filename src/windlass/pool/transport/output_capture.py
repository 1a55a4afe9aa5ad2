"""ProcessOutput reads everything that is printed on a slot, also by C code and by programs that a task starts. The
slot's stdout and stderr are pipes for the whole life of its process. A thread reads them while an item runs, so lines
are reported as they are printed. Between two items the runner itself reads what is left in the pipes, so that no line
is reported for the wrong item; that costs one system call.
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
    """Captures the output of this process. Created once, before the first item."""

    def __init__(self, log: int) -> None:
        """``log``: a file descriptor for output between two items."""
        self._log = log
        self._lock = threading.Lock()
        self._sink: Sink | None = None
        """The sink of the running batch; None if no batch runs."""
        self._item = 0
        self._pipes: dict[int, Stream] = {}
        self._printed = select.epoll()
        self._parts: dict[Stream, bytes] = {}
        """The beginnings of unfinished lines."""
        for number, stream in _STREAMS:
            reading, writing = os.pipe()
            os.dup2(writing, number)
            os.close(writing)
            os.set_blocking(reading, False)
            self._pipes[reading] = stream
            self._printed.register(reading, select.EPOLLIN)
        # Line buffering, as on a terminal; by default a pipe is written only when a buffer is full.
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
        """Report what the item that has just run printed."""
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
        """Report text after the last line break as a line."""
        for stream, part in self._parts.items():
            self._deliver(stream, part)
        self._parts.clear()

    def _deliver(self, stream: Stream, line: bytes) -> None:
        if self._sink is None:
            with suppress(OSError):
                os.write(self._log, line + b"\n")
        else:
            self._sink.on_output(self._item, stream, line.decode("utf-8", "backslashreplace"))
