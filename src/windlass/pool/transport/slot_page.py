"""SlotPage is memory that one slot shares with the processes that supervise it.

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
"""Seconds after which a write of one process is visible to the others, with a wide margin."""

_BEGUN: Final = 0
_LIMIT: Final = 1
_HEAD: Final = 2
_TAIL: Final = 3
_SECONDS: Final = 4
_ACTIVE: Final = 5
_LENGTH: Final = 6
"""The indexes of the numbers in the page. Each has eight bytes and is read and written atomically, through a memory
view of integers. ``struct`` must not be used here: it clears the bytes of a number before it writes them, and another
process would read a zero that was never there.
"""
_NAME: Final = 64
_DATA: Final = 4096
"""The offsets of the call's id and of the results, in bytes."""
_ROOM: Final = 256 << 10


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
        """Take the lock; return False if that was not possible in time."""
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
        """Begin a call with its first item. The caller holds the lock."""
        name = call.encode()
        self._page[_NAME : _NAME + len(name)] = name
        self._numbers[_LENGTH] = len(name)
        self._numbers[_LIMIT] = items
        self._begun = 1
        self._numbers[_BEGUN] = 1
        self._numbers[_ACTIVE] = 1

    def stop(self) -> None:
        """End the call. The caller holds the lock."""
        self._numbers[_ACTIVE] = 0

    def put(self, entry: bytes, seconds: float) -> bool:
        """Add the result of the item that has just ended; return False, and change nothing, if there is no room.
        ``entry``: from `serialization.result_entry`.
        """
        size = len(entry)
        head = self._head
        if size > _ROOM - (head - self._numbers[_TAIL]):
            return False
        start = head % _ROOM
        first = _ROOM - start
        if size <= first:
            self._page[_DATA + start : _DATA + start + size] = entry
        else:
            self._page[_DATA + start : _DATA + _ROOM] = entry[:first]
            self._page[_DATA : _DATA + size - first] = entry[first:]
        self._floats[_SECONDS] = seconds
        self._numbers[_HEAD] = self._head = head + size
        return True

    def next(self) -> bool:
        """Begin the next item; return False if there is none, or if it was taken back."""
        numbers, begun = self._numbers, self._begun + 1
        numbers[_BEGUN] = begun
        if begun <= numbers[_LIMIT]:
            self._begun = begun
            return True
        numbers[_BEGUN] = self._begun
        return False

    # -- the others read ----------------------------------------------------------------------------------------------

    @property
    def call(self) -> str:
        """The id of the running call; empty if none runs."""
        return self.last_call if self._numbers[_ACTIVE] else ""

    @property
    def last_call(self) -> str:
        """The id of the call that began last."""
        length = self._numbers[_LENGTH]
        return self._page[_NAME : _NAME + length].decode()

    @property
    def used(self) -> bool:
        """Return whether a call has ever begun."""
        return self._numbers[_BEGUN] > 0

    def take(self) -> tuple[float, bytes]:
        """Take out the results that are in the page: the seconds that the call has taken, and the entries."""
        head, tail = self._numbers[_HEAD], self._numbers[_TAIL]
        start, size = tail % _ROOM, head - tail
        first = min(size, _ROOM - start)
        data = self._page[_DATA + start : _DATA + start + first] + self._page[_DATA : _DATA + size - first]
        self._numbers[_TAIL] = head
        return self._floats[_SECONDS], data

    def lower(self) -> None:
        """Let no further item begin. After `SETTLING` seconds `kept` returns how many have begun."""
        self._numbers[_LIMIT] = min(self._numbers[_LIMIT], self._numbers[_BEGUN])

    def kept(self) -> int:
        """Return the number of items that have begun. It may be one too many if the slot was interrupted while it read
        the limit: that item ends without a result and runs again.
        """
        return self._numbers[_BEGUN]
