"""Real Ray heads, drivers and workers for tests; each is a process that is ended by its process id.

``RAY_OLD`` and ``RAY_NEW`` are the ``bin`` directories of ray 2.48 and of the newest; ``make`` installs both. ``ray
stop`` is never used: it ends every Ray process of the machine.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from windlass._free_port import free_port
from windlass.core.model.snapshot import Group, amounts
from windlass.testing.eventually import eventually
from windlass.workloads.ray import wire_pb2 as wire
from windlass.workloads.ray.gcs import Gcs
from windlass.workloads.ray.nodes import DEAD_ACTOR
from windlass.workloads.ray.workload import RayWorkload

HOST = "127.0.0.2"
VERSIONS = ("RAY_NEW", "RAY_OLD")
HEAD = "head-0"
"""The instance id of every head."""
MARK = "WINDLASS_TEST_RAY"
"""Set in the environment of every process of a stage: raylets and workers inherit it."""
STARTING = 300.0
"""Seconds for which tests wait: a worker joins in 5 s, but on a very busy machine after several starts of 30 s."""


PATIENT = 60.0
"""Seconds for which tests wait for the answer of a head: it may take longer than usual on a very busy machine."""


def programs(which: str) -> Path:
    """Return the ``bin`` directory of a version; skip the test where it is missing."""
    found = os.environ.get(which)
    if not found or not (Path(found) / "ray").exists():
        pytest.skip(f"{which} does not name a bin directory with ray; `make ray-environments` makes it and names it")
    return Path(found)


class RayHead:
    """A head without Ray's own autoscaler."""

    def __init__(
        self,
        which: str,
        *,
        host: str = HOST,
        port: int = 0,
        cpus: int = 0,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.bin = programs(which)
        self.host, self.port = host, port or free_port(host)
        self.address = f"{host}:{self.port}"
        self.mark = secrets.token_hex(8)
        self.cpus = cpus
        self.directory = Path(tempfile.mkdtemp(prefix="wr", dir="/tmp"))
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "PYTHONPATH"))},
            "RAY_AUTH_MODE": "disabled",
            "RAY_enable_autoscaler_v2": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            MARK: self.mark,
            **(environment or {}),
        }
        self.token = self.environment.get("RAY_AUTH_TOKEN", "")
        files = {"ca_file": "RAY_TLS_CA_CERT", "cert": "RAY_TLS_SERVER_CERT", "key": "RAY_TLS_SERVER_KEY"}
        self.tls = {key: self.environment[name] for key, name in files.items() if name in self.environment}
        self.process: subprocess.Popen[bytes] | None = None
        self.hosts: list[subprocess.Popen[bytes]] = []
        """Workers that tests have started themselves."""

    @property
    def ray(self) -> str:
        return str(self.bin / "ray")

    def start(self) -> RayHead:
        words = [
            self.ray,
            "start",
            "--head",
            "--block",
            f"--num-cpus={self.cpus}",
            f"--port={self.port}",
            f"--node-ip-address={self.host}",
            "--no-monitor",
            "--include-dashboard=false",
            "--object-store-memory=100000000",
            f"--temp-dir={self.directory}",
        ]
        named = {"RAY_NODE_TYPE_NAME": "head", "RAY_CLOUD_INSTANCE_ID": HEAD}
        with (self.directory / "head.log").open("wb") as log:
            self.process = subprocess.Popen(
                words, env={**self.environment, **named}, stdout=log, stderr=log, start_new_session=True
            )
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((self.host, self.port), timeout=1):
                return self
            assert self.process.poll() is None, (self.directory / "head.log").read_text(encoding="utf-8")
            time.sleep(0.1)
        raise AssertionError(f"the head at {self.address} did not come up: {self.directory}/head.log")

    def signal(self, which: int, program: str = "gcs_server") -> None:
        """Send a signal to one of the head's processes."""
        for pid in self.processes():
            if program in _command(pid):
                os.kill(pid, which)

    def crash(self) -> None:
        """End every process of the head; workers and controllers go on."""
        while left := [pid for pid in self.processes() if f"RAY_CLOUD_INSTANCE_ID={HEAD}\0".encode() in _environ(pid)]:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            if self.process is not None:
                self.process.poll()
            time.sleep(0.1)

    def end_nodes(self, instances: Collection[str]) -> None:
        """End every process of these nodes."""
        wanted = [f"RAY_CLOUD_INSTANCE_ID={one}\0".encode() for one in instances]
        for pid in self.processes():
            if any(one in _environ(pid) for one in wanted):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        for host in self.hosts:
            host.poll()

    async def end_all_nodes(self) -> None:
        """End every node but the head, also those that only the GCS lists."""
        gcs = Gcs(self.address, token=self.token, tls=self.tls, timeout=PATIENT)
        try:
            alive = [one for one in await gcs.nodes() if one.state == 0 and one.instance_id != HEAD]
            self.end_nodes([one.instance_id for one in alive])
            for one in alive:
                await gcs.unregister(one.node_id, "ended by a test")
        finally:
            await gcs.close()

    async def is_free(self, within: float) -> bool:
        """Return whether nothing waits and nothing runs on the cluster within so many seconds."""
        gcs = Gcs(self.address, token=self.token, tls=self.tls, timeout=PATIENT)
        try:
            deadline = time.monotonic() + within
            while _has_work(await gcs.resource_state()) or any(one.state != DEAD_ACTOR for one in await gcs.actors()):
                if time.monotonic() > deadline:
                    return False
                await asyncio.sleep(0.1)
        finally:
            await gcs.close()
        return True

    def processes(self) -> list[int]:
        """Return every process of the head, its workers and its drivers."""
        return marked(self.mark)

    def stop(self) -> None:
        for _ in range(50):
            left = self.processes()
            if not left:
                break
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)
        for process in (*self.hosts, *([self.process] if self.process is not None else ())):
            process.wait(10)
        shutil.rmtree(self.directory, ignore_errors=True)

    def status(self, *words: str) -> str:
        """Return what ``ray status`` prints."""
        done = subprocess.run(
            [self.ray, "status", f"--address={self.address}", *words],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout + done.stderr

    def driver(self) -> Driver:
        return Driver(self)


_DRIVER = """
import base64, json, os, sys, traceback
import ray
ray.init(address=sys.argv[1])
space = {"ray": ray}
answers = os.fdopen(int(sys.argv[2]), "w")
print("READY", file=answers, flush=True)
for line in sys.stdin:
    try:
        code = base64.b64decode(line).decode()
        space["result"] = None
        exec(code, space)
        answer = {"result": space["result"]}
    except BaseException as error:
        answer = {"error": "".join(traceback.format_exception(error))[-3000:]}
    print("ANSWER " + json.dumps(answer), file=answers, flush=True)
"""


class Driver:
    """A Python process with ``ray.init`` that runs what a test gives it."""

    def __init__(self, head: RayHead) -> None:
        self.output = head.directory / f"driver-{secrets.token_hex(3)}.log"
        reading, writing = os.pipe()
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [str(head.bin / "python"), "-u", "-c", _DRIVER, head.address, str(writing)],
                env=head.environment,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                cwd=head.directory,
                pass_fds=(writing,),
            )
        os.close(writing)
        self._answers = os.fdopen(reading, encoding="utf-8")
        self._answer("READY")

    def run(self, code: str) -> object:
        """Run statements in the driver, and return what they assign to ``result``."""
        self.send(code)
        return self.answer()

    def send(self, code: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(base64.b64encode(code.encode()) + b"\n")
        self.process.stdin.flush()

    def answer(self) -> object:
        found = json.loads(self._answer("ANSWER").removeprefix("ANSWER "))
        assert "error" not in found, found["error"]
        return found["result"]

    def _answer(self, wanted: str) -> str:
        line = self._answers.readline()
        assert line.startswith(wanted), f"the driver ended: {self.said()}"
        return line

    def said(self) -> str:
        """Return what it has printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self._answers.close()
        if self.process.stdin is not None:
            with suppress(OSError):
                self.process.stdin.close()


class SharedHeads:
    """One head per version that many tests use, with a driver each. What a test leaves on it is removed."""

    def __init__(self) -> None:
        self._started: dict[str, tuple[RayHead, Driver]] = {}

    def of(self, which: str) -> tuple[RayHead, Driver]:
        """Return the head and the driver of a version, and start them where there are none."""
        if which not in self._started:
            head = RayHead(which)
            try:
                self._started[which] = head.start(), head.driver()
            except BaseException:
                head.stop()
                raise
        return self._started[which]

    def clear(self, which: str, *, nodes: bool) -> None:
        """Remove what a test has left: tasks, actors, placement groups, requests; with ``nodes`` also all nodes but
        the head. To remove it, the driver is replaced, which ends its job; if that is not enough, so is the head."""
        if which not in self._started:
            return
        head, driver = self._started[which]
        try:
            if nodes:
                RayStage.left_nodes.pop(head.address, None)
                asyncio.run(head.end_all_nodes())
            if not asyncio.run(head.is_free(within=3)):
                driver.close()
                self._started[which] = head, head.driver()
                self._started[which][1].run(_LET_GO)
                assert asyncio.run(head.is_free(within=60))
        except Exception as error:  # noqa: BLE001  # whatever went wrong, the next test gets a fresh head
            print(f"the head at {head.address} is replaced: {error!r}")
            self.end(which)

    def end(self, which: str) -> None:
        """End the head of a version. The next test that needs it gets a fresh one."""
        if which in self._started:
            head, driver = self._started.pop(which)
            driver.close()
            head.stop()

    def stop(self) -> None:
        for which in tuple(self._started):
            self.end(which)


_LET_GO = "from ray.autoscaler.sdk import request_resources; request_resources(num_cpus=0)"


def _has_work(state: wire.ClusterResourceState) -> bool:
    asked = any(one.resource_requests for one in state.cluster_resource_constraints)
    waits = state.pending_resource_requests or state.pending_gang_resource_requests
    return (
        asked or bool(waits) or any(one.status == wire.NODE_RUNNING and one.node_activity for one in state.node_states)
    )


def marked(mark: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
    return found


def _environ(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/environ").read_bytes()
    return b""


def _command(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


class RayStage:
    """The workload under test on a shared head; hosts join with the command of the workload.

    Every stage has its own group, so that it does not take nodes of earlier stages for its own. A node that an earlier
    stage has left idle is used again under another name, because a start takes seconds.
    """

    _number = 0
    left_nodes: ClassVar[dict[str, list[str]]] = {}
    """Instance ids of idle nodes that are left, by the address of their head."""

    def __init__(self, head: RayHead, driver: Driver | None = None, **options: Any) -> None:
        """``driver``: by default its own, because the newest Ray keeps a cancelled task now and then and runs it later;
        it ends with its job. Ray 2.48 counts nodes as busy for a while after a job has ended."""
        RayStage._number += 1
        self.name = f"g{RayStage._number}"
        self.head, self.driver, self.own = head, driver, driver is None
        self.directory = head.directory / self.name
        self.directory.mkdir()
        resources = amounts({"cpu": 1000, "memory": 300_000_000, "object_store_memory": 80_000_000 * 1000})
        group = Group("g", resources, max=9)
        self.names: dict[str, str] = {}
        self.workload = RayWorkload(
            head.address,
            (group, replace(group, name=self.name)),
            ray=head.ray,
            names=lambda: self.names,
            gcs=Gcs(head.address, timeout=PATIENT),
            **options,
        )
        self.left = self.left_nodes.setdefault(head.address, [])
        self.gates = 0

    async def join_slice(self, slice_id: str, group: str = "") -> None:
        if self.left:
            self.names[self.left.pop()] = f"{slice_id}/0"
        else:
            instance = f"{slice_id}-{self.name}/0"
            join = self.workload.join(instance.removesuffix("/0"), self.name, 0)
            with (self.directory / f"{slice_id}.log").open("wb") as log:
                process = subprocess.Popen(
                    join.command, env={**self.head.environment, **join.environment}, stdout=log, stderr=log
                )
            self.head.hosts.append(process)
            self.names[instance] = f"{slice_id}/0"
        await eventually(self._nodes, lambda found: slice_id in found, within=STARTING)

    async def _nodes(self) -> set[str]:
        return {node.slice_id for node in (await self.workload.observe()).nodes}

    async def submit(self, tasks: int) -> None:
        if self.driver is None:
            self.driver = await asyncio.to_thread(self.head.driver)
        await self._end(self.left)
        view = await self.workload.observe()
        ending = {one.slice_id for one in view.acknowledged}
        idle = sum(not node.tasks and node.slice_id not in ending for node in view.nodes)
        wanted = len(self._started()) + min(idle, tasks)
        for _ in range(tasks):
            gate = self.directory / f"gate-{self.gates}"
            os.mkfifo(gate)
            self.gates += 1
            await asyncio.to_thread(self.driver.run, _GATED.format(gate=str(gate)))
        await eventually(self._starts, lambda found: found >= wanted, within=STARTING)

    def _started(self) -> list[Path]:
        return list(self.directory.glob("*.started"))

    async def _starts(self) -> int:
        """Return how many tasks have begun: a node is busy before the process of its task has started."""
        return len(self._started())

    async def finish(self) -> None:
        """Open the gate of every running task."""
        for node in (await self.workload.observe()).nodes:
            if node.tasks:
                gate = await eventually(self._gate, within=STARTING)
                assert gate is not None
                gate.unlink()

    async def _gate(self) -> Path | None:
        for gate in sorted(self.directory.glob("gate-*")):
            with suppress(OSError):
                if gate.is_fifo():
                    os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
                    return gate
        return None

    async def land(self, slice_id: str) -> bool:
        return False  # a raylet that has accepted its drain is gone

    async def pass_time(self) -> None:
        await asyncio.sleep(0.3)  # longer than a poll; the cluster lives in real time

    async def break_off(self) -> None:
        """End what waits and runs. Idle nodes are left to the next stage; all others end."""
        gcs = Gcs(self.head.address, timeout=PATIENT)
        try:
            if self.driver is not None:
                await asyncio.to_thread(self.driver.run, _CANCEL)
            if self.driver is not None and self.own:
                await asyncio.to_thread(self.driver.close)
            try:
                state = await eventually(gcs.resource_state, self._is_calm, within=20)
            except AssertionError:  # before the next test the shared driver, or the head, is replaced
                state = await gcs.resource_state()
        finally:
            await gcs.close()
        states = {one.instance_id: one.status for one in state.node_states}
        idle = [one for one in self.names if states.get(one) == wire.NODE_IDLE]
        await self._end([one for one in self.names if one not in idle])
        self.left += idle

    def _is_calm(self, state: wire.ClusterResourceState) -> bool:
        """Whether nothing waits and no node of this stage is at work."""
        at_work = (one.instance_id in self.names and one.status == wire.NODE_RUNNING for one in state.node_states)
        return not state.pending_resource_requests and not any(at_work)

    async def _end(self, instances: list[str]) -> None:
        """End nodes, and wait until the GCS has no such node and nothing waits that could have run there."""
        gone = set(instances)
        instances.clear()
        self.head.end_nodes(gone)
        gcs = Gcs(self.head.address, timeout=PATIENT)
        try:
            for info in await gcs.nodes():
                if info.instance_id in gone and info.state == 0:
                    await gcs.unregister(info.node_id, "ended by a test")
        finally:
            await gcs.close()


_GATED = """
if "gated" not in globals():
    futures = []
    @ray.remote(num_cpus=1, max_retries=-1)
    def gated(gate):
        open(gate + ".started", "w").close()
        open(gate).read()
futures.append(gated.remote("{gate}"))
"""
_CANCEL = """
for one in globals().get("futures", ()):
    ray.cancel(one, force=True)
futures = []
"""
