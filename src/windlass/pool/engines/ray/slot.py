"""A slot is a Ray actor in which calls run one after the other.

The events of a call are the values of a generator, in order: Ray forwards each value at once. Results that are ready
while one is forwarded are sent together in the next value.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from windlass.pool.transport.node_data import DataAccess, NodeData
from windlass.pool.transport.output_capture import ProcessOutput
from windlass.pool.transport.runner import Runner, Stream
from windlass.pool.transport.serialization import pack_result
from windlass.pool.transport.working_directory import enter_program
from windlass.providers.remote.tunnels import is_remote

from .messages import DATA

Words = tuple[Any, ...]

CONCURRENCY: Final = 2
"""The actor of a slot: one method runs a call, the other takes back its items."""


class RaySlot:
    """The actor."""

    def __init__(self, directory: str, path: Sequence[str]) -> None:
        enter_program(directory, path)
        self._runner = self._own_runner(os.environ.pop(DATA, ""))
        self._lock = threading.Lock()
        self._call, self._begun, self._limit = "", 0, 0

    @staticmethod
    def _own_runner(access: str) -> Runner:
        """``access``: the path of the `DataAccess` file, if the pool is on another machine."""
        output = ProcessOutput(os.dup(2))
        if not is_remote() or not Path(access).is_file():
            return Runner(output)
        data = NodeData(DataAccess.read(Path(access)))
        return Runner(output, data.fetch, data.deliver, away=True)

    def ready(self) -> bool:
        return True

    def carry(self, call: str, items: int, blob: bytes, environment: Mapping[str, str]) -> Iterator[Words]:
        """Run a call to its end."""
        messages: queue.SimpleQueue[Words] = queue.SimpleQueue()
        with self._lock:
            self._call, self._begun, self._limit = call, 1, items
        yield ("began",)
        # In a thread, so that its output and results are forwarded while it runs.
        threading.Thread(target=self._execute, args=(blob, environment, messages), name="windlass-call").start()
        while True:
            message = messages.get()
            if message[0] == "result":
                results, seconds = [message[2]], message[1]
                while not messages.empty():
                    message = messages.get()
                    if message[0] != "result":
                        break
                    results.append(message[2])
                    seconds = message[1]
                yield "results", seconds, results
            if message[0] != "result":
                yield message
            if message[0] in ("done", "broken"):
                return

    def keep_begun(self, call: str) -> int | None:
        """Take back the items of a call that have not begun; return how many remain, None if it does not run."""
        with self._lock:
            if self._call != call:
                return None
            self._limit = min(self._limit, self._begun)
            return self._limit

    def _execute(self, blob: bytes, environment: Mapping[str, str], messages: queue.SimpleQueue[Words]) -> None:
        started = time.perf_counter()

        def ended(_item: int, result: Any) -> bool:
            messages.put(("result", time.perf_counter() - started, pack_result(result)))
            with self._lock:
                if self._begun >= self._limit:
                    self._call = ""
                    return False
                self._begun += 1
                return True

        try:
            self._runner.execute(blob, _MessageSink(messages), environment, ended)
        except Exception as error:  # noqa: BLE001  # an error of the user's is a result; this one is ours
            messages.put(("broken", f"the call could not be run: {type(error).__name__}: {error}"))
        else:
            messages.put(("done",))


class _MessageSink:
    """Collects the events of a call for the pool."""

    def __init__(self, messages: queue.SimpleQueue[Words]) -> None:
        self._messages = messages

    def on_output(self, item: int, stream: Stream, line: str) -> None:
        self._messages.put(("said", item, stream, line))

    def on_value(self, item: int, blob: bytes) -> None:
        self._messages.put(("yielded", item, blob))
