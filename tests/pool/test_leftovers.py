"""What a killed program left is removed by the next pool: its directories, and processes that no guard has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from windlass.pool.transport.process_session import BASE, sweep_sessions
from windlass.pool.transport.temp_dirs import OWNER, own_directory, sweep
from windlass.providers.local.supervisor import HostProcess

from .processes import Program, children, command, eventually
from .quick import quick_pool


def test_the_directory_of_a_program_that_is_gone_is_removed_and_no_other(tmp_path):
    program = (
        "import sys, pathlib\n"
        "from windlass.pool.transport.temp_dirs import own_directory\n"
        "print(own_directory(pathlib.Path(sys.argv[1])))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    dead = Path(done.stdout.strip())
    assert (dead / OWNER).exists()
    foreign = tmp_path / "windlass-pool-without-an-owner"
    foreign.mkdir()
    link = tmp_path / "windlass-pool-link"
    link.symlink_to(dead)
    mine = own_directory(tmp_path)
    assert not dead.exists()
    assert {path.name for path in tmp_path.iterdir()} == {mine.name, foreign.name, link.name}
    assert sweep(tmp_path) == []


def test_what_a_node_wrote_after_the_directory_was_removed_is_removed_too(tmp_path):
    remainder = tmp_path / "windlass-pool-remainder"
    (remainder / "nodes" / ".ended" / "2026-11-17").mkdir(parents=True)
    kept = tmp_path / "windlass-pool-of-somebody"
    (kept / "nodes" / "node-1").mkdir(parents=True)
    assert sweep(tmp_path) == [remainder]
    assert list(tmp_path.iterdir()) == [kept]


NODES = """
import os, pathlib, subprocess, sys, time
from windlass.pool.transport.temp_dirs import own_directory
from windlass.providers.local.supervisor import HostProcess, write_json

directory = own_directory(pathlib.Path({base!r}))
for name in ("lost", "kept"):
    host = directory / "nodes" / name / "host-0"
    host.mkdir(parents=True)
    environment = {{**os.environ, "WINDLASS_DIRECTORY": str(host)}}
    supervisor = subprocess.Popen(["sleep", "601"], env=environment, start_new_session=True)
    write_json(host / "process.json", {{"supervisor": HostProcess.of(supervisor.pid)}})
    subprocess.Popen(["sleep", "600"], env=environment, start_new_session=True)
    if name == "lost":
        supervisor.kill()
        supervisor.wait()
print("ready", flush=True)
time.sleep(600)
"""


def test_what_a_node_left_is_ended_with_the_directory_of_its_pool_unless_its_supervisor_lives(tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    program = Program(tmp_path, NODES.format(base=str(base)))
    try:
        eventually(program.said, 60)

        def left() -> list[bytes]:
            found = []
            for pid in program.processes():
                with suppress(OSError):
                    found.append(Path(f"/proc/{pid}/environ").read_bytes().partition(b"/nodes/")[2].partition(b"/")[0])
            return sorted(filter(None, found))

        assert sweep(base) == []
        assert left() == [b"kept", b"kept", b"lost"]
        program.process.kill()
        program.process.wait()
        assert len(sweep(base)) == 1
        eventually(lambda: b"lost" not in left(), 60, left)
        assert left() == [b"kept", b"kept"], "its supervisor ends them in order"
    finally:
        program.close()


SESSION = """
import os, pathlib, time
from windlass.pool.transport.process_session import ProcessSession, session_directory

directory = session_directory(pathlib.Path({base!r}))
# The second process shows no environment, like programs that set their title.
ProcessSession(["sh", "-c", "env -i sleep 600 & sleep 600; true"], os.environ, directory)
print(directory, flush=True)
time.sleep(600)
"""


class Session:
    """A program that has started a session of three processes, and its guard."""

    def __init__(self, directory: Path, base: Path) -> None:
        self.program = Program(directory, SESSION.format(base=str(base)))
        owner = self.program.process.pid
        self.members: list[int] = []
        self.owners: list[int] = []

        def started() -> bool:
            found = children(owner)
            self.members = [pid for pid in found if "sleep 600" in command(pid)]  # none while it is being replaced
            self.owners = [*(pid for pid in found if pid not in self.members), owner]
            return len(self.members) == 3 and len(self.owners) == 2

        eventually(lambda: self.program.said() and started(), 60, self.program.said)
        self.directory = Path(self.program.said().strip())

    def living(self) -> list[int]:
        return [pid for pid in self.members if "sleep 600" in command(pid)]

    def kill(self, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.program.process.wait()
        eventually(lambda: all(HostProcess.of(pid) is None for pid in pids), 60)


@pytest.fixture
def sessions(tmp_path) -> Iterator[Callable[[Path], Session]]:
    made: list[Session] = []

    def make(base: Path) -> Session:
        made.append(Session(tmp_path, base))
        return made[-1]

    yield make
    for session in made:
        session.program.close()
        for pid in session.living():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("also", ["no other process", "the first process of the session"])
def test_a_session_whose_owner_and_guard_were_killed_is_ended_and_no_other(tmp_path, sessions, also):
    base = tmp_path / "base"
    base.mkdir()
    living, dead = sessions(base), sessions(base)
    dead.kill(*dead.owners, *(dead.members[:1] if also.startswith("the first") else []))
    assert len(dead.living()) >= 2
    assert sweep_sessions(base) == [dead.directory]
    assert dead.living() == []
    assert len(living.living()) == 3
    assert list(base.iterdir()) == [living.directory]


def test_a_session_whose_guard_lives_is_left_to_it(tmp_path, sessions):
    base = tmp_path / "base"
    base.mkdir()
    session = sessions(base)
    guard, owner = session.owners
    os.kill(guard, signal.SIGSTOP)
    session.kill(owner)
    assert sweep_sessions(base) == []
    assert len(session.living()) == 3
    os.kill(guard, signal.SIGCONT)
    eventually(lambda: not session.living() and not session.directory.exists(), 60)


def test_the_next_pool_ends_the_session_of_a_killed_program(sessions):
    session = sessions(BASE)
    session.kill(*session.owners)
    with quick_pool():
        assert session.living() == []
        assert not session.directory.exists()
