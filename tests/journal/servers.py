"""A PostgreSQL server for tests, on a socket in a temporary directory."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from urllib.parse import quote

NEEDED = ("initdb", "pg_ctl", "postgres")


def server_binaries() -> Path | None:
    """The directory with the programs of the newest server that is installed."""
    if all(shutil.which(name) for name in NEEDED):
        return Path(str(shutil.which("postgres"))).resolve().parent
    found = [
        path for path in Path("/usr/lib/postgresql").glob("*/bin") if all((path / name).exists() for name in NEEDED)
    ]
    return max(found, key=lambda path: [int(part) for part in re.findall(r"\d+", path.parent.name)], default=None)


def unprivileged() -> str | None:
    """Whom to run as: the server refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    return None


class PostgresServer:
    """Listens on a socket only. ``url`` gives an address with a schema of its own."""

    def __init__(self, binaries: Path) -> None:
        self.binaries = binaries
        self.user = unprivileged()
        # Not in pytest's own directories: those are closed to other users, and a socket's path must be short.
        self.home = Path(tempfile.mkdtemp(prefix="wl-pg-"))
        if self.user:
            shutil.chown(self.home, self.user)
        self._run("initdb", "-D", self.data, "-U", "windlass", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        self.start()

    @property
    def data(self) -> Path:
        return self.home / "data"

    def start(self) -> None:
        options = f"-c listen_addresses='' -c unix_socket_directories='{self.home}' -c max_connections=50"
        self._run("pg_ctl", "-D", self.data, "-w", "-l", self.home / "log", "-o", options, "start")

    def crash(self) -> None:
        """As if the power went: no shutdown checkpoint, recovery at the next start."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        try:
            self.crash()
        finally:
            shutil.rmtree(self.home, ignore_errors=True)

    def url(self, schema: str = "public", *options: str) -> str:
        settings = " ".join((f"-csearch_path={schema}", *options))
        return f"postgresql://windlass@/postgres?host={quote(str(self.home), safe='')}&options={quote(settings)}"

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self.binaries / program), *map(str, arguments)],
            user=self.user,
            group=pwd.getpwnam(self.user).pw_gid if self.user else None,
            extra_groups=[] if self.user else None,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            # The server inherits what pg_ctl has: a pipe would never come to its end.
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL if program == "pg_ctl" else subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            log = self.home / "log"
            output = log.read_text() if log.exists() else (done.stderr or b"").decode()
            raise RuntimeError(f"{program} failed: {output}")
