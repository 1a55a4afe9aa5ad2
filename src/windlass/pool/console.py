"""What a pool tells while it works."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Protocol

from windlass.control.loop import Pass
from windlass.control.story import lines
from windlass.workloads.pool.tasks import Task

if TYPE_CHECKING:
    from .pool import ComputePool


class Progress(Protocol):
    def arrived(self, position: int) -> None: ...

    def ended(self) -> None: ...


class Console(Protocol):
    def opened(self, pool: ComputePool) -> None: ...
    def submitted(self, count: int) -> None: ...
    def progress(self, count: int) -> Progress: ...
    def said(self, task: Task, stream: str, line: str) -> None: ...
    def passed(self, done: Pass) -> None: ...
    def told(self, text: str) -> None: ...
    def closing(self) -> None: ...
    def closed(self) -> None: ...


class Silent:
    """Tells nothing but what tasks print."""

    def opened(self, pool: ComputePool) -> None:
        pass

    def submitted(self, count: int) -> None:
        pass

    def progress(self, count: int) -> Progress:
        return _NoProgress()

    def said(self, task: Task, stream: str, line: str) -> None:
        pass

    def passed(self, done: Pass) -> None:
        pass

    def told(self, text: str) -> None:
        pass

    def closing(self) -> None:
        pass

    def closed(self) -> None:
        pass


class _NoProgress:
    def arrived(self, position: int) -> None:
        pass

    def ended(self) -> None:
        pass


class Lines(Silent):
    def said(self, task: Task, stream: str, line: str) -> None:
        print(f"[{task.label}] {line}", file=sys.stderr, flush=True)

    def passed(self, done: Pass) -> None:
        for line in lines(done.entries):
            if line.kind in ("launch", "slice", "trouble"):
                print(f"{time.strftime('%H:%M:%S')} {line.text}", file=sys.stderr, flush=True)

    def told(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def console_of(given: object) -> Console:
    if given in (False, None, "silent"):
        return Silent()
    return Lines()
