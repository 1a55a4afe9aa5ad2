"""NodeData fetches large values for the slots of a node on another machine, and sends their large results. It is for
engines that start the slots' processes themselves, such as Ray: the slots share a directory of the node. The first slot
that needs a value fetches it, and the others map the same file.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from .data_store import Packed, StorePlace, create, receive, remove_oldest
from .data_transfer import DataClient
from .tls import Credentials


@dataclass(frozen=True, slots=True)
class DataAccess:
    """What a slot needs to reach the values of its pool."""

    address: str
    """The address of the pool's `DataServer`: ``host:port``."""
    credentials: Credentials
    place: StorePlace
    """The directories of the node."""

    def write(self, path: Path) -> None:
        """Write it to a file that only this user can read."""
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)

    @classmethod
    def read(cls, path: Path) -> DataAccess:
        data = json.loads(path.read_text(encoding="utf-8"))
        return cls(data["address"], Credentials(**data["credentials"]), StorePlace(*data["place"]))


class NodeData:
    """Gives one slot access to the values of its node."""

    def __init__(self, access: DataAccess) -> None:
        self._place = access.place
        self._client = DataClient(access.address, access.credentials)

    def fetch(self, name: str, _path: str) -> str:
        """Return the path of a value on this machine; fetch it if no slot has done so."""
        with Path(self._place.memory, f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released when the file is closed
            for directory in (self._place.memory, self._place.disk):
                path = f"{directory}/{name}"
                if os.path.exists(path):  # noqa: PTH110  # quick
                    return path
            found = self._client.fetch(name, self)
        if found is None:
            raise LookupError(
                "a value that was sent to the pool is not there any more: no task and no handle of the program holds it"
            )
        return found

    def receive(self, name: str, size: int, pieces: Iterable[bytes]) -> str:
        """Write a value that comes from the pool. Older values are removed if there is no room."""
        remove_oldest(self._place, size)
        return receive(self._place, name, size, pieces)

    def deliver(self, name: str, value: Packed) -> str:
        """Send a large result to the pool; return its path there."""
        path = create(self._place, name, value)
        try:
            return self._client.send(name, path)
        finally:
            Path(path).unlink(missing_ok=True)
