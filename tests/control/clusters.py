"""A real cluster on this machine: `windlass run` as processes, hosts as processes, files in a directory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from tests.providers.local_processes import marked
from windlass.control.record.journal_tables import IS
from windlass.journal import Record, open_journal

CONFIG = """
groups:
  small:
    resources: {cpu: 1}
    max: 3
    price: 0.5
    scale_down: {idle_timeout: 1s}
providers:
  here: {type: local, directory: machines, grace: 1s}
workload: {type: queue, directory: queue}
journal: {location: journal.db}
policy: {vanish_timeout: 1s, requesting_timeout: 6s, evaluation_interval: {min: 0.05, max: 0.5}}
"""


class RealCluster:
    """Controllers that a test starts, stops and kills; ``close`` leaves nothing behind."""

    def __init__(self, directory: Path, lease: str = "2s", config: str = CONFIG, location: str = "") -> None:
        """``location``: of the journal, where the configuration names another one than the usual file."""
        self.directory, self._config = directory, config
        self.machines, self.done = directory / "machines", directory / "done"
        self.journal = open_journal(location or str(directory / "journal.db"))
        self.submitted = 0
        self._lease = lease
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, holder: str = "one") -> subprocess.Popen[bytes]:
        """A controller; its log is ``HOLDER.log``."""
        file = self.directory / f"{holder}.yaml"
        file.write_text(f"{self._config}leader: {{lease: {self._lease}, holder: {holder}}}\n", encoding="utf-8")
        with (self.directory / f"{holder}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "windlass", "run", file], cwd=self.directory, stderr=log, start_new_session=True
            )
        self._processes.append(process)
        return process

    def submit(self, count: int) -> None:
        """Tasks that each write their name into ``done``, in one piece."""
        task = ("sh", "-c", f"echo $WINDLASS_TASK >> {self.done}")
        subprocess.run(
            [sys.executable, "-m", "windlass", "submit", "--config", "one.yaml", "--count", str(count), "--", *task],
            cwd=self.directory,
            check=True,
            capture_output=True,
        )
        self.submitted += count

    # -- what can be seen ---------------------------------------------------------------------------------------------

    def records(self, after: int = 0) -> list[Record]:
        return list(self.journal.read(after))

    def last_seq(self) -> int:
        return self.journal.last_seq()

    def slices_seen(self) -> set[str]:
        return {record.subject for record in self.records() if record.kind == "slice"}

    def slices_left(self) -> set[str]:
        left: dict[str, bool] = {}
        for record in self.records():
            if record.kind == "slice":
                left[record.subject] = IS in record.data
        return {name for name, there in left.items() if there}

    def log(self, holder: str = "one") -> str:
        return (self.directory / f"{holder}.log").read_text(encoding="utf-8")

    def ran(self) -> list[str]:
        return self.done.read_text(encoding="utf-8").split() if self.done.exists() else []

    def machines_left(self) -> list[str]:
        return [path.name for path in self.machines.iterdir() if not path.name.startswith(".")]

    def ended(self) -> list[str]:
        return sorted(path.name for path in (self.machines / ".ended").glob("*/*"))

    def eventually(self, wanted: Callable[[], object], within: float = 60) -> float:
        """The seconds until what is wanted can be seen."""
        begun = time.monotonic()
        while not wanted():
            if time.monotonic() - begun > within:
                raise AssertionError(f"not within {within:g} s; the log:\n{self.log()}")
            time.sleep(0.005)
        return time.monotonic() - begun

    def close(self) -> None:
        self.journal.close()
        for process in self._processes:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
        while self.machines.exists() and (pids := marked(self.machines)):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def a_cluster(directory: Path) -> Iterator[RealCluster]:
    cluster = RealCluster(directory)
    try:
        yield cluster
    finally:
        cluster.close()


def shows(records: list[Record], *states: str) -> bool:
    """Whether a slice came into one of these states."""
    return any(one.kind == "slice" and one.data.get(IS, {}).get("state") in states for one in records)
