"""A real controller with local machines, its dashboard, and a real Chromium."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from windlass._free_port import free_port

CONFIG = """
cluster: {{max_hourly_cost: 12.00}}
families: {{fpga: {{max: 2}}}}
groups:
  big: {{resources: {{cpu: 8, gpu: 1}}, max: 1, price: 3.67, scale_down: {{idle_timeout: 5m}}}}
  small: {{resources: {{cpu: 4}}, max: 3, min: 2, price: 0.17, scale_down: {{idle_timeout: 5m}}}}
  fpga/spot: {{family: fpga, resources: {{cpu: 2, fpga: 1}}, price: 1.10, preemptible: true}}
  fpga/on-demand: {{family: fpga, resources: {{cpu: 2, fpga: 1}}, price: 3.20}}
providers: {{local: {{type: local}}}}
workload: {{type: queue}}
policy: {{evaluation_interval: {{max: 1s}}}}
server: {{listen: "127.0.0.1:{port}"}}
"""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
CHROMIUM = os.environ.get("WINDLASS_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def eventually(look: Callable[[], Any], seconds: float = 60.0, what: str = "") -> Any:
    """What a look gives as soon as it gives something; a failure after the deadline."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, what or "it did not happen in time"
        time.sleep(0.05)
    return found


@dataclass
class RealCluster:
    """A directory, the controller in it, and its API."""

    home: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def command(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "windlass", *words], cwd=self.home, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def start(self, *how: str) -> None:
        """Start the controller with its server, or with ``serve`` the server alone."""
        (self.home / "windlass.yaml").write_text(CONFIG.format(port=self.port), encoding="utf-8")
        with (self.home / "run.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "windlass", *(how or ("run", "--serve"))], cwd=self.home, stdout=log, stderr=log
            )
        eventually(self.is_ready, 60, "the controller did not serve")

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def token(self, role: str) -> str:
        lines = (self.home / ".windlass" / "tokens").read_text(encoding="utf-8").splitlines()
        return next(line.split()[1] for line in lines if line.startswith(role))

    def get(self, path: str) -> Any:
        request = urllib.request.Request(
            f"{self.url}/api/v1{path}", headers={"Authorization": f"Bearer {self.token('viewer')}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.loads(answer.read())

    def end_machines(self) -> None:
        """End every process whose working place is this cluster's."""
        mark = str(self.home)
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    words = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                except OSError:
                    continue
                if mark.encode() in words:
                    try:
                        os.kill(int(entry.name), signal.SIGKILL)
                    except OSError:
                        continue


@pytest.fixture(scope="package")
def cluster(tmp_path_factory) -> Iterator[RealCluster]:
    made = RealCluster(tmp_path_factory.mktemp("cluster"))
    made.start()
    try:
        made.command("submit", "--name", "steady", "--needs", "cpu=2", "--count", "2", "--", "sleep", "600")
        made.command("submit", "--name", "huge", "--force", "--needs", "gpu=8", "--", "true")
        made.command("submit", "--name", "train", "--needs", "gpu=1", "--count", "3", "--", "sleep", "600")
        eventually(lambda: made.get("/status")["summary"]["busy"] >= 2, 60, "no work runs")
        eventually(lambda: {"huge", "train"} <= {d["id"] for d in made.get("/status")["demands"]}, 30)
        yield made
    finally:
        made.stop()
        made.end_machines()


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    """A real Chromium. Playwright keeps an event loop running, so it ends with this package: others start their own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is missing: pip install playwright")
    if CHROMIUM is None:
        pytest.skip("Chromium is missing: apt install chromium, or set WINDLASS_CHROMIUM")
    with playwright.sync_playwright() as running:
        made = running.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield made
        made.close()


@dataclass
class Watched:
    """A page that remembers what went wrong in it."""

    page: Any
    cluster: RealCluster
    errors: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)

    def see(self, path: str, testid: str) -> Any:
        self.page.goto(self.cluster.url + path)
        found = self.page.get_by_test_id(testid)
        found.wait_for(timeout=60_000)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)


def watched(browser: Any, cluster: RealCluster, state: Any, **options: Any) -> Watched:
    context = browser.new_context(viewport={"width": 1440, "height": 900}, storage_state=state, **options)
    page = context.new_page()
    made = Watched(page, cluster)
    # A network interface that comes or goes on this computer ends requests; the page asks again.
    ours = lambda one: one.type == "error" and "ERR_NETWORK_CHANGED" not in one.text  # noqa: E731
    page.on("console", lambda one: made.errors.append(one.text) if ours(one) else None)
    page.on("pageerror", lambda one: made.errors.append(str(one)))
    page.on("request", lambda one: None if one.url.startswith(cluster.url) else made.elsewhere.append(one.url))
    return made


@pytest.fixture(scope="package")
def sessions(browser, cluster) -> dict[str, Any]:
    """The cookies of an operator and of a viewer who have logged in."""
    found = {}
    for role in ("operator", "viewer"):
        context = browser.new_context()
        page = context.new_page()
        page.goto(cluster.url + "/login")
        page.get_by_test_id("token-input").fill(cluster.token(role))
        page.get_by_test_id("token-submit").click()
        page.get_by_test_id("page-overview").wait_for(timeout=60_000)
        found[role] = context.storage_state()
        context.close()
    return found


@pytest.fixture
def operator(browser, cluster, sessions) -> Iterator[Watched]:
    made = watched(browser, cluster, sessions["operator"])
    yield made
    assert made.elsewhere == []
    made.page.context.close()


@pytest.fixture
def viewer(browser, cluster, sessions) -> Iterator[Watched]:
    made = watched(browser, cluster, sessions["viewer"])
    yield made
    made.page.context.close()
