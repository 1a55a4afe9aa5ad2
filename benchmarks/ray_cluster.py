"""Windlass against Ray's own autoscaler v2: the same script on the same machine, one after the other.

Needs ``RAY_NEW``, the ``bin`` directory of a Ray (``make bench-ray`` sets it up). Prints one table. Each scenario runs
on a fresh head with 4 nodes of 2 CPUs at the most; all of them start on this machine, so seconds depend on its cores.

    python benchmarks/ray_cluster.py [--runs 1]
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

HOST = "127.0.0.2"
MARK = "WINDLASS_BENCH"
IDLE = 5
START = [
    "--num-cpus=2",
    "--num-gpus=0",
    "--memory=300000000",
    "--object-store-memory=80000000",
    "--disable-usage-stats",
]
DRIVER = Path(__file__).with_name("ray_driver.py")


class Side:
    """One autoscaler on one head."""

    def __init__(self, name: str, bin_directory: Path, port: int) -> None:
        self.name, self.bin, self.address = name, bin_directory, f"{HOST}:{port}"
        self.home = Path(tempfile.mkdtemp(prefix="wb", dir="/tmp"))
        self.mark = secrets.token_hex(6)
        self.log = self.home / "log.jsonl"
        self.environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith("RAY_") or key == "RAY_NEW"},
            "RAY_AUTH_MODE": "disabled",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            MARK: self.mark,
            "BENCH_LOG": str(self.log),
            "BENCH_HOST": HOST,
            "BENCH_RAY": str(bin_directory / "ray"),
            "BENCH_START": json.dumps([f"--address={self.address}", f"--node-ip-address={HOST}", *START]),
            "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parent.parent / 'src'}",
        }
        self.log.touch()

    def start(self) -> None:
        head = [
            *(
                str(self.bin / "ray"),
                "start",
                "--head",
                "--block",
                "--num-cpus=0",
                f"--port={self.address.split(':')[1]}",
            ),
            *(f"--node-ip-address={HOST}", f"--temp-dir={self.home}/h", "--include-dashboard=false"),
            "--object-store-memory=100000000",
        ]
        if self.name == "ray":
            (self.home / "cluster.yaml").write_text(json.dumps(self._cluster()), encoding="utf-8")
            head.append(f"--autoscaling-config={self.home}/cluster.yaml")
        else:
            head.append("--no-monitor")
        named = {"RAY_NODE_TYPE_NAME": "head", "RAY_CLOUD_INSTANCE_ID": "head-0"}
        self._run(head, named)
        time.sleep(8)  # nothing here can be asked whether the monitor of Ray is up
        if self.name == "windlass":
            (self.home / "ray.yaml").write_text(json.dumps(self._configuration()), encoding="utf-8")
            self._run([sys.executable, "-m", "windlass", "run", str(self.home / "ray.yaml")], {})
            time.sleep(2)

    def _run(self, words: list[str], more: dict[str, str]) -> None:
        with (self.home / "out.log").open("ab") as out:
            subprocess.Popen(words, env={**self.environment, **more}, stdout=out, stderr=out, cwd=self.home)

    def _configuration(self) -> dict[str, Any]:
        group = {"resources": {"cpu": 2, "memory": "300M"}, "max": 4, "scale_down": {"idle_timeout": IDLE}}
        return {
            "groups": {"worker": group},
            "providers": {"here": {"type": "local", "directory": str(self.home / "local"), "environment": [MARK]}},
            "journal": str(self.home / "journal.db"),
            "workload": {
                "type": "ray",
                "address": self.address,
                "ray": str(self.bin / "ray"),
                "start": ["--object-store-memory=80000000"],
            },
        }

    def _cluster(self) -> dict[str, Any]:
        lists = ("head_setup_commands", "worker_setup_commands", "setup_commands", "initialization_commands")
        more = ("cluster_synced_files", "rsync_exclude", "rsync_filter")
        types = {
            "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "worker": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 4},
        }
        return {
            "cluster_name": "bench",
            "max_workers": 4,
            "idle_timeout_minutes": IDLE / 60,
            "provider": {"type": "external", "module": "ray_provider.ProcessProvider", "disable_node_updaters": True},
            "auth": {},
            "available_node_types": types,
            "head_node_type": "head",
            "file_mounts": {},
            "file_mounts_sync_continuously": False,
            "head_start_ray_commands": [],
            "worker_start_ray_commands": [],
            **{name: [] for name in (*lists, *more)},
        }

    def launches(self) -> list[float]:
        """When each machine was asked for."""
        if self.name == "ray":
            lines = [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]
            return [one["at"] for one in lines if "launch" in one]
        words = [sys.executable, "-m", "windlass", "events", "--json", "--limit", "100000"]
        words += ["-c", str(self.home / "ray.yaml")]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        events = [json.loads(line) for line in done.stdout.splitlines()]
        asked = [one for one in events if "requesting: its turn came" in one["text"]]
        return [one["at"] for one in asked for _ in one["subjects"]]

    def drive(self, scenario: str) -> dict[str, float]:
        """One scenario in a driver of its own: submitted at, done after, and what else it measures."""
        words = [str(self.bin / "python"), str(DRIVER), self.address, scenario, str(IDLE)]
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=400, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("MEASURED "):
                found: dict[str, float] = json.loads(line.removeprefix("MEASURED "))
                return found
        raise SystemExit(f"{self.name}, {scenario}: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def stop(self) -> None:
        for _ in range(50):
            left = [pid for pid in _processes() if f"{MARK}={self.mark}".encode() in _environ(pid)]
            if not left:
                break
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        shutil.rmtree(self.home, ignore_errors=True)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def measured(side: str, scenario: str, bin_directory: Path, port: int) -> dict[str, float]:
    """The rows of one autoscaler and one scenario, on a fresh head."""
    one = Side(side, bin_directory, port)
    rows: dict[str, float] = {}
    try:
        one.start()
        found = one.drive(scenario)
        asked = sorted(one.launches())
        if scenario == "eight" and asked:
            rows["submit -> first launch asked"] = asked[0] - found["submitted"]
            rows["first -> last launch asked"] = asked[-1] - asked[0]
        rows[f"{scenario}: launches"] = len(asked)
        rows |= {f"{scenario}: {name}": value for name, value in found.items() if name != "submitted"}
    finally:
        one.stop()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    runs = parser.parse_args().runs
    bin_directory = os.environ.get("RAY_NEW")
    if not bin_directory:
        raise SystemExit("RAY_NEW must name the bin directory of a Ray: make bench-ray does")
    table: dict[str, dict[str, list[float]]] = {}
    port = 26500
    for scenario in ("eight", "hundred", "spread", "actor") * runs:
        for side in ("ray", "windlass"):
            port += 1
            for name, value in measured(side, scenario, Path(bin_directory), port).items():
                table.setdefault(name, {}).setdefault(side, []).append(value)
    width = max(map(len, table))
    print(f"{'':{width}}  {'Ray v2':>16}  {'Windlass':>16}")
    for name, sides in table.items():
        shown = [", ".join(f"{one:.1f}" for one in sides.get(side, ())) or "-" for side in ("ray", "windlass")]
        print(f"{name:{width}}  {shown[0]:>16}  {shown[1]:>16}")


if __name__ == "__main__":
    main()
