"""A real head with ``windlass run`` as its autoscaler, for tests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import yaml

from tests.workloads.ray_stage import MARK, STARTING, Driver, RayHead

GROUPS = {
    "worker": {
        "resources": {"cpu": 2, "memory": "300M"},
        "labels": {"zone": "z1"},
        "max": 4,
        "price": 0.10,
        "scale_down": {"idle_timeout": "3s"},
    }
}


_SLICE = re.compile(r"worker-[a-z0-9]+-\d+")


class Scaled:
    """A head, a driver on it, and a controller in a process of its own."""

    def __init__(self, which: str, *, groups: dict[str, Any] | None = None, head: dict[str, Any] | None = None) -> None:
        self.head = RayHead(which, **(head or {}))
        self.home = self.head.directory / "home"
        self.home.mkdir()
        self.groups = groups or GROUPS
        self.file = self.home / "ray.yaml"
        self.environment = {**os.environ, MARK: self.head.mark, "COLUMNS": "200"}
        self.driver: Driver
        self.controller: subprocess.Popen[bytes] | None = None

    def write(self, **more: Any) -> None:
        """The configuration; ``more`` replaces whole sections of it."""
        workload = {
            "type": "ray",
            "address": self.head.address,
            "ray": self.head.ray,
            "start": ["--object-store-memory=80000000"],
        }
        data = {
            "groups": self.groups,
            "providers": {"here": {"type": "local", "environment": [MARK]}},
            "workload": workload,
            **more,
        }
        self.file.write_text(yaml.safe_dump(data), encoding="utf-8")

    def start(self) -> Scaled:
        self.head.start()
        self.write()
        self.run()
        self.driver = self.head.driver()
        self.driver.run("import time")
        return self

    def run(self) -> subprocess.Popen[bytes]:
        """Start the controller."""
        with (self.home / "run.log").open("ab") as log:
            self.controller = subprocess.Popen(
                [sys.executable, "-m", "windlass", "run", str(self.file)],
                cwd=self.home,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        return self.controller

    def stop(self) -> None:
        if hasattr(self, "driver"):
            self.driver.close()
        if self.controller is not None:
            self.controller.terminate()
            self.controller.wait(30)
        self.head.stop()

    # -- what Windlass says -------------------------------------------------------------------------------------------

    def windlass(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "windlass", *words, "-c", str(self.file)],
            cwd=self.home,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.windlass("status", "--json"))
        return found

    def slices(self, *states: str) -> list[dict[str, Any]]:
        return [one for one in self.status()["slices"] if not states or one["state"] in states]

    def log(self) -> str:
        return (self.home / "run.log").read_text(encoding="utf-8")

    def launched(self) -> int:
        """How many slices there ever were."""
        events = [json.loads(line) for line in self.windlass("events", "--limit", "100000", "--json").splitlines()]
        return len({name for one in events for name in one["subjects"] if _SLICE.fullmatch(name)})

    def eventually(self, look: Callable[[], Any], wanted: Callable[[Any], object] = bool, within: float = 60.0) -> Any:
        deadline = time.monotonic() + within
        while True:
            seen = look()
            if wanted(seen):
                return seen
            assert time.monotonic() < deadline, f"not within {within:g} s; last seen: {seen!r}\n{self.log()[-3000:]}"
            time.sleep(0.2)

    def emptied(self, within: float = STARTING) -> None:
        """Wait until nothing that was bought is left at work or coming."""
        self.eventually(
            lambda: self.slices("queued", "requesting", "booting", "initializing", "ready", "cordoned", "draining"),
            lambda found: not found,
            within,
        )
