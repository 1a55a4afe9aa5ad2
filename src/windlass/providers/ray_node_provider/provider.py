"""``RayNodeProvider`` implements the provider contract with a v1 ``NodeProvider`` of Ray.

Each host of a slice is one node; tags identify it. Node providers do not remember ended nodes and have no epochs, so a
file of Windlass keeps both.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

from windlass.core.model.quantities import BYTES
from windlass.providers.protocol import (
    ClusterIdentity,
    Host,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    Offering,
    ProviderError,
    QuotaExceeded,
    StaleEpoch,
)

SLICE: Final = "windlass-slice"
HOST: Final = "windlass-host"
HOSTS: Final = "windlass-hosts"
GROUP: Final = "windlass-group"
CLUSTER: Final = "windlass-cluster"
CLUSTER_ID: Final = "windlass-cluster-id"
_RAY_NAMES: Final = {"cpu": "CPU", "gpu": "GPU", "tpu": "TPU"}
_STOCK: Final = ("stock", "capacity", "insufficient", "unavailable")
_QUOTA: Final = ("quota", "limit")


class RayNodeProvider:
    """Launches, lists and terminates nodes of one node provider."""

    def __init__(
        self,
        module: str,
        *,
        python: str = sys.executable,
        config: Mapping[str, Any] | None = None,
        cluster_name: str = "windlass",
        directory: str | os.PathLike[str] = ".windlass/ray-node-provider",
    ) -> None:
        """``module``: ``pkg.Class``. ``python``: a Python that has Ray. ``directory``: for epochs and ended slices."""
        self._module, self._python, self._cluster_name = module, python, cluster_name
        self._config = dict(config or {})
        self._directory = Path(directory)
        self._cluster = ClusterIdentity()
        self._process: asyncio.subprocess.Process | None = None
        self._calling = asyncio.Lock()
        self._numbers = count(1)
        self.names: dict[str, str] = {}
        """``SLICE/HOST`` by the instance id of the node, from the last list."""

    def bind(self, cluster: ClusterIdentity) -> None:
        self._cluster = cluster

    async def launch(self, order: LaunchOrder, epoch: int) -> None:
        if not order.hosts:
            raise InvalidRequest(f"slice {order.slice_id} has no hosts; order at least one")
        with self._state() as state:
            self._check(state, epoch)
            if order.slice_id in self._ended(state):
                return
        await self._owned()  # raises ClusterConflict before anything is created
        resources = {_RAY_NAMES.get(name, name): _amount(name, amount) for name, amount in order.resources}
        for number, host in enumerate(order.hosts):
            tags = {
                "ray-node-kind": "worker",
                "ray-node-status": "up-to-date",
                "ray-user-node-type": order.group,
                "ray-cluster-name": self._cluster_name,
                "ray-node-name": f"{order.slice_id}-{number}",
                SLICE: order.slice_id,
                HOST: str(number),
                HOSTS: str(len(order.hosts)),
                GROUP: order.group,
                CLUSTER: self._cluster.name,
                CLUSTER_ID: self._cluster.id,
            }
            config = {
                **order.settings,
                "windlass": {"command": list(host.command), "environment": dict(host.environment)},
            }
            await self._call("create", config, tags, resources, dict(order.labels))

    async def terminate(self, slice_id: str, epoch: int) -> None:
        with self._state() as state:
            self._check(state, epoch)
        mine = [one["node"] for one in await self._owned() if one["tags"][SLICE] == slice_id]
        with self._state() as state:
            if slice_id not in self._ended(state):
                state["ended"].setdefault(self._key, []).append(slice_id)
        if mine:
            await self._call("terminate", mine)

    async def list(self) -> Sequence[Instance]:
        found: dict[str, list[dict[str, Any]]] = {}
        for one in await self._owned():
            found.setdefault(one["tags"][SLICE], []).append(one)
        ended = self._ended(self._read())
        self.names = {one["node"]: f"{name}/{one['tags'][HOST]}" for name, many in found.items() for one in many}
        return [_instance(name, many, ending=name in ended) for name, many in sorted(found.items())]

    async def offerings(self) -> Sequence[Offering]:
        return ()

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    # -- the bridge ---------------------------------------------------------------------------------------------------

    async def _owned(self) -> Sequence[dict[str, Any]]:
        """Return the nodes of our cluster; raise ``ClusterConflict`` if another journal uses its name."""
        every: Sequence[dict[str, Any]] = await self._call("list")
        return [
            one for one in every if self._cluster.owns(one["tags"].get(CLUSTER, ""), one["tags"].get(CLUSTER_ID, ""))
        ]

    async def _call(self, call: str, *args: Any) -> Any:
        async with self._calling:
            process = await self._running()
            assert process.stdin is not None
            assert process.stdout is not None
            number = next(self._numbers)
            try:
                process.stdin.write(json.dumps({"id": number, "call": call, "args": args}).encode() + b"\n")
                await process.stdin.drain()
                while True:
                    line = await process.stdout.readline()
                    if not line:
                        raise ProviderError(f"the process of {self._module} has ended: check `python` and `module`")
                    answer = json.loads(line)
                    if answer["id"] == number:  # an older number: the answer to a call that was cancelled
                        break
            except OSError as error:
                raise ProviderError(f"the process of {self._module} cannot be reached: {error}") from error
        if "error" in answer:
            raise _error(answer["error"])
        return answer["result"]

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    self._python,
                    str(Path(__file__).with_name("bridge.py")),
                    self._module,
                    self._cluster_name,
                    json.dumps(self._config),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    limit=64 * 2**20,
                )
            except OSError as error:
                raise InvalidRequest(f"{self._python} cannot be run: {error.strerror}") from error
        return self._process

    # -- epochs and ended slices --------------------------------------------------------------------------------------

    def _check(self, state: dict[str, Any], epoch: int) -> None:
        highest = state["epochs"].get(self._key, 0)
        if epoch < highest:
            raise StaleEpoch.of(epoch, highest)
        state["epochs"][self._key] = epoch

    @property
    def _key(self) -> str:
        """The key of this cluster in the file."""
        return self._cluster.id or self._cluster.name

    def _ended(self, state: Mapping[str, Any]) -> Sequence[str]:
        found: Sequence[str] = state["ended"].get(self._key, ())
        return found

    @contextmanager
    def _state(self) -> Iterator[dict[str, Any]]:
        """Give the content of the file under a lock; write it if it has changed."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with (self._directory / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self._read()
            before = json.dumps(state)
            yield state
            if json.dumps(state) != before:
                written = self._directory / "state.json.new"
                written.write_text(json.dumps(state), encoding="utf-8")
                written.replace(self._directory / "state.json")

    def _read(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self._directory / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {"epochs": {}, "ended": {}}
        return found


def _instance(name: str, nodes: Sequence[dict[str, Any]], *, ending: bool) -> Instance:
    tags = nodes[0]["tags"]
    whole = len(nodes) >= int(tags.get(HOSTS, "1"))
    hosts = tuple(Host(one["node"], running=one["running"]) for one in sorted(nodes, key=lambda one: one["tags"][HOST]))
    up = whole and all(host.running for host in hosts)
    return Instance(name, tags[GROUP], "ending" if ending else "running" if up else "pending", hosts)


def _amount(name: str, amount: int) -> float:
    return amount if name in BYTES else amount / 1000


def _error(error: Mapping[str, str]) -> ProviderError:
    """Convert an error of the node provider, by its category."""
    category, text = error["category"].lower(), f"{error['kind']}: {error['text']}"
    if any(word in category for word in _QUOTA):
        return QuotaExceeded(text)
    if any(word in category for word in _STOCK):
        return InsufficientCapacity(text)
    return ProviderError(text)
