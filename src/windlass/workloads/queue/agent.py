"""The agent is the program that a host runs to join the queue and to run its tasks.

    WINDLASS_QUEUE_NODE='{"node": ..., ...}' python -m windlass.workloads.queue.agent DIRECTORY

It takes its node's place in the queue, claims what the node has room for, runs each task in a session of its own, and
reports each end at once. Between events it sleeps: a socket wakes it for work, the kernel for a task that ended, and
once a second the clock, to say that it is alive and to look even if nothing woke it.

- Asked to end (SIGTERM), it claims nothing more, ends its tasks (SIGTERM, SIGKILL after the grace period), puts them
  back to waiting, and leaves.
- Asked to evict, it ends its tasks in the same way and stays.
- Dismissed (its slice was forgotten), it ends its tasks and itself.
- Without a queue (a full disk, a directory that is away, a file that cannot be read) its tasks run on. It keeps what it
  has to report and tries again; its status file says that it is alive and what is wrong.
- On a host that cannot start tasks (no room, no processes, no memory) the task waits again, and the node reports the
  trouble and claims nothing until a test shows that it is over.
- Killed, it takes its tasks with it, so that no task runs twice at the same time: the kernel kills each task's own
  process (the parent-death signal), and the ``Guard``, a process next to the agent, whatever that one had started.

A task that was asked to end waits again whatever its exit status says: a program that stops early often says 0.
Needs Linux. Standard library only, so that it starts in a twentieth of a second.
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
from typing import Any, Final, NamedTuple

from .claims import Claim, Joined
from .database import Dismissed, QueueError, QueueGone
from .node_status import StatusFile
from .store import Queue
from .wakeup import AGENTS, WakeupSocket

NODE: Final = "WINDLASS_QUEUE_NODE"
"""In the environment: which node this is and what it has, as JSON."""
BEAT: Final = 1.0
"""Seconds between two signs of life: ten are missed before a node counts as unhealthy."""
HOST_TROUBLE: Final = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EROFS, errno.EIO),
        *(errno.ESTALE, errno.ENOTCONN, errno.ENXIO),
    }
)
"""Errors at the start of a task that are the host's and not the task's."""
PROBE_EVERY: Final = 5.0
"""Seconds between two tests of a host that could not start a task."""
ABANDONED: Final = 600.0
"""Seconds without a queue after which an agent that has nothing to run leaves."""
JOIN_FOR: Final = 60.0
"""Seconds for which an agent tries to join."""
CANNOT_RUN: Final = 127
"""The exit code of a command that cannot be started, as a shell would say it."""

_PR_SET_PDEATHSIG: Final = 1
_libc = ctypes.CDLL(None)


class RunningTask(NamedTuple):
    """A task and its process, the leader of a process group."""

    claim: Claim
    process: subprocess.Popen[bytes]


class Guard:
    """A process that outlives the agent by a moment: when the agent is gone, however it went, it kills what is left of
    the process groups of its tasks. It learns of them by a pipe, and of the agent's end by the end of that pipe."""

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
        # On a busy host the guard starts late. Before it has left the agent's process group, a signal to that group
        # would kill both, so no task may start until it has.
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
        """Claims whose end is not in the queue yet, with their exit code; None: they wait again."""
        self._kill_at: float | None = None
        """When what was asked to end is killed; None: nothing was asked to."""
        self._leaving = False
        self._dismissed = False
        self._next_beat = 0.0
        self._wakeup: WakeupSocket | None = None
        self._status = StatusFile(queue.directory, place.node)
        self._said = ""
        self._failing_since: float | None = None
        """Since when the queue cannot be used."""
        self._trouble = ""
        """Why this host cannot start tasks."""
        self._trouble_written = ""
        self._probe_at = 0.0
        self._recalled: dict[int, float] = {}
        """Processes of tasks that were called back, and when they are killed."""

    def leave(self) -> None:
        """Claim nothing more, end what runs, go."""
        self._leaving = True

    def run(self) -> None:
        """Until it has left."""
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
        """Do what is to be done; whether there may be more at once."""
        more = False
        self._reap()
        try:
            if not self._dismissed:
                self._report()
                self._beat()
                more = not self._leaving and self._obey()
                self._queue_works()
        except Dismissed as error:
            _say(f"{error}; ending")
            self._leaving = self._dismissed = True
        except (QueueError, OSError) as error:
            self._queue_fails(error)
        if self._leaving:
            self._end_tasks()
        self._kill_overdue()
        return more

    def _queue_works(self) -> None:
        if self._failing_since is not None:
            self._failing_since, self._said = None, ""
            self._listen()
        self._status.report(self._trouble) if self._trouble else self._status.clear()

    def _queue_fails(self, error: Exception) -> None:
        """Tasks run on, what is to be reported is kept, and the next beat tries again."""
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        if str(error) != self._said:
            self._said = str(error)
            _say(f"{error}; trying again")
        self._status.report(str(error))
        self._next_beat = now + BEAT
        if isinstance(error, QueueGone):
            self._reopen()
        if not self._running and now - self._failing_since >= ABANDONED:
            _say(f"there was no queue for {ABANDONED:g} s, and nothing runs; leaving")
            self._leaving = True

    def _reopen(self) -> None:
        """Another file may have taken the place of the one that was opened, such as after a remount."""
        with suppress(QueueError, OSError):
            fresh = Queue(self._queue.directory, create=False)
            self._queue.close()
            self._queue = fresh

    def _beat(self) -> None:
        if time.monotonic() >= self._next_beat:
            self._queue.beat(self._place)
            self._next_beat = time.monotonic() + BEAT

    def _obey(self) -> bool:
        """End what must be evicted, or else start what there is room for; whether anything was claimed."""
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
        # A dismissed agent beats no more: what is left to wait for is the end of its tasks.
        until = time.monotonic() + BEAT if self._dismissed else self._next_beat
        until = min(until, self._kill_at or until, *self._recalled.values())
        waits.poll(max(until - time.monotonic(), 0) * 1000)
        if self._wakeup is not None:
            self._wakeup.clear()
        with suppress(BlockingIOError):
            os.read(awake, 4096)

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _call_back(self, claims: frozenset[int]) -> None:
        """End tasks of jobs that were cancelled, and of gangs that have lost a member."""
        for pid, (claim, _) in self._running.items():
            if claim.number in claims and pid not in self._recalled:
                self._recalled[pid] = time.monotonic() + self._grace
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGTERM)

    def _is_able(self) -> bool:
        """Whether this host can start tasks; one that could not is tested now and then."""
        if self._trouble and time.monotonic() >= self._probe_at:
            self._probe_at = time.monotonic() + PROBE_EVERY
            self._trouble = self._probe()
            if not self._trouble:
                _say("this host can start tasks again")
        if self._trouble != self._trouble_written:
            self._queue.set_trouble(self._place, self._trouble)
            self._trouble_written = self._trouble
        return not self._trouble

    def _probe(self) -> str:
        """Start and write something as a task would; what is wrong, or nothing."""
        test = self._queue.directory / "logs" / f".probe-{os.getpid()}"
        try:
            test.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            test.write_bytes(b"x" * 4096)
            subprocess.run(["true"], stdin=subprocess.DEVNULL, check=False)
        except FileNotFoundError:
            return ""  # no such program: the rest has worked
        except (OSError, subprocess.SubprocessError) as error:
            return f"this host cannot start tasks: {error}"
        finally:
            with suppress(OSError):
                test.unlink()
        return ""

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
            if os.getppid() != agent:  # it died before the signal was asked for
                os._exit(CANNOT_RUN)

        try:
            log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with log.open("ab") as out:
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
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            _say(f"{claim.job}/{claim.task} cannot be started: {error}")
            if _is_the_hosts(error):
                self._ended[claim.number] = None  # it waits again, for another host
                self._trouble = f"this host cannot start tasks: {error}"
                self._probe_at = time.monotonic() + PROBE_EVERY
            else:
                self._ended[claim.number] = CANNOT_RUN
        else:
            self._running[process.pid] = RunningTask(claim, process)

    def _reap(self) -> None:
        """What has ended since the last check, with all that it left behind in its process group."""
        for pid, (claim, process) in list(self._running.items()):
            # Looked at without taking it away: while the dead session leader exists, its process id is not reused.
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                continue
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            self._guard.unwatch(pid)
            code = process.wait()
            del self._running[pid]
            # Asked after the task was seen dead: the process that ends both of us notifies us first.
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
    """A handle that can be read from as soon as a signal came."""
    reading, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return reading


def _is_the_hosts(error: Exception) -> bool:
    """Whether it is the host that cannot start a task, and not the task that cannot be started."""
    return isinstance(error, subprocess.SubprocessError) or getattr(error, "errno", None) in HOST_TROUBLE


def _say(text: str) -> None:
    with suppress(OSError, ValueError):  # its log may be on the disk that is full
        sys.stderr.write(f"windlass: {text}\n")
        sys.stderr.flush()


def _joined(directory: str, node: dict[str, Any]) -> tuple[Queue, Joined]:
    """The queue and the node's place in it. A queue that cannot be used just now is tried again for a while."""
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
