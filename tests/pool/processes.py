"""Programs with pools as processes of their own, and every process that belongs to one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
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


def eventually(wanted: Callable[[], object], within: float, told: Callable[[], object] = lambda: "") -> float:
    """The seconds until something is so."""
    begun = time.monotonic()
    while not wanted():
        assert time.monotonic() - begun < within, f"not within {within:g} s: {told()}"
        time.sleep(0.02)
    return time.monotonic() - begun
