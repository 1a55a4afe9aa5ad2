"""Windlass against Ray's own autoscaler v2: the same script on the same machine, one after the other.

Needs ``RAY_NEW``, the ``bin`` directory of a plain Ray (``make bench-ray`` sets it up). Each autoscaler gets a fresh
head with 4 nodes of 2 CPUs at the most, the same idle timeout and the same ``ray start`` for workers. All of them start
on this machine, so seconds depend on its cores and on what else runs there: the load is printed.

    python -m benchmarks.ray_cluster [--runs 1] [--singles 10] [--parts eight hundred] [--add]

A whole run takes about ten minutes. ``--parts`` measures some of it, and ``--add`` adds to the values of earlier runs,
for a machine that is free for a few minutes at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import re
import secrets
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "ray_cluster"
TITLE = "A real Ray cluster"
HOST = "127.0.0.2"
MARK = "BENCH_MARK"
IDLE = 3
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
        self._wait_for("GCS", lambda: _answers(self.address))
        # A node that neither autoscaler has bought: another place from which tasks are submitted.
        desk = [str(self.bin / "ray"), "start", "--block", *json.loads(self.environment["BENCH_START"])]
        desk = [word for word in desk if not word.startswith("--num-cpus")]
        desk += ["--num-cpus=0", '--resources={"desk": 1}', f"--temp-dir={self.home}/d"]
        self._run(desk, {"RAY_NODE_TYPE_NAME": "desk", "RAY_CLOUD_INSTANCE_ID": "desk-0"})
        self._wait_for("desk", lambda: asyncio.run(_asked(self.address, _has_desk)))
        if self.name == "windlass":
            (self.home / "ray.yaml").write_text(json.dumps(self._configuration()), encoding="utf-8")
            self._run([sys.executable, "-m", "windlass", "run", str(self.home / "ray.yaml")], {})
        self._wait_for("report of an autoscaler", lambda: asyncio.run(_asked(self.address, _has_report)))
        time.sleep(5)  # what has just started is still busy with that

    def _wait_for(self, what: str, there: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not there():
            if time.monotonic() > deadline:
                raise SystemExit(
                    f"{self.name}: no {what}: {(self.home / 'out.log').read_text(encoding='utf-8')[-2000:]}"
                )
            time.sleep(0.2)

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
            "desk": {"resources": {"CPU": 0, "desk": 1}, "node_config": {}, "min_workers": 1, "max_workers": 1},
            "worker": {"resources": {"CPU": 2}, "node_config": {}, "min_workers": 0, "max_workers": 4},
        }
        return {
            "cluster_name": "bench",
            "max_workers": 5,
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
        asked = [one for one in events if one["kind"] == "slice" and " requesting: " in one["text"]]
        return [one["at"] for one in asked for _ in one["subjects"]]

    def drive(self, singles: int, parts: Sequence[str], found: list[dict[str, Any]]) -> None:
        """Run the script in a driver, and add what it measured to ``found``, part by part."""
        words = [str(self.bin / "python"), str(DRIVER), self.address, str(IDLE), str(singles), *parts]
        with (self.home / "driver.log").open("wb") as errors:
            process = subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, stderr=errors, text=True)
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("MEASURED "):
                    found.append(json.loads(line.removeprefix("MEASURED ")))
                    print(f"{self.name}: {line.strip()}", file=sys.stderr, flush=True)
            process.wait()
        if process.returncode:
            print((self.home / "driver.log").read_text(encoding="utf-8")[-3000:], file=sys.stderr)

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


def _answers(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1):
            return True
    except OSError:
        return False


async def _asked(address: str, question: Callable[[Any], Awaitable[bool]]) -> bool:
    """What the GCS answers; False: nothing."""
    from windlass.workloads.ray.gcs import Gcs, GcsError

    gcs = Gcs(address)
    try:
        return await question(gcs)
    except GcsError:
        return False
    finally:
        await gcs.close()


async def _has_desk(gcs: Any) -> bool:
    return any(one.instance_id == "desk-0" and one.state == 0 for one in await gcs.nodes())


async def _has_report(gcs: Any) -> bool:
    """Whether an autoscaler has told the GCS what it does: it is up."""
    status = await gcs.status()
    return bool(status.autoscaling_state.autoscaler_state_version > 0)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _environ(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def rows(parts: list[dict[str, Any]], launches: list[float]) -> dict[str, list[float | None]]:
    """The rows of the table for one autoscaler. None: never."""
    table: dict[str, list[float | None]] = {}

    def add(row: str, value: float | None) -> None:
        table.setdefault(row, []).append(None if value is None else round(value, 3))

    for number, part in enumerate(parts):
        until = parts[number + 1]["at"] if number + 1 < len(parts) else float("inf")
        asked = [at for at in launches if part["at"] - 0.05 <= at < until]
        name = part["part"]
        if asked and name in ("single", "eight", "hundred", "spread"):
            add("submit -> first launch asked (driver on the head)", asked[0] - part["at"])
        if asked and name == "elsewhere":
            add("submit -> first launch asked (driver on another node)", asked[0] - part["at"])
        if name == "eight":
            add("first -> last of 4 launches asked", asked[-1] - asked[0] if asked else None)
            add("8 tasks of 4 s: submit -> last result", part["took"])
        if name == "hundred":
            add("100 tasks of 0.5 s", part["took"])
        if name == "spread":
            add("placement group STRICT_SPREAD of 4 ready", part["took"])
        if name in ("eight", "hundred", "spread"):
            add("nodes bought that no work ran on (a, b, c)", len(asked) - part["worked"])
        if name == "killed":
            add("raylet killed -> DEAD in the GCS", part["dead_after"])
        if name == "actor":
            add("actor without num_cpus on a fresh node (1: lives)", part["lives"])
        if name in ("eight", "hundred", "spread"):
            for row in ("idle timeout over -> DEAD in the GCS", "idle timeout over -> process gone"):
                add(row, part[row])
    return table


PARTS = ("single", "elsewhere", "eight", "hundred", "spread", "actor", "killed")
SIDES = ("windlass", "ray")
COMPARED = re.compile("not slower|.*less")
SUMMED = "submit -> first launch asked"
TARGETS = {
    "submit -> first launch asked (driver on the head)": "median <= 0.5, worst of 10 <= 1.2",
    "submit -> first launch asked (driver on another node)": "median <= 1.2",
    "first -> last of 4 launches asked": "<= 0.5",
    "8 tasks of 4 s: submit -> last result": "not slower",
    "100 tasks of 0.5 s": ">= 15 % less",
    "placement group STRICT_SPREAD of 4 ready": ">= 40 % less",
    "nodes bought that no work ran on (a, b, c)": "0",
    "idle timeout over -> DEAD in the GCS": "<= 1",
    "idle timeout over -> process gone": "<= 2",
    "raylet killed -> DEAD in the GCS": "<= 2",
    "actor without num_cpus on a fresh node (1: lives)": "1",
}


def shown(row: str, values: Sequence[float | None]) -> str:
    """The values of one side, as a cell."""
    if not values:
        return "-"
    known = [value for value in values if value is not None]
    if row.startswith(SUMMED) and known:
        return f"median {statistics.median(known):.2f}, worst of {len(known)} {max(known):.2f}"
    return ", ".join("never" if value is None else f"{value:.{0 if value == int(value) else 1}f}" for value in values)


def difference(row: str, ray: Sequence[float | None], windlass: Sequence[float | None]) -> str:
    """By how much Windlass takes less, where that is what must be reached: of the means."""
    ours, theirs = [one for one in windlass if one is not None], [one for one in ray if one is not None]
    if not (COMPARED.match(TARGETS[row]) and ours and theirs):
        return ""
    return f" ({100 - 100 * statistics.mean(ours) / statistics.mean(theirs):.0f} % less)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--singles", type=int, default=10, help="single tasks from which the time to a launch is taken")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="what to measure; all unless it is given"
    )
    parser.add_argument(
        "--sides", nargs="+", choices=SIDES, default=SIDES, help="whom to measure; both unless it is given"
    )
    parser.add_argument("--add", action="store_true", help="add to the values of earlier runs")
    parser.add_argument("--logs", type=Path, help="a directory in which the logs of both sides are kept")
    given = parser.parse_args()
    bin_directory = os.environ.get("RAY_NEW")
    if not bin_directory:
        raise SystemExit("RAY_NEW must name the bin directory of a Ray: make bench-ray does")
    kept = Path(__file__).parent / "results" / f"{NAME}.json"
    earlier = json.loads(kept.read_text(encoding="utf-8")) if given.add else {}
    values: dict[str, dict[str, list[float | None]]] = earlier.get("values", {})
    loads: dict[str, list[float]] = earlier.get("load", {})
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started ends with us
    version = subprocess.run([f"{bin_directory}/ray", "--version"], capture_output=True, text=True, check=False).stdout
    port = 26500
    for _ in range(given.runs):
        for side in given.sides:
            port += 1
            one = Side(side, Path(bin_directory), port)
            loads.setdefault(side, []).append(round(os.getloadavg()[0], 1))
            found: list[dict[str, Any]] = []
            try:
                one.start()
                one.drive(given.singles, given.parts, found)
            finally:  # also what was measured when it is ended before its time
                for row, measured in rows(found, sorted(one.launches())).items():
                    values.setdefault(row, {}).setdefault(side, []).extend(measured)
                if given.logs is not None:
                    given.logs.mkdir(parents=True, exist_ok=True)
                    shutil.copy(one.home / "out.log", given.logs / f"{side}-{port}.log")
                one.stop()
                result = {
                    "date": dt.datetime.now(dt.UTC).date().isoformat(),
                    "ray": version.strip().rpartition(" ")[2],
                    "cores": os.cpu_count(),
                    "load": loads,
                    "values": values,
                }
                kept.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(section(result))
    page = Path(__file__).parent.parent / "docs" / "benchmark-tables.md"
    page.write_text(with_section(page.read_text(encoding="utf-8"), section(result)), encoding="utf-8")


def conclusion(result: Mapping[str, Any]) -> str:
    """Return the row of ``docs/benchmarks.md``."""
    parts = []
    for row in ("8 tasks of 4 s: submit -> last result", "100 tasks of 0.5 s"):
        ray, windlass = (result["values"].get(row, {}).get(side, []) for side in ("ray", "windlass"))
        parts.append(f"{row.split(':')[0]}: {shown(row, windlass)} s with Windlass, {shown(row, ray)} s with Ray's own")
    load = max(value for values in result["load"].values() for value in values)
    question = "And on a real Ray cluster, against Ray's own autoscaler?"
    link = f"[{question}](benchmark-tables.md#{TITLE.lower().replace(' ', '-')})"
    return f"| {link} | {'; '.join(parts)}; load of the computer up to {load}. |"


def section(result: Mapping[str, Any]) -> str:
    """Return the section of ``docs/benchmark-tables.md``."""
    loads = "; ".join(
        f"{'Ray' if side == 'ray' else 'Windlass'} {', '.join(map(str, found))}"
        for side, found in result["load"].items()
    )
    head = "| seconds | Ray's own v2 | Windlass | to reach |\n|---|---|---|---|"
    lines = []
    for row, target in TARGETS.items():
        ray, windlass = (result["values"].get(row, {}).get(side, []) for side in ("ray", "windlass"))
        cells = [row, shown(row, ray), shown(row, windlass) + difference(row, ray, windlass), target]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines)
    note = f"\n{result['note']}\n" if "note" in result else ""
    return f"""## {TITLE}

The same script with Ray's own autoscaler v2 and with Windlass (`make bench-ray`): a fresh head for each, 4 nodes of
2 CPUs at the most, an idle timeout of {IDLE} s, plain `ray`. Ray's side uses a node provider (`type: external`) that
runs the same `ray start` for its workers. Windlass has its default settings. All nodes start on one machine and share
its cores, so seconds depend on what else runs there: what counts is the difference. `never`: not within 60 s.

Measured on {result["date"]}: Ray {result["ray"]}, {result["cores"]} cores. Load of the machine before each run:
{loads}.

{head}
{table}
{note}"""


def with_section(page: str, text: str) -> str:
    """Replace this section of the page, or append it."""
    before, found, rest = page.partition(f"## {TITLE}\n")
    after = rest[rest.index("\n## ") + 1 :] if found and "\n## " in rest else ""
    return f"{before.rstrip()}\n\n{text}" + (f"\n{after}" if after else "")


if __name__ == "__main__":
    main()
