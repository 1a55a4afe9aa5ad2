"""Programs with pools as processes of their own, and every process that belongs to one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

MARK = "WINDLASS_POOL_TEST"


class Program:
    """A program that a test runs and kills. Everything that it starts carries its mark."""

    def __init__(self, directory: Path, text: str) -> None:
        self.mark = uuid.uuid4().hex
        file = directory / f"program_{self.mark[:8]}.py"
        file.write_text(text, encoding="utf-8")
        self.log = directory / f"{self.mark[:8]}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(file)],
                cwd=directory,
                env={**os.environ, MARK: self.mark},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def processes(self) -> list[int]:
        """Every process with its mark, the program itself among them."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    environment = (entry / "environ").read_bytes()
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    continue
                if f"{MARK}={self.mark}".encode() in environment and state != "Z":
                    found.append(int(entry.name))
        return found

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def close(self) -> None:
        for pid in self.processes():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


def children(pid: int) -> list[int]:
    """Every process that descends from one."""
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found[1:]


def stores_of(pid: int) -> set[Path]:
    """The directories of large values that a process owns: it keeps a file of each open. Other tests have theirs."""
    found = set()
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                path = entry.readlink()
                if path.name == "owner" and path.parent.name.startswith("windlass-data-"):
                    found.add(path.parent)
    return found


def command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def eventually(wanted: Callable[[], object], within: float, output: Callable[[], object] = lambda: "") -> float:
    """The seconds until something is so."""
    begun = time.monotonic()
    while not wanted():
        assert time.monotonic() - begun < within, f"not within {within:g} s: {output()}"
        time.sleep(0.02)
    return time.monotonic() - begun
