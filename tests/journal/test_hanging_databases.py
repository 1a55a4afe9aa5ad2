"""A hanging database delays neither its caller for long, nor the event loop, nor the end of the controller."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from windlass.journal import Entry, JournalUnavailable

from .servers import PostgresServer

CONFIG = """
groups: {{cpu: {{resources: {{cpu: 1}}, max: 1}}}}
providers: {{local: {{type: local, directory: machines}}}}
workload: {{type: queue, directory: queue}}
journal: "{journal}"
"""


def processes(server: PostgresServer) -> list[int]:
    """The server and all of its children."""
    main = int((server.data / "postmaster.pid").read_text().split()[0])
    found = [main]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            if int(stat[stat.rindex(")") + 2 :].split()[1]) == main:
                found.append(int(entry.name))
    return found


@contextmanager
def paused(server: PostgresServer) -> Iterator[None]:
    """The server is there and says nothing, as on a machine that is frozen."""
    stopped = processes(server)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def controller(directory: Path, journal: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    (directory / "windlass.yaml").write_text(CONFIG.format(journal=journal), encoding="utf-8")
    command = [sys.executable, "-m", "windlass", "run", "windlass.yaml", *words]
    running = subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stderr is not None
        for line in running.stderr:
            if "leading" in line:
                break
        yield running
    finally:
        running.kill()
        running.communicate()


def ends_within(running: subprocess.Popen[str], seconds: float) -> float:
    began = time.monotonic()
    running.send_signal(signal.SIGTERM)
    running.wait(seconds)
    return time.monotonic() - began


def test_a_call_to_a_paused_server_ends_and_the_next_one_connects_again(postgres_server, postgres_address):
    from windlass.journal.postgres import PostgresJournal

    with PostgresJournal(postgres_address(), patience=0.5) as journal:
        lease = journal.acquire("me", 60, None)
        assert lease is not None
        entry = Entry("kind", "subject", 1.0, {})
        journal.append([entry], epoch=lease.epoch)
        with paused(postgres_server):
            began = time.monotonic()
            with pytest.raises(JournalUnavailable, match="no answer within"):
                journal.append([entry], epoch=lease.epoch)
            assert time.monotonic() - began < 10
        assert journal.append([entry], epoch=lease.epoch) >= 2


@pytest.mark.alone
def test_a_controller_with_a_paused_server_hears_sigterm(postgres_server, postgres_address, tmp_path):
    with controller(tmp_path, postgres_address()) as running, paused(postgres_server):
        time.sleep(1.0)  # a pass may or may not be in a call by now: it must not matter
        ends_within(running, 5)
        assert running.returncode == 0


@pytest.mark.alone
@pytest.mark.parametrize("words", [(), ("--serve", "--listen", "127.0.0.1:0")])
def test_a_controller_whose_file_is_locked_hears_sigterm(tmp_path, words):
    if words:
        pytest.importorskip("uvicorn", reason="the server is not installed: pip install '.[server]'")
    running_with = controller(tmp_path, "journal.db", *words)
    with running_with as running, closing(sqlite3.connect(tmp_path / "journal.db")) as other:
        other.execute("BEGIN EXCLUSIVE")
        subprocess.run(
            [sys.executable, "-m", "windlass", "submit", "--", "true"],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            timeout=60,
        )
        ends_within(running, 5)
        assert running.returncode == 0
