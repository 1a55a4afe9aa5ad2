"""A real head with ``windlass run`` as its autoscaler, for tests."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import yaml
from click.testing import CliRunner

from tests.workloads.ray_stage import MARK, PATIENT, STARTING, Driver, RayHead
from windlass.cli import windlass
from windlass.control.report.current import read_state
from windlass.control.state.fleet import SliceRecord
from windlass.journal import open_journal
from windlass.scenario.durations import parse_duration
from windlass.workloads.ray.gcs import Gcs

T = TypeVar("T")

GAVE_UP = " lost: one of its hosts died before it joined"
GIVING_UP = 25.0
"""Seconds that a start must have taken to be one that `ray start` gave up: it does so after 30 s."""
ALIVE = ("queued", "requesting", "booting", "initializing", "ready", "cordoned", "draining")


def group(cpu: int = 2, *, zone: str = "z1", idle: str = "3s", **more: Any) -> dict[str, Any]:
    """Return the configuration of a group of workers."""
    resources = {"cpu": cpu, "memory": "300M", **more.pop("resources", {})}
    scale_down = {"idle_timeout": idle}
    return {"resources": resources, "labels": {"zone": zone}, "max": 4, "price": 0.10, "scale_down": scale_down, **more}


class Scaled:
    """A head, a driver on it, and controllers in their own processes. Other tests may use the same head later."""

    def __init__(
        self,
        head: RayHead,
        driver: Driver | None,
        groups: Mapping[str, Any],
        *,
        environment: Mapping[str, str] | None = None,
        **workload: Any,
    ) -> None:
        """``environment``: for Windlass. ``workload``: further settings of the workload."""
        self.head = head
        self.home = head.directory / f"home-{secrets.token_hex(3)}"
        self.home.mkdir()
        self.groups, self.workload = dict(groups), workload
        self.providers: dict[str, Any] = {
            "here": {"type": "local", "directory": str(self.home / "local"), "environment": [MARK]}
        }
        self.file = self.home / "ray.yaml"
        self.environment = {**os.environ, MARK: head.mark, "COLUMNS": "200", **(environment or {})}
        self.environment.pop("RAY_AUTH_TOKEN_PATH", None)
        self._driver = driver
        self.controllers: list[subprocess.Popen[bytes]] = []

    @property
    def driver(self) -> Driver:
        if self._driver is None:
            self._driver = self.head.driver()
        return self._driver

    def write(self, groups: Mapping[str, Any] | None = None, **workload: Any) -> None:
        """Write the configuration. A running controller reads it without a restart."""
        self.groups = dict(groups or self.groups)
        data = {
            "leader": {"lease": "4s"},
            "journal": str(self.home / "journal.db"),
            "groups": self.groups,
            "providers": self.providers,
            "workload": {
                "type": "ray",
                "address": self.head.address,
                "ray": self.head.ray,
                "start": ["--object-store-memory=80000000"],
                **self.workload,
                **workload,
            },
        }
        written = self.file.with_suffix(".new")
        written.write_text(yaml.safe_dump(data), encoding="utf-8")
        written.replace(self.file)

    def start(self) -> Scaled:
        self.write()
        self.run()
        self.logged("leading as")
        return self

    def run(self) -> subprocess.Popen[bytes]:
        """Start a controller."""
        with (self.home / "run.log").open("ab") as log:
            started = subprocess.Popen(
                [sys.executable, "-m", "windlass", "run", str(self.file)],
                cwd=self.home,
                env=self.environment,
                stdout=log,
                stderr=log,
            )
        self.controllers.append(started)
        return started

    def kill(self) -> None:
        """End the controller that was started first, as by a crash."""
        controller = self.controllers.pop(0)
        controller.kill()
        controller.wait(10)

    def stop(self) -> None:
        """End the controllers and everything that they have bought."""
        for controller in self.controllers:
            controller.terminate()
        for controller in self.controllers:
            controller.wait(60)
        mine = {path.name for path in (self.home / "local").glob("*-*")}
        self.head.end_nodes({f"{name}/0" for name in mine})
        for pid in self.head.processes():
            with suppress(OSError):
                if f"WINDLASS_DIRECTORY={self.home}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(pid, 9)

        async def unregister(gcs: Gcs) -> None:
            for info in await gcs.nodes():
                if info.state == 0 and info.instance_id.partition("/")[0] in mine:
                    await gcs.unregister(info.node_id, "ended by a test")

        if mine:
            self.ask(unregister)

    # -- the head -----------------------------------------------------------------------------------------------------

    def ask(self, question: Callable[[Gcs], Awaitable[T]]) -> T:
        """Ask the GCS."""

        async def whole() -> T:
            gcs = Gcs(self.head.address, token=self.head.token, tls=self.head.tls, timeout=PATIENT)
            try:
                return await question(gcs)
            finally:
                await gcs.close()

        return asyncio.run(whole())

    # -- Windlass -----------------------------------------------------------------------------------------------------

    def windlass(self, *words: str) -> str:
        """Run a command in this process: starting Python each time takes a second on a busy machine."""
        changed = {key: value for key, value in self.environment.items() if os.environ.get(key) != value}
        done = CliRunner().invoke(windlass, [*words, "-c", str(self.file)], env=changed)
        return done.output

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.windlass("status", "--json"))
        return found

    def slices(self, *states: str) -> list[dict[str, Any]]:
        return [one for one in self.status()["slices"] if not states or one["state"] in states]

    def record(self, slice_id: str) -> SliceRecord:
        """Return the record of a slice that has not ended."""
        journal = open_journal(str(self.home / "journal.db"))
        try:
            return read_state(journal).fleet.slices[slice_id]
        finally:
            journal.close()

    def log(self) -> str:
        return (self.home / "run.log").read_text(encoding="utf-8")

    def launched(self) -> int:
        """Return how many slices were requested from a provider, without starts that `ray start` gave up. Slices that
        were queued and cancelled were not requested."""
        return len(self._first(" requesting: ").keys() - self.given_up())

    def lost(self) -> set[str]:
        """Return the slices that were lost, without starts that `ray start` gave up."""
        return set(self._first(" lost: ")) - self.given_up()

    def given_up(self) -> set[str]:
        """Return the slices whose `ray start` gave up, as it does after 30 s on a machine that is too busy. A host that
        ended earlier is not among them."""
        asked = self._first(" requesting: ")
        return {name for name, at in self._first(GAVE_UP).items() if at - asked.get(name, at) > GIVING_UP}

    def _first(self, text: str) -> dict[str, float]:
        """Return the slices that have an event with this text, and when each had it first."""
        events = [json.loads(line) for line in self.windlass("events", "--limit", "100000", "--json").splitlines()]
        found: dict[str, float] = {}
        for one in events:
            if one["kind"] == "slice" and text in one["text"]:
                for name in one["subjects"]:
                    found[name] = min(one["at"], found.get(name, one["at"]))
        return found

    def assert_bought(self, slices: int) -> None:
        """Assert that exactly so many machines were bought until now, and one more for each start that was given up."""
        found = self.launched()
        assert found == slices, f"{found} machines were bought, not {slices}:\n{self.log()[-5000:]}"

    def eventually(
        self,
        look: Callable[[], Any],
        wanted: Callable[[Any], object] = bool,
        within: float = STARTING,
        every: float = 0.2,
    ) -> Any:
        deadline = time.monotonic() + within
        while True:
            seen = look()
            if wanted(seen):
                return seen
            assert time.monotonic() < deadline, f"not within {within:g} s; last seen: {seen!r}\n{self.log()[-3000:]}"
            time.sleep(every)

    def logged(self, text: str) -> None:
        """Wait until the controllers have written a text."""
        self.eventually(lambda: text in self.log(), every=0.02)

    def reconfigure(self, groups: Mapping[str, Any]) -> None:
        """Write other groups, and wait until the controller uses them."""
        self.write(groups)
        wanted = {name: parse_duration(one["scale_down"]["idle_timeout"]) for name, one in groups.items()}
        self.eventually(self._idle_timeouts, lambda found: found == wanted)

    def _idle_timeouts(self) -> dict[str, float | None]:
        """Return the groups that the controller uses, with their idle timeouts."""
        journal = open_journal(str(self.home / "journal.db"))
        try:
            used = list(read_state(journal).settings.values())  # none before the first pass
        finally:
            journal.close()
        rules = {one.group.name: one.group.scale_down for settings in used for one in settings.groups}
        return {name: rule.idle_timeout if rule is not None else None for name, rule in rules.items()}

    def stays(self, seconds: float, look: Callable[[], object], wanted: object) -> None:
        """Assert for so many seconds that nothing changes."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert look() == wanted
            time.sleep(0.5)

    def emptied(self) -> None:
        """Wait until every slice has ended or is being terminated."""
        self.eventually(lambda: self.slices(*ALIVE), lambda found: not found)
