"""The console shows a working pool: a live view on a terminal, plain lines elsewhere, nothing on request.

The live view shows the nodes by state, the tasks, a progress bar for every gather, why the last change was made, and
the cost. Above it appears what tasks print, each line with the name of its task. Plain lines show it too.
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
"""Seconds between two updates of the live view."""
PROGRESS_EVERY = 5.0
"""Seconds between two lines about one gather."""


class Progress(Protocol):
    """The progress of one gather."""

    def on_result(self, position: int) -> None:
        """Count one more task that has run: it returned a value or raised. Called on the pool's thread."""
        ...

    def on_failed(self, position: int) -> None:
        """Count one more task that the pool ended without a result: it crashed, or there was no node for it. Called on
        the pool's thread.
        """
        ...

    def ended(self) -> None:
        """End the progress: all results are there, or the caller gave up."""
        ...


@runtime_checkable
class Console(Protocol):
    """Shows what a pool does. Called from the pool's thread and from the user's."""

    def on_open(self, status: Callable[[], PoolStatus]) -> None:
        """Note that the pool has started. ``status`` returns its status."""
        ...

    def progress(self, count: int) -> Progress | None:
        """Note that ``count`` tasks were submitted together. Return their progress, or None if it is not shown."""
        ...

    def on_output(self, task: ScheduledTask, stream: str, line: str) -> None:
        """A task printed a line."""
        ...

    def on_pass(self, done: Pass) -> None:
        """Note what a pass of the controller changed."""
        ...

    def on_message(self, text: str) -> None:
        """Show a message of the controller."""
        ...

    def on_close(self) -> None:
        """Note that the pool closes."""
        ...


class Silent:
    """Shows nothing, not even what tasks print."""

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
    """Prints plain lines on standard error. What tasks print goes to the same stream here."""

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
        self._console, self._count, self._done, self._failed = console, count, 0, 0
        self._said_at = time.monotonic()

    def on_result(self, position: int) -> None:  # noqa: ARG002
        self._done += 1
        now = time.monotonic()
        if now - self._said_at >= PROGRESS_EVERY:
            self._said_at = now
            failed = f", {self._failed} failed" if self._failed else ""
            self._console.on_message(f"{self._done} of {plural(self._count, 'task')} done{failed}")

    def on_failed(self, position: int) -> None:  # noqa: ARG002
        self._failed += 1

    def ended(self) -> None:
        pass


class Live:
    """Draws a view at the bottom of the terminal, a few times a second."""

    def __init__(self, console: Any = None) -> None:
        """``console``: a console of rich, by default on standard error."""
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
        parts += [Text(f"  ! {problem}", style="red") for problem in status.troubles[-2:]]
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
        """Show nothing: the view contains the change."""

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

    on_failed = on_result

    def left(self) -> str:
        """Estimate the remaining time from the time of the finished tasks."""
        if not self.done:
            return ""
        left = (time.monotonic() - self._since) * (self.count - self.done) / self.done
        return f"about {left:.0f} s left" if left >= 1 else ""

    def ended(self) -> None:
        if self in self._shown:
            self._shown.remove(self)


def console_of(given: object) -> Console:
    """Return the console for the ``console`` argument of a pool."""
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
