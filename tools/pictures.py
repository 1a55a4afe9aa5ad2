"""Screenshots of the dashboard for README and docs, from a live run with local machines, light and dark.

    python tools/pictures.py [FOLDER]

It starts a controller in a temporary folder, submits jobs, kills a machine, drains another, freezes a group, and takes
the pictures with Chromium. It takes about two minutes, and nothing of it is left running.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG = """
cluster: {{max_hourly_cost: 12.00}}
groups:
  a100: {{resources: {{cpu: 12, gpu: 1, memory: 85Gi}}, max: 2, price: 3.67, scale_down: {{idle_timeout: 40s}}}}
  a100-spot:
    {{resources: {{cpu: 12, gpu: 1, memory: 85Gi}}, max: 3, spare: 1, price: 1.47, preemptible: true,
      scale_down: {{idle_timeout: 30s}}}}
  cpu: {{resources: {{cpu: 4, memory: 8Gi}}, max: 6, min: 1, price: 0.17, scale_down: {{idle_timeout: 40s}}}}
  cpu-large: {{resources: {{cpu: 16, memory: 64Gi}}, max: 2, price: 0.77, scale_down: {{idle_timeout: 5m}}}}
providers: {{local: {{type: local}}}}
workload: {{type: queue}}
server: {{listen: "127.0.0.1:{port}"}}
"""
JOBS = (
    ("preprocess", "cpu=2", 10, 20),
    ("train-llm", "cpu=8,gpu=1,memory=60Gi", 4, 900),
    ("embed", "cpu=8,memory=40Gi", 7, 900),
    ("finetune", "cpu=8,gpu=1,memory=60Gi", 2, 900),
    ("pretrain-8gpu", "cpu=8,gpu=8", 1, 5),
)
PICTURES = {"overview": "/", "machines": "/slices?range=240"}


def main() -> int:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            port = one.getsockname()[1]
        (home / "windlass.yaml").write_text(CONFIG.format(port=port), encoding="utf-8")
        with (home / "log").open("wb") as log:
            controller = subprocess.Popen(_windlass("run", "--serve"), cwd=home, stdout=log, stderr=log)
        try:
            _until(home, lambda status: status["summary"]["slices"] >= 2)
            for job, needs, count, seconds in JOBS:
                words = ("--name", job, "--needs", needs, "--count", str(count), "--force")
                subprocess.run(_windlass("submit", *words, "--", "sleep", str(seconds)), cwd=home, check=True)
                time.sleep(6)
            subprocess.run(_windlass("freeze", "cpu-large"), cwd=home, check=True)
            _until(home, lambda status: status["summary"]["waiting_tasks"] > 0)
            rows = _status(home)["slices"]
            drained = next(one["id"] for one in rows if one["group"] == "cpu" and one["state"] == "ready")
            subprocess.run(_windlass("drain", drained), cwd=home, check=True)
            time.sleep(15)  # for something to see in the lanes
            _kill(next(one["id"] for one in rows if one["group"] == "a100-spot" and one["state"] == "ready"))
            time.sleep(3)
            _shoot(home, port, folder)
        finally:
            controller.send_signal(signal.SIGTERM)
            controller.wait(20)
            _end_machines(home)
    return 0


def _windlass(*words: str) -> list[str]:
    return [sys.executable, "-m", "windlass", *words]


def _status(home: Path) -> dict[str, Any]:
    done = subprocess.run(_windlass("status", "--json"), cwd=home, capture_output=True, text=True, check=False)
    found: dict[str, Any] = (
        json.loads(done.stdout) if done.returncode == 0 else {"summary": {"slices": 0}, "slices": []}
    )
    return found


def _until(home: Path, is_so: Callable[[dict[str, Any]], bool]) -> None:
    deadline = time.monotonic() + 120
    while not is_so(_status(home)):
        if time.monotonic() > deadline:
            raise SystemExit("the cluster did not come so far in two minutes")
        time.sleep(0.5)


def _kill(machine: str) -> None:
    """End the processes of one machine, as a crash would."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if machine.encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


def _shoot(home: Path, port: int, folder: Path) -> None:
    from playwright.sync_api import sync_playwright

    lines = (home / ".windlass" / "tokens").read_text(encoding="utf-8").splitlines()
    token = next(line.split()[1] for line in lines if line.startswith("operator"))
    with sync_playwright() as running:
        path = os.environ.get("WINDLASS_CHROMIUM") or shutil.which("chromium")
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
        page.goto(f"http://127.0.0.1:{port}/login")
        page.get_by_test_id("token-input").fill(token)
        page.get_by_test_id("token-submit").click()
        page.get_by_test_id("page-overview").wait_for()
        for name, address in PICTURES.items():
            for theme in ("light", "dark"):
                page.goto(f"http://127.0.0.1:{port}{address}{'&' if '?' in address else '?'}theme={theme}")
                page.wait_for_timeout(3500)
                page.screenshot(path=folder / f"dashboard-{name}-{theme}.png", full_page=True)
        browser.close()


def _end_machines(home: Path) -> None:
    """End what the local provider started: every process that names the temporary folder."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(home).encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                continue


if __name__ == "__main__":
    sys.exit(main())
