"""What the four kinds of process of the Dask engine say to each other, and how they are set up alike.

    pool ── client ──► scheduler ◄── worker ── slot     calls go out as tasks pinned to one worker,
                           ▲                            what becomes of them comes back as events
                           └──────── line ◄── node      orders to the node, and the sign that it lives

Everything that comes back to the pool comes by one topic of the scheduler, so it comes in order.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import dask
from distributed.security import Security

from windlass.pool.transport.tls import Credentials

TOPIC: Final = "windlass"
NODE: Final = "WINDLASS_DASK_NODE"
"""In the environment of a node: which node it is, and how it gets to the scheduler, as JSON."""
SCHEDULER: Final = "WINDLASS_DASK_SCHEDULER"
"""In the environment of the scheduler: where to listen, and for whom, as JSON."""
MOST: Final = 1 << 30
"""Bytes of the largest message: a call with its arguments, or its results. The wire itself ends at twice as much."""

GATHERING: Final = 0.001
"""Seconds in which messages that follow each other are gathered into one. Dask's own 2 to 10 ms, three times on the way
of a call, would be a tenth of a short one."""

_SETTINGS: Final[Mapping[str, Any]] = {
    # Whether a node lives is told by its line. Heartbeats stop while C code holds the interpreter.
    "distributed.scheduler.worker-ttl": None,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.idle-timeout": None,
    # The last so many events of a topic would be kept, with the results that are in them.
    "distributed.admin.low-level-log-length": 0,
    "distributed.admin.log-length": 100,
    "distributed.admin.large-graph-warning-threshold": "1 TiB",
    "distributed.admin.tick.limit": "1 hour",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.admin.system-monitor.log-length": 1,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.use-file-locking": False,
    "distributed.worker.multiprocessing-method": "spawn",
    "distributed.diagnostics.nvml": False,
    "distributed.comm.compression": False,
}


def set_up() -> None:
    """In a process of our own: Dask as we use it. Never in the pool's, whose program may have a Dask of its own."""
    dask.config.set(_SETTINGS)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)


def security_of(credentials: Credentials | None) -> Security:
    if credentials is None:
        return Security(require_encryption=False)
    sides = {
        f"tls_{role}_{part}": getattr(credentials, name)
        for role in ("client", "scheduler", "worker")
        for part, name in (("cert", "certificate"), ("key", "key"))
    }
    return Security(tls_ca_file=credentials.authority, require_encryption=True, **sides)


@dataclass(frozen=True, slots=True)
class DaskNodeOrder:
    """What a node is told by its environment."""

    node: str
    slots: int
    scheduler: str
    path: tuple[str, ...]
    """Where the pool's program finds its modules; a node on the same machine finds them there too."""
    credentials: Credentials | None

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of(cls, text: str) -> DaskNodeOrder:
        data = json.loads(text)
        data["path"] = tuple(data["path"])
        data["credentials"] = data["credentials"] and Credentials(**data["credentials"])
        return cls(**data)


def worker_name(node: str, slot: int, life: int) -> str:
    """The Dask worker of a slot. A slot whose process was killed for a call has a next life, with another name."""
    return f"{node}/{slot}/{life}"


def parts_of(name: str) -> tuple[str, int, int]:
    node, slot, life = name.rsplit("/", 2)
    return node, int(slot), int(life)
