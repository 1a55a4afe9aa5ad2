"""What the tests of the journal share: entries, raw access behind its back, and other processes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from windlass.journal import Entry, Journal, Lease

ROOT = Path(__file__).resolve().parents[2]


def entry(subject: str = "slice-1", kind: str = "decided", at: float = 1000.0, **data: Any) -> Entry:
    return Entry(kind, subject, at, data)


def lead(journal: Journal, holder: str = "controller", now: float = 1000.0) -> Lease:
    lease = journal.acquire(holder, 30.0, now)
    assert lease is not None
    return lease


def held(journal: Journal) -> Lease:
    """The lease that somebody must have."""
    lease = journal.lease()
    assert lease is not None
    return lease


def write(journal: Journal, count: int, **fields: Any) -> int:
    """Append some entries, each in its own transaction, under a new lease."""
    epoch = lead(journal).epoch
    last = journal.last_seq()
    for number in range(last, last + count):
        last = journal.append([entry(**{"number": number, **fields})], epoch=epoch)
    return last


def seqs(journal: Journal, *args: Any, **kwargs: Any) -> list[int]:
    return [record.seq for record in journal.read(*args, **kwargs)]


def tamper(address: str, statement: str) -> None:
    """Change the database behind the journal's back."""
    if address.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(address) as session:
            session.execute(statement.encode())
    else:
        with closing(sqlite3.connect(address)) as connection, connection:
            connection.execute(statement)


@contextmanager
def child(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Another process that runs a part of ``tests.journal.children``."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.journal.children", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream:
                stream.close()


def stream(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@contextmanager
def mounted(path: Path, size: str) -> Iterator[Path]:
    """A small disk of its own; skips where that is not allowed."""
    path.mkdir()
    if os.geteuid() != 0 or _mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", path):
        pytest.skip("mounting a small disk needs root (docker run --privileged, or sudo)")
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def remount(path: Path, *options: str) -> None:
    assert not _mount("-o", ",".join(("remount", *options)), path)


def _mount(*arguments: object) -> int:
    try:
        return subprocess.run(["mount", *map(str, arguments)], check=False, capture_output=True).returncode
    except FileNotFoundError:
        return 1


def is_increasing_by_one(numbers: Sequence[int], first: int = 1) -> bool:
    return list(numbers) == list(range(first, first + len(numbers)))
