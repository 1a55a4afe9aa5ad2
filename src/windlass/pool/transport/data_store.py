"""DataStore holds large values as files that processes of one machine map into memory instead of copying.

A file holds the pickle of a value, followed by its out-of-band buffers of pickle protocol 5. Reading a value maps the
file privately: arrays are not copied, and a process that changes an array changes only its own pages. Files are in
shared memory (``/dev/shm``) up to a limit, and on disk above it. Each directory belongs to one pool, or to one node on
another machine, and is removed with it. Directories of a killed process are removed by the processes that watch it, or
by the next pool or node of the same user there (`sweep`).
"""

from __future__ import annotations

import hashlib
import mmap
import os
import pickle
import shutil
import struct
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

from .owned_directory import disown, owned_directory, ownerless

SHARED_MEMORY: Final = Path("/dev/shm")
PREFIX: Final = "windlass-data-"
LARGE: Final = 128 << 10
"""Bytes from which on a value is sent through the store."""
LINGERING: Final = 60.0
"""Seconds for which an unused value is kept, because it may be sent again."""
_ALIGNED: Final = 64
_LOOK: Final = 0.5
"""Seconds for which the measured size of a directory is used."""
_MOST_PARTS: Final = 64
_SWEEPS: Final = 20
_SWEEP_PAUSE: Final = 0.1
"""How often a guard sweeps after a process was killed, and the seconds between two sweeps."""
_COUNT: Final = struct.Struct("=Q")
_KEPT: Final = ("v-", "f-")
"""Prefixes of the names of values and functions, which are kept while they are needed. Results are removed when they
are read.
"""


class Packed(NamedTuple):
    """A pickled value and its buffers."""

    pickled: bytes
    buffers: Sequence[memoryview] = ()

    @property
    def size(self) -> int:
        return len(self.pickled) + sum(one.nbytes for one in self.buffers)

    def digest(self) -> str:
        """Return the content hash of the value, as its name."""
        found = hashlib.sha256(self.pickled)
        for one in self.buffers:
            found.update(_COUNT.pack(one.nbytes))
            found.update(one)
        return found.hexdigest()[:32]

    def whole(self) -> bytes:
        """Return one pickle that includes the buffers."""
        if not self.buffers:
            return self.pickled
        return pickle.dumps(pickle.loads(self.pickled, buffers=self.buffers), protocol=pickle.HIGHEST_PROTOCOL)


def packed(value: Any, *, by_value: bool = True) -> Packed:
    """Pickle a value; with ``by_value`` including functions and classes of the user's own program."""
    buffers: list[pickle.PickleBuffer] = []
    dump = cloudpickle.dumps if by_value else pickle.dumps
    blob = dump(value, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=buffers.append)
    return Packed(blob, [one.raw() for one in buffers])


class StorePlace(NamedTuple):
    """The directories in which processes of this machine write large results."""

    memory: str
    disk: str
    limit: int
    """Limit of bytes in shared memory; above it files are on disk."""


def create(place: StorePlace, name: str, value: Packed) -> str:
    """Write a value; return the path of its file."""
    sizes = [len(value.pickled), *(one.nbytes for one in value.buffers)]
    head = _COUNT.pack(len(sizes)) + b"".join(map(_COUNT.pack, sizes))
    parts: list[bytes | memoryview] = [head]
    offset = len(head)
    for part in (memoryview(value.pickled), *value.buffers):
        padding = -offset % _ALIGNED
        parts += [bytes(padding), part]
        offset += padding + part.nbytes
    directories = (place.memory, place.disk) if _fits(place, offset) else (place.disk,)
    for directory in directories:
        path = f"{directory}/{name}"
        try:
            _write(path, parts)
        except OSError:
            with suppress(OSError):
                Path(path).unlink()
            if directory == directories[-1]:
                raise
        else:
            return path
    raise AssertionError("no directory was tried")


_looked: dict[str, tuple[float, int]] = {}
"""For each directory, when it was last measured, and its bytes, including those that this process has written since."""


def _fits(place: StorePlace, size: int) -> bool:
    """Return whether there is room in shared memory. A directory that is far from full is measured rarely."""
    at, used = _looked.get(place.memory, (0.0, 0))
    now = time.monotonic()
    if now - at > _LOOK or used + size > place.limit // 4:
        at, used = now, _bytes_in(Path(place.memory))
    _looked[place.memory] = at, used + size
    return used + size <= place.limit


def _write(path: str, parts: Sequence[bytes | memoryview]) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        whole = [memoryview(part).cast("B") for part in parts if part]
        os.ftruncate(handle, sum(map(len, whole)))  # counted as used from now on
        written = os.writev(handle, whole[:_MOST_PARTS])
        for part in whole:
            rest, written = part[written:], max(0, written - len(part))
            while rest:
                rest = rest[os.write(handle, rest) :]
    finally:
        os.close(handle)


def receive(place: StorePlace, name: str, size: int, pieces: Iterable[bytes]) -> str:
    """Write a value that arrives in pieces; return the path of its file, which exists once all pieces have arrived."""
    directory = place.memory if _fits(place, size) else place.disk
    path, part = f"{directory}/{name}", Path(directory, f"{name}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with part.open("wb") as file:
            file.truncate(size)  # counted as used from now on
            for piece in pieces:
                file.write(piece)
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def remove_oldest(place: StorePlace, size: int) -> None:
    """Make room in shared memory for a value of this size: remove the oldest values. A process that has mapped one can
    still read it; one that needs it later fetches it again.
    """
    if _fits(place, size):
        return
    values = [Path(entry.path) for entry in os.scandir(place.memory) if entry.name.startswith(_KEPT)]
    for path in sorted((path for path in values if not path.suffix), key=_changed_at):
        if _fits(place, size):
            return
        path.unlink(missing_ok=True)
        _looked.pop(place.memory, None)


def _changed_at(path: Path) -> float:
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def load(path: str, *, remove: bool = False) -> Any:
    """Read a value without copying its buffers. ``remove``: delete the file, because no other process will read it."""
    return unpack(mapped(path, remove=remove))


def mapped(path: str, *, remove: bool = False) -> mmap.mmap:
    """Map a file into memory; changes are private to this process."""
    handle = os.open(path, os.O_RDONLY)
    try:
        if remove:
            Path(path).unlink()
        return mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(handle)


def unpack(memory: mmap.mmap) -> Any:
    """Return the value in a mapped file; the mapping lives as long as its buffers are used."""
    (count,) = _COUNT.unpack_from(memory)
    sizes = [_COUNT.unpack_from(memory, _COUNT.size * (1 + number))[0] for number in range(count)]
    view, offset, parts = memoryview(memory), _COUNT.size * (1 + count), []
    for size in sizes:
        offset += -offset % _ALIGNED
        parts.append(view[offset : offset + size])
        offset += size
    return pickle.loads(parts[0], buffers=parts[1:])


class DataStore:
    """The store of one pool's large values."""

    def __init__(
        self,
        disk: Path | None = None,
        limit: int | None = None,
        memory: Path | None = None,
        *,
        cache: bool = False,
    ) -> None:
        """``disk``: a directory for values that do not fit into shared memory; None: a temporary directory. ``limit``:
        bytes in shared memory; None: half of what is free there, a third of the machine's memory at most.
        ``cache``: its values can be fetched again, so they may be removed at any time."""
        base = memory or SHARED_MEMORY
        if not (base.is_dir() and os.access(base, os.W_OK)):
            base = Path(tempfile.gettempdir())
        sweep(base)
        self._memory = owned_directory(base, PREFIX)
        if disk is None:
            disk = owned_directory(Path(tempfile.gettempdir()), PREFIX)
        disk.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._disk, self._cache = disk, cache
        # Garbage collection may release a handle, and so drop a value, anywhere: also in a thread that has the lock.
        self._lock = threading.RLock()
        self._files: dict[str, str] = {}
        self._holders: dict[str, int] = {}
        self._unused: OrderedDict[str, float] = OrderedDict()
        """Names without a holder, and since when."""
        self._not_kept: set[str] = set()
        """Names that are removed with their last holder, because their handle was released."""
        self.place = StorePlace(str(self._memory), str(disk), _default_limit(base) if limit is None else limit)

    @property
    def directory(self) -> Path:
        """Its directory in shared memory."""
        return self._memory

    def put(self, value: Packed, name: str | None = None) -> str:
        """Store a value, hold it once, and return its name. A value that is stored already is not written again."""
        name = name or f"v-{value.digest()}"
        with self._lock:
            self._expire()
            self._hold(name, 1)
            self._not_kept.discard(name)
            try:
                if name not in self._files:
                    self._files[name] = create(self.place, name, value)
            except BaseException:
                self.drop(name)
                raise
        return name

    def path(self, name: str) -> str:
        with self._lock:
            return self._files[name]

    def receive(self, name: str, size: int, pieces: Iterable[bytes]) -> str:
        """Store a value that arrives from another machine in pieces; return its path. In a cache, older values are
        removed if there is no room.
        """
        with self._lock:
            while self._cache and self._files and not _fits(self.place, size):
                Path(self._files.pop(next(iter(self._files)))).unlink(missing_ok=True)
        path = receive(self.place, name, size, pieces)
        if name.startswith(_KEPT):
            with self._lock:
                self._files[name] = path
        return path

    def known(self, name: str) -> str | None:
        """Return the path of a stored value."""
        with self._lock:
            return self._files.get(name)

    def hold(self, name: str, times: int = 1) -> None:
        """Add holders of a value."""
        with self._lock:
            self._hold(name, times)

    def _hold(self, name: str, times: int) -> None:
        self._holders[name] = self._holders.get(name, 0) + times
        self._unused.pop(name, None)

    def drop(self, name: str, *, keep: bool = True) -> None:
        """Remove one holder of a value. With ``keep``, a value without holders is kept for a while, because it may be
        sent again; otherwise it is removed with its last holder.
        """
        with self._lock:
            if name not in self._holders:
                return  # the store is closed
            if not keep:
                self._not_kept.add(name)
            self._holders[name] -= 1
            if not self._holders[name]:
                del self._holders[name]
                if name in self._not_kept:
                    self._remove(name)
                else:
                    self._unused[name] = time.monotonic()
                self._expire()

    def expire(self) -> None:
        """Remove values that have been unused for a while."""
        with self._lock:
            self._expire()

    def _expire(self) -> None:
        """Remove values that have been unused for a while; sooner if they take much room."""
        now = time.monotonic()
        room = self.place.limit // 4
        for name, since in reversed(self._unused.copy().items()):  # recently used values are kept
            with suppress(OSError, KeyError):
                room -= Path(self._files[name]).stat().st_size
            if now - since >= LINGERING or room < 0:
                self._remove(name)

    def _remove(self, name: str) -> None:
        self._unused.pop(name, None)
        self._not_kept.discard(name)
        with suppress(OSError, KeyError):
            Path(self._files.pop(name)).unlink()

    def remove_results(self, wanted: Callable[[str], bool]) -> None:
        """Remove results of calls that are no longer ``wanted``: they arrived too late, and have no reader."""
        for directory in (self._memory, self._disk):
            with suppress(OSError):
                for entry in os.scandir(directory):
                    if entry.name.startswith("r-") and not wanted(entry.name.split("-")[1]):
                        with suppress(OSError):
                            Path(entry.path).unlink()

    def used(self) -> tuple[int, int]:
        """Return the bytes in shared memory and on disk."""
        return _bytes_in(self._memory), _bytes_in(self._disk)

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            self._files.clear()
            self._holders.clear()
            self._unused.clear()
            self._not_kept.clear()
        for directory in (self._memory, self._disk):
            shutil.rmtree(directory, ignore_errors=True)
            disown(directory)


def result_name(call: str, item: int, number: int, *, streamed: bool = False) -> str:
    """Return the file name of a large result or of a generator's value, which is read when the user reads it."""
    return f"{'y' if streamed else 'r'}-{call.replace('-', '_')}-{item}-{number}-{os.getpid()}"


def _bytes_in(directory: Path) -> int:
    total = 0
    with suppress(OSError):
        for entry in os.scandir(directory):
            with suppress(OSError):
                total += entry.stat().st_size
    return total


def _default_limit(base: Path) -> int:
    with suppress(OSError, ValueError):
        found = os.statvfs(base)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return min(found.f_bavail * found.f_frsize // 2, memory // 3)
    return 1 << 28


def sweep(*bases: Path) -> list[Path]:
    """Remove the directories of this user's pools and nodes whose processes have ended; return those that were removed.
    Without ``bases``: in all places where they are made.
    """
    gone = [directory for base in bases or _bases() for directory in ownerless(base, PREFIX)]
    for directory in gone:
        shutil.rmtree(directory, ignore_errors=True)
    return gone


def sweep_after_kill() -> None:
    """Remove the files of a killed process, repeatedly for a while, because its child processes end a moment later."""
    for _ in range(_SWEEPS):
        sweep()
        time.sleep(_SWEEP_PAUSE)


def _bases() -> list[Path]:
    return list(dict.fromkeys((SHARED_MEMORY, Path(tempfile.gettempdir()))))
