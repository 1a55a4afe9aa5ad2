"""The console shows a working pool: a live view on a terminal, plain lines elsewhere, nothing on request.

The live view has the nodes by state, the tasks, a bar for every gather, why the last change was made, and the money.
What tasks print goes by above it, each line with the name of its task; with plain lines it does too.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, Protocol, runtime_checkable

from windlass.control.controller import Pass
from windlass.core.model.reasons import plural
from windlass.pool.errors import BadPool
from windlass.pool.runtime import changes_of
from windlass.pool.scheduler.tasks import ScheduledTask

from .status import PoolStatus, summary

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH = 0.25
"""Seconds between two pictures of the live view."""
PROGRESS_EVERY = 5.0
"""Seconds between two lines about one gather."""


class Progress(Protocol):
    """How far one gather is."""

    def on_result(self, position: int) -> None:
        """One more is there; on the pool's thread."""
        ...

    def ended(self) -> None:
        """It is over, or given up."""
        ...


@runtime_checkable
class Console(Protocol):
    """Shows what a pool does. Called from the pool's thread and from the user's."""

    def on_open(self, status: Callable[[], PoolStatus]) -> None:
        """The pool is up; ``status`` asks it."""
        ...

    def progress(self, count: int) -> Progress | None:
        """So many tasks were sent together; None: their progress is not shown."""
        ...

    def on_output(self, task: ScheduledTask, stream: str, line: str) -> None:
        """A task printed a line."""
        ...

    def on_pass(self, done: Pass) -> None:
        """The controller made a pass."""
        ...

    def on_message(self, text: str) -> None:
        """The controller has something to say."""
        ...

    def on_close(self) -> None:
        """The pool is closed, or about to be."""
        ...


class Silent:
    """Tells nothing, not even what tasks print."""

    def on_open(self, status: Callable[[], PoolStatus]) -> None:
        pass

    def progress(self, count: int) -> Progress | None:  # noqa: ARG002
        return None

    def on_output(self, task: ScheduledTask, stream: str, line: str) -> None:
        pass

    def on_pass(self, done: Pass) -> None:
        pass

    def on_message(self, text: str) -> None:
        pass

    def on_close(self) -> None:
        pass


class Lines:
    """Plain lines on standard error; what tasks print to where they printed it."""

    def __init__(self, out: IO[str] | None = None, err: IO[str] | None = None) -> None:
        self._out, self._err = out, err
        self._lock = threading.Lock()

    def on_open(self, status: Callable[[], PoolStatus]) -> None:
        pass

    def progress(self, count: int) -> Progress:
        return _LineProgress(self, count)

    def on_output(self, task: ScheduledTask, stream: str, line: str) -> None:
        given = self._out if stream == "stdout" else self._err
        where = given or (sys.stdout if stream == "stdout" else sys.stderr)
        with self._lock:
            where.write(f"[{task.label}] {line}\n")
            where.flush()

    def on_pass(self, done: Pass) -> None:
        for text in changes_of(done):
            self.on_message(text)

    def on_message(self, text: str) -> None:
        where = self._err or sys.stderr
        with self._lock:
            where.write(f"{time.strftime('%H:%M:%S')} {text}\n")
            where.flush()

    def on_close(self) -> None:
        pass


class _LineProgress:
    def __init__(self, console: Lines, count: int) -> None:
        self._console, self._count, self._done = console, count, 0
        self._said_at = time.monotonic()

    def on_result(self, position: int) -> None:  # noqa: ARG002
        self._done += 1
        now = time.monotonic()
        if now - self._said_at >= PROGRESS_EVERY:
            self._said_at = now
            self._console.on_message(f"{self._done} of {plural(self._count, 'task')} done")

    def ended(self) -> None:
        pass


class Live:
    """A view at the bottom of the terminal that is drawn again a few times a second."""

    def __init__(self, console: Any = None) -> None:
        """``console``: of rich; standard error if none is given."""
        from rich.console import Console as RichConsole

        self._rich = console or RichConsole(stderr=True)
        self._live: Any = None
        self._status: Callable[[], PoolStatus] | None = None
        self._bars: list[_Bar] = []
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def on_open(self, status: Callable[[], PoolStatus]) -> None:
        from rich.live import Live as RichLive

        self._status = status
        self._live = RichLive(self._drawn(), console=self._rich, auto_refresh=False, transient=True)
        self._live.start()
        self._thread = threading.Thread(target=self._refresh, name="windlass console", daemon=True)
        self._thread.start()

    def _refresh(self) -> None:
        while not self._stopped.wait(REFRESH):
            self._live.update(self._drawn(), refresh=True)

    def _drawn(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        assert self._status is not None
        status = self._status()
        parts: list[RenderableType] = [Text(summary(status), style="bold")]
        last = [f"last change: {status.last_change}"] if status.last_change else []
        parts += [Text(f"  {line}", style="dim", no_wrap=True, overflow="ellipsis") for line in (*status.rule, *last)]
        parts += [Text(f"  ! {trouble}", style="red") for trouble in status.troubles[-2:]]
        bars = Table.grid(padding=(0, 1))
        for bar in list(self._bars):
            bars.add_row(ProgressBar(bar.count, bar.done, width=40), f"{bar.done}/{bar.count}", bar.left())
        return Group(*parts, bars) if self._bars else Group(*parts)

    def progress(self, count: int) -> Progress:
        bar = _Bar(self._bars, count)
        self._bars.append(bar)
        return bar

    def on_output(self, task: ScheduledTask, stream: str, line: str) -> None:
        from rich.text import Text

        where = self._live.console if self._live is not None else self._rich
        where.print(Text.assemble((f"[{task.label}] ", "red" if stream == "stderr" else "cyan"), line))

    def on_pass(self, done: Pass) -> None:
        """What changed is in the picture."""

    def on_message(self, text: str) -> None:
        from rich.text import Text

        self._rich.print(Text(text, style="dim"))

    def on_close(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()
            self._live.stop()
            self._thread = None


class _Bar:
    def __init__(self, shown: list[_Bar], count: int) -> None:
        self._shown, self.count, self.done = shown, count, 0
        self._since = time.monotonic()

    def on_result(self, position: int) -> None:  # noqa: ARG002
        self.done += 1

    def left(self) -> str:
        """About how long it will take, by how long the others took."""
        if not self.done:
            return ""
        left = (time.monotonic() - self._since) * (self.count - self.done) / self.done
        return f"about {left:.0f} s left" if left >= 1 else ""

    def ended(self) -> None:
        if self in self._shown:
            self._shown.remove(self)


def console_of(given: object) -> Console:
    """The console that a word stands for."""
    if given in (False, None, "silent"):
        return Silent()
    if given in ("auto", True):
        return Live() if sys.stderr.isatty() else Lines()
    if given == "live":
        return Live()
    if given == "lines":
        return Lines()
    if isinstance(given, Console):
        return given
    raise BadPool(f"console must be 'auto', 'live', 'lines', 'silent' or an object with their methods, is {given!r}")
