"""SlotPage is memory that one slot shares with the processes that watch over it.

The slot writes which call and which item it runs and puts the results of finished items there; the node link reads the
results and lowers the limit to take items back. Everything in the page survives the death of the slot, so it is known
exactly which item was running and which results exist.

Between two items nothing is locked, because a lock would cost more than a short item: each field has one writer. The
slot writes that an item begins before it reads the limit, and the link writes the limit and reads what has begun a
moment later (`SETTLING`), so that one of the two always sees the other. The beginning and the end of a call are under a
lock, a pipe with one byte in it: the process that holds the byte may begin, end or kill a call.
"""

from __future__ import annotations

import mmap
import os
import select
from typing import Final

LONGEST_ID: Final = 256
"""Bytes of the longest id of a call."""
SETTLING: Final = 0.002
"""Seconds after which what one process wrote has been seen by the others, with much to spare."""

_BEGUN: Final = 0
_LIMIT: Final = 8
_HEAD: Final = 16
_TAIL: Final = 24
_SECONDS: Final = 32
_ACTIVE: Final = 40
_LENGTH: Final = 48
_NAME: Final = 64
_DATA: Final = 4096
_ROOM: Final = 256 << 10
_WORD: Final = 8
"""Bytes of each number. All are aligned, and the machine reads and writes each at once, through a memory view of whole
numbers. ``struct`` must not be used here: it clears the bytes of a number before it writes them, and another process
would read a zero that was never there."""
PREFIX: Final = 4
"""Bytes of the length before each result."""


class SlotPage:
    """One slot's page and its lock."""

    def __init__(self, memory: int, reading: int, writing: int) -> None:
        self.handles = memory, reading, writing
        self._reading, self._writing = reading, writing
        self._page = mmap.mmap(memory, _DATA + _ROOM)
        head = memoryview(self._page)[:_NAME]
        self._numbers, self._floats = head.cast("Q"), head.cast("d")
        self._begun = self._head = 0

    @classmethod
    def new(cls) -> SlotPage:
        memory = os.memfd_create("windlass-slot", os.MFD_CLOEXEC)
        os.ftruncate(memory, _DATA + _ROOM)
        reading, writing = os.pipe()
        os.write(writing, b".")
        return cls(memory, reading, writing)

    # -- the lock -----------------------------------------------------------------------------------------------------

    def __enter__(self) -> SlotPage:
        os.read(self._reading, 1)
        return self

    def __exit__(self, *_: object) -> None:
        self.unlock()

    def lock(self, seconds: float) -> bool:
        """Take the lock; False if it could not be had in time."""
        if not select.select([self._reading], [], [], seconds)[0]:
            return False
        os.read(self._reading, 1)
        return True

    def unlock(self) -> None:
        os.write(self._writing, b".")

    def close(self) -> None:
        self._numbers.release()
        self._floats.release()
        self._page.close()
        for handle in self.handles:
            os.close(handle)

    # -- the slot writes ----------------------------------------------------------------------------------------------

    def start(self, call: str, items: int) -> None:
        """A call begins with its first item. Under the lock."""
        name = call.encode()
        self._page[_NAME : _NAME + len(name)] = name
        self._put(_LENGTH, len(name))
        self._put(_LIMIT, items)
        self._begun = 1
        self._put(_BEGUN, 1)
        self._put(_ACTIVE, 1)

    def stop(self) -> None:
        """No call runs. Under the lock."""
        self._put(_ACTIVE, 0)

    def put(self, result: bytes, seconds: float) -> bool:
        """Keep the result of the item that has just ended; False if there is no room, and then nothing changes."""
        entry = len(result).to_bytes(PREFIX, "little") + result
        size = len(entry)
        if size > _ROOM - (self._head - self._get(_TAIL)):
            return False
        start = self._head % _ROOM
        first = min(size, _ROOM - start)
        self._page[_DATA + start : _DATA + start + first] = entry[:first]
        if first < size:
            self._page[_DATA : _DATA + size - first] = entry[first:]
        self._floats[_SECONDS // _WORD] = seconds
        self._head += size
        self._put(_HEAD, self._head)
        return True

    def next(self) -> bool:
        """The next item begins; False if there is none, or it was taken back."""
        self._begun += 1
        self._put(_BEGUN, self._begun)
        if self._begun <= self._get(_LIMIT):
            return True
        self._begun -= 1
        self._put(_BEGUN, self._begun)
        return False

    # -- the others read ----------------------------------------------------------------------------------------------

    @property
    def call(self) -> str:
        """The id of the call that runs; empty if none does."""
        return self.last_call if self._get(_ACTIVE) else ""

    @property
    def last_call(self) -> str:
        """The id of the call that began last."""
        length = self._get(_LENGTH)
        return self._page[_NAME : _NAME + length].decode()

    @property
    def used(self) -> bool:
        """Whether a call has ever begun."""
        return self._get(_BEGUN) > 0

    def take(self) -> tuple[float, bytes]:
        """Take out the results that are in the page: the seconds that the call has taken, and each result after its
        length."""
        head, tail = self._get(_HEAD), self._get(_TAIL)
        start, size = tail % _ROOM, head - tail
        first = min(size, _ROOM - start)
        data = self._page[_DATA + start : _DATA + start + first] + self._page[_DATA : _DATA + size - first]
        self._put(_TAIL, head)
        return self._floats[_SECONDS // _WORD], data

    def lower(self) -> None:
        """Let no further item begin. After a moment `kept` shows how many have."""
        self._put(_LIMIT, min(self._get(_LIMIT), self._get(_BEGUN)))

    def kept(self) -> int:
        """Items that have begun. One more than that may be counted if the slot was interrupted while it looked at the
        limit: it ends without a result then, and is run again."""
        return self._get(_BEGUN)

    def _get(self, where: int) -> int:
        return self._numbers[where // _WORD]

    def _put(self, where: int, value: int) -> None:
        self._numbers[where // _WORD] = value


def entries(data: bytes) -> list[bytes]:
    """The results in what ``take`` gave."""
    found, offset = [], 0
    while offset < len(data):
        length = int.from_bytes(data[offset : offset + PREFIX], "little")
        found.append(data[offset + PREFIX : offset + PREFIX + length])
        offset += PREFIX + length
    return found
