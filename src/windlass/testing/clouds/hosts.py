"""This module starts hosts with a real sshd on this computer, for tests: in namespaces with root, on loopback ports
without.

A host keeps its files in a directory of its own, which is its home. ``HOME`` and ``PATH`` of a login come from sshd's
``SetEnv``. ``crash`` kills everything on the host at once, ``unplug`` takes its network away (in a namespace: packets
vanish; on loopback: the host's processes are stopped, which looks the same from outside), ``cut`` ends the established
connections only.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from windlass._free_port import free_port
from windlass.testing.clouds import host_init

_START_LIMIT: Final = 20.0
_NAMES: Final = itertools.count()


def missing_for_hosts() -> str:
    """Return what this computer lacks for test hosts, with the remedy; empty if nothing is missing."""
    if sys.platform != "linux":
        return "test hosts need Linux"
    for program, package in (("sshd", "openssh-server"), ("ssh-keygen", "openssh-client")):
        if _program(program) is None:
            return f"test hosts need {program}; install it with: apt install {package}"
    return ""


def namespaces_work() -> bool:
    """Whether hosts can be namespaces here: that needs root, ``ip`` and ``unshare``."""
    if os.geteuid() != 0 or _program("ip") is None or _program("unshare") is None:
        return False
    name = f"wlt{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return False
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return True


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"]))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class SshHost:
    """One host: its address, and the actions of tests on it."""

    name: str
    address: str
    port: int
    user: str
    root: Path
    public_key: str
    """The host's public key, as in ``known_hosts``."""
    namespace: str = ""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _spec: dict[str, Any] = field(default_factory=dict, repr=False)
    _stopped: list[int] = field(default_factory=list, repr=False)

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def spec(self) -> dict[str, Any]:
        """The host as an entry of the SSH provider's list."""
        return {"address": self.address, "port": self.port, "user": self.user}

    @property
    def known_hosts_line(self) -> str:
        name = self.address if self.port == 22 else f"[{self.address}]:{self.port}"
        return f"{name} {self.public_key}\n"

    @property
    def log(self) -> str:
        path = self.root / "sshd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # -- starting and ending ----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Boot the host and wait until its sshd listens, unless it is up already."""
        if self._process is not None and self._process.poll() is None:
            return
        self.boot()
        deadline = time.monotonic() + _START_LIMIT
        while not self.listens():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the sshd of test host {self.name} did not start: {self.log[-2000:]}")
            time.sleep(0.02)

    def boot(self) -> None:
        """Start the host's first process and return at once."""
        init = [sys.executable, "-I", "-S", str(Path(host_init.__file__))]
        if self.namespace:
            inside = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child", "--"]
            init = ["ip", "netns", "exec", self.namespace, *inside, *init]
        self._process = subprocess.Popen(init, stdin=subprocess.PIPE, start_new_session=True)
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(self._spec).encode() + b"\n")
        self._process.stdin.flush()  # stdin stays open: when it closes, the host ends, also when this process is killed

    def listens(self) -> bool:
        with suppress(OSError), socket.create_connection((self.address, self.port), timeout=1) as connection:
            connection.settimeout(2)
            return connection.recv(4) == b"SSH-"
        return False

    def crash(self) -> None:
        """Kill everything that runs on the host, as a power failure would."""
        self.replug()
        process = self._process
        if process is None:
            return
        if self.namespace:
            process.kill()
        else:
            process.terminate()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._process = None

    def reset(self) -> None:
        """Reset the host for the next test: restore its network, and remove all of our processes and files."""
        self.replug()
        if self._process is None or self._process.poll() is not None:
            self.start()
        deadline = time.monotonic() + _START_LIMIT
        while (left := [pid for pid in self.pids() if not _is_listener(pid)]) and time.monotonic() < deadline:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        shutil.rmtree(self.home / ".windlass", ignore_errors=True)

    # -- faults -----------------------------------------------------------------------------------------------------

    def pids(self) -> list[int]:
        """Return the pids of the host's processes, without its first one, as seen from outside."""
        if self._process is None:
            return []
        if self.namespace:
            done = subprocess.run(["ip", "netns", "pids", self.namespace], capture_output=True, text=True, check=False)
            found = [int(word) for word in done.stdout.split()]
            return [pid for pid in found if pid != self._process.pid and not _is_init(pid)]
        return [pid for pid in _below(self._process.pid) if pid != self._process.pid]

    def cut(self) -> None:
        """End every established SSH connection; the host and its programs keep running."""
        for pid in self.pids():
            with suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
                if words.startswith((b"sshd: ", b"sshd-session: ")) and b"listener" not in words:
                    os.kill(pid, signal.SIGKILL)

    def unplug(self) -> None:
        """Cut the host's network without closing its connections."""
        if self.namespace:
            _ip("-n", self.namespace, "link", "set", "eth0", "down")
        else:
            self._stopped = self.pids()
            for pid in self._stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)

    def replug(self) -> None:
        """Restore the network."""
        if self.namespace:
            with suppress(subprocess.CalledProcessError):
                _ip("-n", self.namespace, "link", "set", "eth0", "up")
                _ip("-n", self.namespace, "route", "replace", "default", "via", self._spec["gateway"])
        for pid in self._stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._stopped = []


def _is_listener(pid: int) -> bool:
    """Whether a process is the listening sshd, not one that serves a connection."""
    with suppress(OSError):
        return b"[listener]" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return True  # it has ended


def _is_init(pid: int) -> bool:
    with suppress(OSError):
        return host_init.__file__.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _below(pid: int) -> list[int]:
    found, border = [], [pid]
    while border:
        one = border.pop()
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                border += [int(word) for word in task.read_text().split()]
    return found


class SshHosts:
    """Hosts that accept one client key. It is a context manager and a sequence of its hosts."""

    def __init__(
        self,
        count: int = 1,
        *,
        directory: str | os.PathLike[str] | None = None,
        namespaces: bool | None = None,
        path: Sequence[str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """``namespaces``: None: if this computer supports them. ``path``: the PATH of a login; None: with this Python's
        directory first. ``environment``: more variables of a login.
        """
        self._count = count
        self._given = directory
        self._addresses = itertools.count(2)
        self.namespaces = namespaces_work() if namespaces is None else namespaces
        self._path = list(path) if path is not None else [str(Path(sys.executable).parent), "/usr/bin", "/bin"]
        self._environment = dict(environment or {})
        self._hosts: list[SshHost] = []
        self._directory: Path | None = None
        self._bridge = ""
        self._network = 0

    @property
    def directory(self) -> Path:
        assert self._directory is not None, "enter the context first"
        return self._directory

    @property
    def key_file(self) -> Path:
        return self.directory / "client_key"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def gateway(self) -> str:
        """The address of this computer in the hosts' network."""
        return f"10.213.{self._network}.1" if self.namespaces else "127.0.0.1"

    @property
    def unused_address(self) -> str:
        """An address in the hosts' network that no host gets."""
        return f"10.213.{self._network}.254" if self.namespaces else "127.0.0.254"

    def __len__(self) -> int:
        return len(self._hosts)

    def __getitem__(self, number: int) -> SshHost:
        return self._hosts[number]

    def __iter__(self) -> Iterator[SshHost]:
        return iter(self._hosts)

    def __enter__(self) -> SshHosts:
        if missing := missing_for_hosts():
            raise RuntimeError(missing)
        self._directory = Path(self._given) if self._given else Path(tempfile.mkdtemp(prefix="windlass-hosts-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            make_key(self.key_file)
            if self.namespaces:
                self._make_bridge()
            for _ in range(self._count):
                self.add()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for host in self._hosts:
            host.crash()
            if host.namespace:
                subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)
        self._hosts = []
        if self._bridge:
            subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)
            self._bridge = ""
        if self._directory is not None and self._given is None:
            shutil.rmtree(self._directory, ignore_errors=True)

    # -- making a host ----------------------------------------------------------------------------------------------

    def add(
        self,
        *,
        user_data: str | None = None,
        wait: bool = True,
        trusted: bool = True,
        environment: Mapping[str, str] | None = None,
    ) -> SshHost:
        """Add a host. ``user_data``: a script that runs at boot and must install the host's key and the client's.

        ``trusted``: whether it accepts our client key and is in ``known_hosts``. ``wait``: until it listens.
        """
        number = next(_NAMES)
        root = self.directory / f"host-{number}"
        for part in ("home/.ssh", "etc-ssh", "run"):
            (root / part).mkdir(parents=True, mode=0o700)
        # No client knows this key: as on a real machine, user data replaces it.
        public_key = make_key(root / "etc-ssh" / "ssh_host_ed25519_key")
        address, port, namespace = self._network_for(number)
        host = SshHost(f"host-{number}", address, port, _user(), root, public_key, namespace)
        if trusted:
            (root / "home/.ssh/authorized_keys").write_text(self.key_file.with_suffix(".pub").read_text())
            with self.known_hosts.open("a") as file:
                file.write(host.known_hosts_line)
        binds: list[list[str]] = []
        if user_data is not None:
            script = root / "user_data"
            script.write_text(user_data)
            script.chmod(0o700)
        if namespace:
            binds = [[str(root / "etc-ssh"), "/etc/ssh"], [str(root / "run"), "/run/sshd"]]
            Path("/run/sshd").mkdir(exist_ok=True)
            if user_data is not None:
                binds.append([str(root / "home/.ssh"), str(_ssh_directory())])
        keys = Path("/etc/ssh") if namespace else root / "etc-ssh"
        config = root / "sshd_config"
        config.write_text(self._config(host, keys, root, {**self._environment, **(environment or {})}))
        host._spec = {
            "binds": binds,
            "sshd": [str(_program("sshd")), "-D", "-e", "-f", str(config)],
            "user_data": str(root / "user_data") if user_data is not None else None,
            "environment": {"HOME": str(root / "home"), "PATH": os.pathsep.join([*self._path, "/usr/sbin", "/sbin"])},
            "log": str(root / "sshd.log"),
            "gateway": self.gateway,
        }
        self._hosts.append(host)
        if wait:
            host.start()
        else:
            host.boot()
        return host

    def remove(self, host: SshHost) -> None:
        """End a host and delete its files."""
        host.crash()
        if host.namespace:
            subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)
        self._hosts.remove(host)
        shutil.rmtree(host.root, ignore_errors=True)

    def _config(self, host: SshHost, keys: Path, root: Path, environment: Mapping[str, str]) -> str:
        variables = {"HOME": str(host.home), "PATH": os.pathsep.join(self._path), **environment}
        # sshd's default limits for sessions are lower than the number that tests open at once.
        lines = [
            f"ListenAddress {host.address}",
            f"Port {host.port}",
            f"HostKey {keys}/ssh_host_ed25519_key",
            f"AuthorizedKeysFile {root}/home/.ssh/authorized_keys",
            f"PidFile {root}/sshd.pid",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin yes",
            "MaxStartups 200",
            "MaxSessions 200",
            "PermitUserEnvironment no",
            "SetEnv " + " ".join(f'"{name}={value}"' for name, value in variables.items()),
        ]
        return "\n".join(lines) + "\n"

    def _network_for(self, number: int) -> tuple[str, int, str]:
        if not self.namespaces:
            return "127.0.0.1", free_port(), ""
        host = next(self._addresses)  # never an earlier address: its client may still know another key
        name = f"wlh{os.getpid()}x{number}"
        address = f"10.213.{self._network}.{host}"
        inside, outside = f"wli{number}p{os.getpid()}"[:15], f"wlo{number}p{os.getpid()}"[:15]
        _ip("netns", "add", name)
        _ip("link", "add", outside, "type", "veth", "peer", "name", inside)
        _ip("link", "set", inside, "netns", name)
        _ip("-n", name, "link", "set", inside, "name", "eth0")
        _ip("link", "set", outside, "master", self._bridge, "up")
        _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
        _ip("-n", name, "link", "set", "eth0", "up")
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "route", "add", "default", "via", self.gateway)
        return address, 22, name

    def _make_bridge(self) -> None:
        _sweep()
        for network in range(256):
            name = f"wlbr{network}"
            if subprocess.run(
                ["ip", "link", "add", name, "type", "bridge"], capture_output=True, check=False
            ).returncode:
                continue
            self._bridge, self._network = name, network
            _ip("link", "set", name, "alias", f"windlass {os.getpid()}")
            _ip("addr", "add", f"{self.gateway}/24", "dev", name)
            _ip("link", "set", name, "up")
            return
        raise RuntimeError("there is no free network 10.213.N.0/24 for test hosts; remove bridges named wlbrN")


def _sweep() -> None:
    """Remove the networks of processes that were killed."""
    done = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name in [line.split()[0] for line in done.stdout.splitlines() if line.startswith("wlh")]:
        owner = name.removeprefix("wlh").partition("x")[0]
        if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    for alias in Path("/sys/class/net").glob("wlbr*/ifalias"):
        with suppress(OSError):
            owner = alias.read_text().strip().removeprefix("windlass ")
            if owner.isdecimal() and not Path(f"/proc/{owner}").exists():
                subprocess.run(["ip", "link", "del", alias.parent.name], capture_output=True, check=False)


def make_key(path: Path) -> str:
    """Make an ed25519 key pair at ``path`` and ``path.pub``; return the public key without its comment."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)]
    subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    return path.with_name(path.name + ".pub").read_text().strip()


def _user() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


def _ssh_directory() -> Path:
    """Return the real ``.ssh`` of this user, over which a host mounts its own in its namespace."""
    import pwd

    path = Path(pwd.getpwuid(os.geteuid()).pw_dir) / ".ssh"
    path.mkdir(mode=0o700, exist_ok=True)
    return path
