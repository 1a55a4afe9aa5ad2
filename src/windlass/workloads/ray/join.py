"""This module makes the ``ray start`` command and the environment with which a host joins a Ray cluster. Pure."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from windlass.core.model.snapshot import Group
from windlass.workloads.protocol import Join, WorkloadError

from .shapes import ACCELERATOR, ACCELERATOR_LABEL, IMPLICIT, NODE, RAY_NAMES

LONGEST_SOCKET: Final = 107
"""Characters of a socket path on Linux."""
_SOCKET: Final = "/session_2026-01-01_00-00-00_000000_1234567/sockets/plasma_store"
"""The longest path that Ray appends to the directory."""
NO_DRAIN: Final = "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"
"""At 0, ``ray start`` does not drain its node again when it gets SIGTERM: Windlass ends a host only after its drain. On
other machines SIGTERM may come from a shutdown, where that drain is useful."""
_LABEL: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9_.-]{0,61}[a-zA-Z0-9])?")
_OWN_OPTION: Final = frozenset({"cpu", "gpu", "memory", "object_store_memory", "disk"})
"""Resources with an own option of ``ray start``, and those that Ray does not have."""


@dataclass(frozen=True, slots=True)
class RayJoining:
    """Makes the command of a worker; holds what is equal for all workers of a cluster."""

    address: str
    ray: str = "ray"
    start: tuple[str, ...] = ()
    """More arguments of ``ray start``."""
    directory: str = "/tmp"  # Ray's own default; the directory below it has a name of its own
    """The parent of the temporary directories of workers."""

    def join(
        self, group: Group, slice_id: str, host: int, *, local: bool, environment: Mapping[str, str] | None = None
    ) -> Join:
        """Return the command and environment of one host. ``local``: it runs on the head's machine and uses the head's
        address. ``environment``: its credentials."""
        if wrong := unfit(group):
            raise WorkloadError(f"host {host} of slice {slice_id} cannot join: {wrong}")
        directory = self.temp_dir(slice_id, host)
        if len(directory + _SOCKET) > LONGEST_SOCKET:
            raise WorkloadError(
                f"host {host} of slice {slice_id} cannot join: its socket {directory}{_SOCKET} would have more than "
                f"{LONGEST_SOCKET} characters; set TMPDIR to a shorter directory"
            )
        words = [self.ray, "start", "--block", f"--address={self.address}"]
        if local:
            words.append(f"--node-ip-address={self.address.rpartition(':')[0]}")
        words += [*_options(group), f"--temp-dir={directory}", "--disable-usage-stats", *self.start]
        more = {NO_DRAIN: "0"} if local else {}
        return Join(tuple(words), {**(environment or {}), **more, **_named(group, slice_id, host)})

    def temp_dir(self, slice_id: str, host: int) -> str:
        """Return a short directory, a different one for every host: in the same directory two workers would take each
        other's sockets."""
        name = hashlib.sha256(f"{self.address} {slice_id}/{host}".encode()).hexdigest()[:10]
        return f"{self.directory.rstrip('/')}/wr-{name}"

    def token_file(self, slice_id: str, host: int) -> Path:
        """Return the path of the file with the token for one host on this machine."""
        return Path(f"{self.temp_dir(slice_id, host)}.token")


def unfit(group: Group) -> str:
    """Return why the nodes of a group cannot be Ray workers; empty: they can."""
    for name, amount in group.resources:
        if name in ("cpu", "gpu") and amount % 1000:
            return f"{group.name} has {amount / 1000:g} {name}, and a Ray node has whole ones"
        if name.startswith((NODE, IMPLICIT)) or name in ("CPU", "GPU") or not name.isprintable():
            return f"{group.name} has the resource {name!r}, which Ray keeps for itself"
    for key, value in group.node_labels().items():
        prefix, _, own = key.rpartition("/")
        parts = [own, *prefix.split(".")] if prefix else [own]
        if not all(map(_LABEL.fullmatch, parts)):
            return f"{group.name} has the label {key!r}, which Ray does not take: letters, digits and - _ . only"
        if value and not _LABEL.fullmatch(value):
            return (
                f"{group.name} has the label {key}={value!r}, which Ray does not take: letters, digits and - _ . only"
            )
    return ""


def with_accelerator_label(group: Group) -> Mapping[str, str]:
    """Return the labels of a group, with the one that Ray adds for a resource ``accelerator_type:X``."""
    kinds = [name.removeprefix(ACCELERATOR) for name, _ in group.resources if name.startswith(ACCELERATOR)]
    return {ACCELERATOR_LABEL: kinds[0], **group.labels} if kinds else group.labels


def _options(group: Group) -> Sequence[str]:
    has = dict(group.resources)
    words = [f"--num-cpus={has.get('cpu', 0) // 1000}", f"--num-gpus={has.get('gpu', 0) // 1000}"]
    for name in ("memory", "object_store_memory"):
        if name in has:
            unit = 1 if name == "memory" else 1000
            words.append(f"--{name.replace('_', '-')}={has[name] // unit}")
    custom = {RAY_NAMES.get(name, name): amount / 1000 for name, amount in group.resources if name not in _OWN_OPTION}
    kind = group.labels.get(ACCELERATOR_LABEL)
    if kind:
        custom.setdefault(f"{ACCELERATOR}{kind}", 1.0)
    if custom:
        words.append(f"--resources={json.dumps(custom, sort_keys=True)}")
    if labels := {**with_accelerator_label(group), **group.node_labels()}:
        words.append("--labels=" + ",".join(f"{key}={value}" for key, value in sorted(labels.items())))
    return words


def _named(group: Group, slice_id: str, host: int) -> dict[str, str]:
    return {
        "RAY_NODE_TYPE_NAME": group.name,
        "RAY_CLOUD_INSTANCE_ID": f"{slice_id}/{host}",
        "RAY_CLOUD_INSTANCE_TYPE_NAME": group.labels.get("instance-type", group.name),
        "RAY_NODE_MARKET_TYPE": "spot" if group.preemptible else "on-demand",
    }
