"""The agent is the program that a host runs to join the queue and to run its tasks.

    WINDLASS_QUEUE_NODE='{"node": ..., ...}' python -m windlass.workloads.queue.agent DIRECTORY

It registers its node in the queue, claims the tasks that fit on the node, runs each in its own session, and reports
each end at once. Between events it sleeps. It wakes up for work (a socket), for a task that ended (a signal), and once
a second, to send a heartbeat and to poll the queue.

- On SIGTERM it stops claiming, ends its tasks (SIGTERM, SIGKILL after the grace period), puts them back into the queue,
  and exits.
- On eviction it ends its tasks in the same way and stays.
- When it is dismissed (its slice was forgotten), it ends its tasks and exits.
- While the queue is unavailable (a full disk, a missing directory, an unreadable file) its tasks keep running. It keeps
  its reports and retries; its status file shows that it is alive, and the error.
- On a host that cannot start tasks (no disk space, processes or memory) the task goes back into the queue, and the node
  reports the error and claims nothing until a test task starts again.
- When it is killed, its tasks are killed too, so that no task runs twice at the same time: the kernel kills the main
  process of each task (parent-death signal), and the ``Guard``, a process next to the agent, kills its descendants.

A task that the agent ended goes back into the queue whatever its exit status: a program that stops early often exits
with 0. Needs Linux. Standard library only, so that it starts in a twentieth of a second.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from .claims import Claim, Joined
from .database import Dismissed, QueueError, QueueGone, another
from .node_status import StatusFile
from .store import Queue
from .wakeup import AGENTS, WakeupSocket

NODE: Final = "WINDLASS_QUEUE_NODE"
"""The environment variable with the id and the resources of this node, as JSON."""
BEAT: Final = 1.0
"""Seconds between two heartbeats; after ten missed ones a node counts as unhealthy."""
HOST_ERRORS: Final = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EROFS, errno.EIO),
        *(errno.ESTALE, errno.ENOTCONN, errno.ENXIO),
    }
)
"""Errors at the start of a task that are caused by the host, not by the task."""
NO_MEMORY: Final = "there is no memory left"
"""The sentence for a ``MemoryError``, which has none."""
PROBE_EVERY: Final = 5.0
"""Seconds between two tests of a host that cannot start tasks."""
ABANDONED: Final = 600.0
"""Seconds without a queue after which an agent without tasks exits."""
JOIN_FOR: Final = 60.0
"""Seconds for which an agent retries to join."""
CANNOT_RUN: Final = 127
"""The exit code of a command that cannot be started, as in a shell."""

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None)


class RunningTask(NamedTuple):
    """A task and its process, the leader of a process group."""

    claim: Claim
    process: subprocess.Popen[bytes]


class Guard:
    """A process that kills the remaining process groups of the tasks when the agent has ended for any reason. It
    receives them through a pipe, and the end of that pipe shows the end of the agent.
    """

    def __init__(self) -> None:
        reading, self._pipe = os.pipe()
        is_apart, says_apart = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._pipe)
            os.close(is_apart)
            _stand_guard(reading, says_apart)
            os._exit(0)
        os.close(reading)
        os.close(says_apart)
        # On a busy host the guard starts late. Until it has left the agent's process group, a signal to that group
        # would kill both, so no task starts before that.
        os.read(is_apart, 1)
        os.close(is_apart)

    def watch(self, group: int) -> None:
        with suppress(OSError):  # the guard was killed: tasks run without it
            os.write(self._pipe, f"+{group}\n".encode())

    def unwatch(self, group: int) -> None:
        with suppress(OSError):
            os.write(self._pipe, f"-{group}\n".encode())

    def dismiss(self) -> None:
        os.close(self._pipe)
        os.waitpid(self.pid, 0)


def _stand_guard(reading: int, says_apart: int) -> None:
    os.setsid()  # a signal to the agent's process group does not reach the guard
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.write(says_apart, b"1")
    os.close(says_apart)
    groups: set[int] = set()
    with os.fdopen(reading, "rb") as words:
        for word in words:
            group = int(word[1:])
            groups.add(group) if word[:1] == b"+" else groups.discard(group)
    for group in groups:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)


class Agent:
    """Runs the tasks of one node until it is stopped."""

    def __init__(self, queue: Queue, place: Joined, guard: Guard, grace: float) -> None:
        self._queue, self._place, self._guard, self._grace = queue, place, guard, grace
        self._running: dict[int, RunningTask] = {}
        self._ended: dict[int, int | None] = {}
        """Claims whose end is not in the queue yet, with their exit code; None: the task goes back into the queue."""
        self._kill_at: float | None = None
        """When ending tasks are killed; None: no task is being ended."""
        self._leaving = False
        self._dismissed = False
        self._next_beat = 0.0
        self._wakeup: WakeupSocket | None = None
        self._status = StatusFile(queue.directory, place.node)
        self._said = ""
        self._failing_since: float | None = None
        """Since when the queue is unavailable."""
        self._problem = ""
        """Why this host cannot start tasks."""
        self._problem_written = ""
        self._probe_at = 0.0
        self._recalled: dict[int, float] = {}
        """Processes of cancelled tasks, and when they are killed."""

    def leave(self) -> None:
        """Stop claiming, end the tasks, exit."""
        self._leaving = True

    def run(self) -> None:
        """Run until the agent has left."""
        awake = _signals_that_wake()
        signal.signal(signal.SIGTERM, lambda *_: self.leave())
        signal.signal(signal.SIGINT, lambda *_: self.leave())
        self._listen()
        try:
            while not self._leaving or self._running:
                more = self._turn()
                if not more and (not self._leaving or self._running):
                    self._sleep(awake)
            if not self._dismissed:
                with suppress(QueueError):
                    self._report()
                    self._queue.leave(self._place)
        finally:
            self._status.remove()
            if self._wakeup is not None:
                self._wakeup.close()

    def _listen(self) -> None:
        if self._wakeup is None or not self._wakeup.path.exists():
            with suppress(OSError):
                if self._wakeup is not None:
                    self._wakeup.close()
                    self._wakeup = None
                self._wakeup = WakeupSocket(self._queue.directory, AGENTS)

    def _turn(self) -> bool:
        """Do one round of work; return whether another may follow at once."""
        more = False
        self._reap()
        try:
            if not self._dismissed:
                self._report()
                self._beat()
                more = not self._leaving and self._follow_commands()
                self._queue_works()
        except Dismissed as error:
            _say(f"{error}; ending")
            self._leaving = self._dismissed = True
        except (QueueError, OSError, MemoryError) as error:
            self._queue_fails(error)
        if self._leaving:
            self._end_tasks()
        self._kill_overdue()
        return more

    def _queue_works(self) -> None:
        if self._failing_since is not None:
            self._failing_since, self._said = None, ""
            self._listen()
        self._status.report(self._problem) if self._problem else self._status.clear()

    def _queue_fails(self, error: Exception) -> None:
        """Keep tasks and reports; the next heartbeat retries."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        text = (isinstance(error, QueueGone) and self._reopened()) or str(error) or NO_MEMORY
        if text != self._said:
            self._said = text
            _say(f"{text}; trying again")
        self._status.report(text)
        self._next_beat = now + BEAT
        if not self._running and now - self._failing_since >= ABANDONED:
            _say(f"there was no queue for {ABANDONED:g} s, and nothing runs; leaving")
            self._leaving = True

    def _reopened(self) -> str:
        """Open the queue again, because after a remount there may be another file at its path. Return the error if that
        is another queue: it knows nothing of this node, and the old one may come back.
        """
        with suppress(QueueError, OSError):
            found = Queue(self._queue.directory, create=False)
            if found.id != self._queue.id:
                found.close()
                return another(found.path, "end this machine")
            self._queue.close()
            self._queue = found
        return ""

    def _beat(self) -> None:
        if time.monotonic() >= self._next_beat:
            self._queue.beat(self._place)
            self._next_beat = time.monotonic() + BEAT

    def _follow_commands(self) -> bool:
        """End evicted tasks, or claim and start tasks; return whether anything was claimed."""
        commands = self._queue.commands(self._place)
        if commands.everything:
            self._end_tasks()
            return False
        self._call_back(commands.claims)
        if self._kill_at is not None or not self._is_able():
            return False
        claims = self._queue.claim(self._place)
        for claim in claims:
            self._start(claim)
        return bool(claims)

    def _sleep(self, awake: int) -> None:
        waits = select.poll()
        waits.register(awake, select.POLLIN)
        if self._wakeup is not None:
            waits.register(self._wakeup, select.POLLIN)
        # A dismissed agent sends no heartbeats: it only waits for the end of its tasks.
        until = time.monotonic() + BEAT if self._dismissed else self._next_beat
        until = min(until, self._kill_at or until, *self._recalled.values())
        waits.poll(max(until - time.monotonic(), 0) * 1000)
        if self._wakeup is not None:
            self._wakeup.clear()
        with suppress(BlockingIOError):
            os.read(awake, 4096)

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _call_back(self, claims: frozenset[int]) -> None:
        """End tasks of cancelled jobs, and of gangs that have lost a member."""
        for pid, (claim, _) in self._running.items():
            if claim.number in claims and pid not in self._recalled:
                self._recalled[pid] = time.monotonic() + self._grace
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)

    def _is_able(self) -> bool:
        """Whether this host can start tasks; after a failure it is tested from time to time."""
        if self._problem and time.monotonic() >= self._probe_at:
            self._probe_at = time.monotonic() + PROBE_EVERY
            self._problem = self._probe()
            if not self._problem:
                _say("this host can start tasks again")
        if self._problem != self._problem_written:
            self._queue.set_problem(self._place, self._problem)
            self._problem_written = self._problem
        return not self._problem

    def _probe(self) -> str:
        """Start a process and write a file as a task would; return the error, or nothing."""
        test = self._queue.directory / "logs" / f".probe-{os.getpid()}"
        try:
            with self._opened(test) as file:
                file.write(b"x" * 4096)
            subprocess.run(["true"], stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            return ""  # no such program: everything else worked
        except (OSError, subprocess.SubprocessError, MemoryError) as error:
            return _cannot_start(error)
        finally:
            with suppress(OSError):
                test.unlink()
        return ""

    def _opened(self, file: Path) -> BinaryIO:
        """Open a file of the queue for appending, and make its directories. ``QueueGone`` if that of the queue is
        missing: a new one would be in the way of the old one when it comes back.
        """
        try:
            inside = [one for one in file.parents if self._queue.directory in one.parents]
            for directory in reversed(inside):
                directory.mkdir(mode=0o700, exist_ok=True)
            return file.open("ab")
        except FileNotFoundError as error:
            raise QueueGone(f"there is no directory {self._queue.directory}; put it back") from error

    def _start(self, claim: Claim) -> None:
        log = self._queue.directory / "logs" / claim.job / f"{claim.task}.log"
        environment = {name: value for name, value in os.environ.items() if name != NODE} | {
            **claim.environment,
            "WINDLASS_TASK": f"{claim.job}/{claim.task}",
            "WINDLASS_TASK_INDEX": str(claim.task),
            "WINDLASS_NODE": self._place.node,
        }
        agent = os.getpid()

        def die_with_the_agent() -> None:
            self._guard.watch(os.getpid())  # the task registers itself, before it can have started anything
            _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != agent:  # the parent died before the signal was set
                os._exit(CANNOT_RUN)

        try:
            with self._opened(log) as out:
                try:
                    process = subprocess.Popen(
                        claim.command,
                        cwd=claim.directory,
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                        preexec_fn=die_with_the_agent,
                    )
                except (OSError, ValueError) as error:
                    if not _is_the_hosts(error):
                        out.write(f"windlass: cannot run {claim.command[0]} in {claim.directory}: {error}\n".encode())
                        out.flush()
                    raise
        except QueueGone:
            self._ended[claim.number] = None  # it was moved away after the claim: the task waits until it is back
        except (OSError, ValueError, subprocess.SubprocessError, MemoryError) as error:
            _say(f"{claim.job}/{claim.task} cannot be started: {error}")
            if _is_the_hosts(error):
                self._ended[claim.number] = None  # back into the queue, for another host
                self._problem = _cannot_start(error)
                self._probe_at = time.monotonic() + PROBE_EVERY
            else:
                self._ended[claim.number] = CANNOT_RUN
        else:
            self._running[process.pid] = RunningTask(claim, process)

    def _reap(self) -> None:
        """Report tasks that have ended since the last check, and kill the rest of their process groups."""
        for pid, (claim, process) in list(self._running.items()):
            # Checked without reaping: while the dead session leader exists, its process id is not reused.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self._guard.unwatch(pid)
            code = process.wait()
            del self._running[pid]
            # Checked after the task was seen dead: a process that ends both of us signals us first.
            asked = self._leaving or self._kill_at is not None or self._recalled.pop(pid, None) is not None
            self._ended[claim.number] = None if asked else code if code >= 0 else 128 - code
        if not self._running:
            self._kill_at = None

    def _report(self) -> None:
        for claim, code in list(self._ended.items()):
            self._queue.report(self._place, claim, code)
            del self._ended[claim]

    def _end_tasks(self) -> None:
        if self._running and self._kill_at is None:
            self._kill_at = time.monotonic() + self._grace
            self._signal(signal.SIGTERM)

    def _kill_overdue(self) -> None:
        for pid, at in self._recalled.items():
            if time.monotonic() >= at:
                self._recalled[pid] = time.monotonic() + BEAT
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._signal(signal.SIGKILL)
            self._kill_at = time.monotonic() + BEAT

    def _signal(self, number: int) -> None:
        for pid in self._running:
            with suppress(ProcessLookupError):
                os.killpg(pid, number)


def _signals_that_wake() -> int:
    """Return a file descriptor that becomes readable on a signal."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _is_the_hosts(error: Exception) -> bool:
    """Whether an error at the start of a task is the host's fault, not the task's."""
    by_kind = isinstance(error, subprocess.SubprocessError | MemoryError)
    return by_kind or getattr(error, "errno", None) in HOST_ERRORS


def _cannot_start(error: Exception) -> str:
    """Return the problem of a host that cannot start tasks. It is the same for every file, so that a repeated problem
    is reported once.
    """
    return f"this host cannot start tasks: {getattr(error, 'strerror', None) or str(error) or NO_MEMORY}"


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # its log may be on the full disk
        sys.stderr.write(f"windlass: {text}\n")
        sys.stderr.flush()


def _joined(directory: str, node: dict[str, Any]) -> tuple[Queue, Joined]:
    """Return the queue and the node's place in it. An unavailable queue is retried for a while."""
    until = time.monotonic() + JOIN_FOR
    while True:
        try:
            queue = Queue(directory, create=False)
            return queue, queue.join(node["node"], node["slice"], node["resources"], node["labels"])
        except Dismissed:
            raise
        except QueueError as error:
            if time.monotonic() >= until:
                raise
            _say(f"{error}; trying again")
            time.sleep(BEAT)


def main(directory: str) -> int:
    """Join, run, leave."""
    guard = Guard()
    try:
        node = json.loads(os.environ[NODE])
        grace = float(node["grace"])
        queue, place = _joined(directory, node)
    except (KeyError, ValueError, TypeError) as error:
        _say(f"{NODE} does not say which node this is ({error!r}); run what the workload says a host must run to join")
        return 2
    except QueueError as error:
        _say(str(error))
        return 1
    Agent(queue, place, guard, grace).run()
    queue.close()
    guard.dismiss()
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {NODE}=... python -m windlass.workloads.queue.agent DIRECTORY")
    sys.exit(main(sys.argv[1]))
