"""A control plane with `windlass run` on it, as tests use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.testing.kubernetes.control_plane import ControlPlane

SIZE = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "8"}


class Cluster:
    """A control plane, and `windlass run` on it as a process of its own."""

    def __init__(self, plane: ControlPlane, home: Path) -> None:
        self.plane, self.home = plane, home
        self.account = plane.account_kubeconfig("windlass-system", "windlass")
        self.running: list[subprocess.Popen[bytes]] = []
        self.file = self.configure("windlass")

    def configure(
        self, name: str, lease: str = "8s", *, leader: str = "8s", account: Path | None = None, **kwok: Any
    ) -> Path:
        """Write a configuration. ``leader``: the lease of its journal. ``account``: another kubeconfig."""
        file = self.home / f"{name}.yaml"
        kubeconfig = str(account or self.account)
        data = {
            "workload": {"type": "kubernetes", "kubeconfig": kubeconfig, "settle": "1s", "lease": lease},
            "providers": {"kwok": {"type": "kwok", **kwok}},
            "journal": {"location": str(self.home / f"{name}.db")},
            "leader": {"lease": leader},
            "policy": {"vanish_timeout": "1s"},
        }
        file.write_text(json.dumps(data))
        return file

    def run(self, file: Path | None = None) -> subprocess.Popen[bytes]:
        log = (self.home / f"run-{len(self.running)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "windlass", "run", str(file or self.file)],
            stdout=log,
            stderr=log,
            env=dict(os.environ),
        )
        log.close()
        self.running.append(process)
        return process

    def release(self) -> None:
        """Delete the Lease of a controller that was killed: the next one need not wait until it has run out."""
        self.plane.kubectl("delete", "lease", "--all", "-n", "windlass-system")

    def log(self, number: int = 0) -> str:
        return (self.home / f"run-{number}.log").read_text()

    def windlass(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "windlass", *words],
            capture_output=True,
            text=True,
            timeout=180,
            env={**os.environ, "WINDLASS_CONFIG": str(self.file), "NO_COLOR": "1"},
            check=False,
        )
        return done.stdout + done.stderr

    def stop(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()

    # -- objects -------------------------------------------------------------------------------------------------------

    def provision(self, name: str = "a100", **spec: Any) -> None:
        whole = {"maxNodes": 50, "template": {"resources": SIZE}, **spec}
        self.apply("NodeProvisioner", name, whole)

    def apply(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        body = {"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", given=json.dumps(body))

    def pods(self, *names: str, gpus: int = 8, **spec: Any) -> None:
        for name in names:
            container = {"name": "c", "image": "x", "resources": {"limits": {"nvidia.com/gpu": str(gpus), "cpu": "1"}}}
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
                "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
            }
            self.plane.call("POST", "/api/v1/namespaces/default/pods", body)

    def finish(self, *names: str) -> None:
        self.plane.kubectl("delete", "pod", *names, "--force", "--grace-period=0", "--wait=false")

    def items(self, path: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.plane.call("GET", path)["items"]
        return found

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        return {one["metadata"]["name"]: one for one in self.items("/api/v1/nodes")}

    def tainted(self, key: str) -> dict[str, str]:
        return {
            name: taint.get("value", "")
            for name, node in self.nodes.items()
            for taint in node["spec"].get("taints") or ()
            if taint["key"] == key
        }

    @property
    def marked(self) -> dict[str, str]:
        return self.tainted("windlass.dev/scheduled-deletion")

    def bound(self) -> dict[str, str]:
        pods = self.items("/api/v1/namespaces/default/pods")
        return {one["metadata"]["name"]: one["spec"].get("nodeName", "") for one in pods if one["spec"].get("nodeName")}

    def status(self, name: str = "a100") -> dict[str, Any]:
        found = self.plane.call("GET", f"/apis/windlass.dev/v1alpha1/nodeprovisioners/{name}")
        return found.get("status") or {}

    def events(self, reason: str) -> list[dict[str, Any]]:
        return [one for one in self.items("/api/v1/events") if one["reason"] == reason]

    def until(self, check: Callable[[], Any], limit: float = 180.0) -> Any:
        deadline = time.monotonic() + limit
        while not (found := check()):
            for number, process in enumerate(self.running):
                if process.poll() not in (None, -9):
                    raise AssertionError(f"windlass ended with {process.poll()}:\n{self.log(number)[-3000:]}")
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {limit:g} s\n{self.log()[-3000:]}")
            time.sleep(0.1)
        return found
