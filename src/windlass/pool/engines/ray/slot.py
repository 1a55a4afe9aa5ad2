"""The process of one slot: a Ray actor in which calls run one after the other.

What becomes of a call comes back as the values of a generator, in order: Ray hands on each as it is given.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import ray

from windlass.pool.transport.output_capture import ProcessOutput
from windlass.pool.transport.runner import Runner, Stream


class RaySlot:
    """The actor."""

    def __init__(self, path: Sequence[str]) -> None:
        sys.path.extend(one for one in path if one not in sys.path)
        self._shared: Mapping[str, Sequence[Any]] = {}
        self._runner = Runner(self._fetch, ProcessOutput(os.dup(2)))

    def ready(self) -> bool:
        return True

    def carry(self, blob: bytes, environment: Mapping[str, str], shared: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
        """Run a call to its end. ``shared``: for each name a list with the reference, which Ray leaves as it is."""
        told: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        yield ("began",)
        self._shared = shared
        # In a thread, so that what it says while it runs can be handed on.
        threading.Thread(target=self._execute, args=(blob, environment, told), name="windlass-call").start()
        words: tuple[Any, ...] = ()
        while words[:1] not in (("done",), ("broken",)):
            words = told.get()
            yield words

    def forget(self, name: str) -> None:
        self._runner.forget(name)

    def _execute(self, blob: bytes, environment: Mapping[str, str], told: queue.SimpleQueue[tuple[Any, ...]]) -> None:
        try:
            result = self._runner.execute(blob, _Telling(told), environment)
        except Exception as error:  # noqa: BLE001  # not the user's own, which is in the result: ours
            told.put(("broken", f"the call could not be run: {type(error).__name__}: {error}"))
        else:
            told.put(("done", result))

    def _fetch(self, name: str) -> bytes:
        """Ray brings it to a node once, and all slots read it there."""
        if name not in self._shared:
            raise RuntimeError(f"{name} is not among what the call said it needs")
        blob: bytes = ray.get(self._shared[name][0])
        return blob


class _Telling:
    """What happens in a call, on its way to the pool."""

    def __init__(self, told: queue.SimpleQueue[tuple[Any, ...]]) -> None:
        self._told = told

    def said(self, item: int, stream: Stream, line: str) -> None:
        self._told.put(("said", item, stream, line))

    def yielded(self, item: int, blob: bytes) -> None:
        self._told.put(("yielded", item, blob))
