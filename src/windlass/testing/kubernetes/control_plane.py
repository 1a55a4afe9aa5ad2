"""This module starts a real Kubernetes control plane: etcd, kube-apiserver, and on request scheduler and
controllers.

The binaries are found as envtest finds them, in the directory that ``KUBEBUILDER_ASSETS`` names. Everything listens on
loopback, keeps its data in a temporary directory (in memory where there is one) and ends with ``stop``.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from windlass._free_port import free_port

ASSETS: Final = "KUBEBUILDER_ASSETS"
REQUIRED: Final = ("etcd", "kube-apiserver", "kubectl")
SCHEDULING: Final = ("kube-scheduler", "kube-controller-manager")
STARTING: Final = 90.0
"""Seconds that a component may take to come up on a loaded machine."""
TRANSPORT_ERRORS: Final = (OSError, http.client.HTTPException, ValueError)
"""The errors of a call while the API server is down, starting, or killed during an answer. urllib's own errors
are OSErrors; an answer that was cut short is no JSON, which is a ValueError."""
REMEDY: Final = f"run make kubernetes-assets, and set {ASSETS} to the directory that it names"


def missing(*binaries: str) -> str:
    """Return why the control plane cannot be started here; empty if it can."""
    directory = os.environ.get(ASSETS, "")
    if not directory:
        return f"{ASSETS} is not set: {REMEDY}"
    wanted = binaries or (*REQUIRED, *SCHEDULING)
    absent = [name for name in wanted if not os.access(Path(directory, name), os.X_OK)]
    return f"{directory} has no {', '.join(absent)}: {REMEDY}" if absent else ""


class ControlPlane:
    """A control plane that is running, or was stopped."""

    def __init__(self, *, scheduler: bool = True, feature_gates: str = "", runtime_config: str = "") -> None:
        """``scheduler``: also kube-scheduler and kube-controller-manager. ``feature_gates``, ``runtime_config``: what
        alpha and beta APIs are switched on."""
        self._assets = Path(os.environ[ASSETS])
        memory = Path("/dev/shm")
        self.directory = Path(tempfile.mkdtemp(prefix="windlass-k8s-", dir=memory if memory.is_dir() else None))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self._with_scheduler, self._gates, self._runtime = scheduler, feature_gates, runtime_config
        self.admin_token = secrets.token_hex(16)
        self._tokens = {
            name: secrets.token_hex(16) for name in ("system:kube-scheduler", "system:kube-controller-manager")
        }
        self.url = ""

    # -- start and stop ------------------------------------------------------------------------------------------------

    def start(self) -> ControlPlane:
        """Start everything and return when it answers."""
        try:
            self._start_etcd()
            self._start_api_server()
            if self._with_scheduler:
                self._start_scheduling()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process and remove the data."""
        for name in reversed(list(self._processes)):
            self.kill(name)
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> ControlPlane:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def kill(self, name: str) -> None:
        """Kill one process."""
        process = self._processes.pop(name, None)
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()

    def restart(self, name: str) -> None:
        """Start a process again that was killed, with the same data and port."""
        self._run(name, self._commands[name])
        if name == "kube-apiserver":
            self._wait_for("kube-apiserver", self._is_ready)

    def _start_etcd(self) -> None:
        client, peer = free_port(), free_port()
        self._etcd = f"http://127.0.0.1:{client}"
        ours, theirs = self._etcd, f"http://127.0.0.1:{peer}"
        self._run(
            "etcd",
            [
                f"--data-dir={self.directory / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls={ours}",
                f"--advertise-client-urls={ours}",
                f"--listen-peer-urls={theirs}",
                f"--initial-advertise-peer-urls={theirs}",
                f"--initial-cluster=default={theirs}",
                "--log-level=error",
            ],
        )
        self._wait_for("etcd", lambda: b"true" in _fetch(f"{ours}/health"))

    def _start_api_server(self) -> None:
        port = free_port()
        self.url = f"https://127.0.0.1:{port}"
        certificates = self.directory / "certificates"
        tokens = self.directory / "tokens.csv"
        lines = [f'{self.admin_token},admin,admin,"system:masters"']
        lines += [f"{token},{name},{name}" for name, token in self._tokens.items()]
        tokens.write_text("\n".join(lines) + "\n")
        self._service_account_key()
        flags = [
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={certificates}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=RBAC",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://windlass.test",
            f"--service-account-key-file={self.directory / 'sa.key'}",
            f"--service-account-signing-key-file={self.directory / 'sa.key'}",
            "--disable-admission-plugins=ServiceAccount",
            "--endpoint-reconciler-type=none",
        ]
        if self._gates:
            flags.append(f"--feature-gates={self._gates}")
        if self._runtime:
            flags.append(f"--runtime-config={self._runtime}")
        self._run("kube-apiserver", flags)
        self._wait_for("kube-apiserver", self._is_ready)
        self.kubeconfig = self.write_kubeconfig("admin", self.admin_token)

    def _service_account_key(self) -> None:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        encoded = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
        (self.directory / "sa.key").write_bytes(encoded)

    def _start_scheduling(self) -> None:
        scheduler = self.write_kubeconfig("scheduler", self._tokens["system:kube-scheduler"])
        controllers = self.write_kubeconfig("controllers", self._tokens["system:kube-controller-manager"])
        gates = [f"--feature-gates={self._gates}"] if self._gates else []
        self._scheduler_port, self._controllers_port = free_port(), free_port()
        self._run(
            "kube-scheduler",
            [
                f"--kubeconfig={scheduler}",
                f"--authentication-kubeconfig={scheduler}",
                f"--authorization-kubeconfig={scheduler}",
                "--authentication-skip-lookup=true",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--cert-dir={self.directory / 'scheduler'}",
                f"--secure-port={self._scheduler_port}",
                "--kube-api-qps=2000",
                "--kube-api-burst=4000",
                *gates,
            ],
        )
        self._run(
            "kube-controller-manager",
            [
                f"--kubeconfig={controllers}",
                f"--authentication-kubeconfig={controllers}",
                f"--authorization-kubeconfig={controllers}",
                "--authentication-skip-lookup=true",
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                f"--cert-dir={self.directory / 'controllers'}",
                f"--secure-port={self._controllers_port}",
                f"--service-account-private-key-file={self.directory / 'sa.key'}",
                "--use-service-account-credentials=true",
                "--node-monitor-grace-period=24h",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                "--controllers=*,-csrsigning,-csrapproving,-csrcleaner,-root-ca-cert-publisher",
                *gates,
            ],
        )
        for name, port in (
            ("kube-scheduler", self._scheduler_port),
            ("kube-controller-manager", self._controllers_port),
        ):
            self._wait_for(name, lambda port=port: b"ok" in _fetch(f"https://127.0.0.1:{port}/healthz"))  # type: ignore[misc]

    def _run(self, name: str, flags: list[str]) -> None:
        self._commands[name] = flags
        log = (self.directory / f"{name}.log").open("ab")
        self._processes[name] = subprocess.Popen(
            [str(self._assets / name), *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.directory,
            start_new_session=True,
        )
        log.close()

    def _is_ready(self) -> bool:
        return b"ok" in _fetch(f"{self.url}/readyz", self.admin_token)

    def _wait_for(self, name: str, is_up: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STARTING
        while time.monotonic() < deadline:
            if self._processes[name].poll() is not None:
                break
            try:
                if is_up():
                    return
            except TRANSPORT_ERRORS:
                pass
            time.sleep(0.05)
        raise RuntimeError(f"{name} did not come up:\n{self.log(name)[-2000:]}")

    # -- access --------------------------------------------------------------------------------------------------------

    def log(self, name: str) -> str:
        """Return what a process has written so far."""
        return (self.directory / f"{name}.log").read_text(errors="replace")

    def write_kubeconfig(self, name: str, token: str) -> Path:
        """Return a kubeconfig for the holder of a token."""
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        path = self.directory / f"{name}.kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": name,
                    "clusters": [{"name": "test", "cluster": cluster}],
                    "users": [{"name": name, "user": {"token": token}}],
                    "contexts": [{"name": name, "context": {"cluster": "test", "user": name}}],
                }
            )
        )
        return path

    def account_kubeconfig(self, namespace: str, account: str) -> Path:
        """Return a kubeconfig for a ServiceAccount, with a token of its own."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 36000},
        }
        answer = self.call("POST", path, body)
        return self.write_kubeconfig(f"{namespace}-{account}", answer["status"]["token"])

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, **headers: str) -> Any:
        """One call as the administrator; ``urllib.error.HTTPError`` if it is refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, method=method)
        request.add_header("Authorization", f"Bearer {self.admin_token}")
        request.add_header("Content-Type", headers.get("content_type", "application/json"))
        deadline = time.monotonic() + 15
        while True:
            try:
                with urllib.request.urlopen(request, context=_ANY_CERTIFICATE, timeout=30) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                # Storage of a kind that was just defined is initialised for a second or two.
                if error.code != 429 or time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def kubectl(self, *words: str, given: str = "", kubeconfig: Path | None = None) -> str:
        """Run kubectl and return its output; ``subprocess.CalledProcessError`` with its messages if it fails."""
        command = [str(self._assets / "kubectl"), f"--kubeconfig={kubeconfig or self.kubeconfig}", *words]
        cache = {**os.environ, "HOME": str(self.directory)}
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120, env=cache, check=False)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, words, done.stdout, done.stderr)
        return done.stdout

    def watch(self, kind: str) -> subprocess.Popen[bytes]:
        """Start ``kubectl get KIND -w``, which writes to our own output until it is killed."""
        command = [str(self._assets / "kubectl"), f"--kubeconfig={self.kubeconfig}", "get", kind, "-w"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, "HOME": str(self.directory)})

    def pids(self) -> Iterable[int]:
        """Return the ids of its processes."""
        return [process.pid for process in self._processes.values()]


_ANY_CERTIFICATE = ssl.create_default_context()
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


def _fetch(url: str, token: str = "") -> bytes:
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    context = _ANY_CERTIFICATE if url.startswith("https") else None
    with urllib.request.urlopen(request, context=context, timeout=5) as answer:
        return bytes(answer.read())
