"""This module shares bytes in memory between processes of one machine by a handle; nothing is on disk, and nothing
remains when they end.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable


def memory_file(chunks: Iterable[bytes | memoryview]) -> int:
    """A file in memory with these bytes; its descriptor."""
    handle = os.memfd_create("windlass", os.MFD_CLOEXEC)
    try:
        for chunk in chunks:
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(handle, rest) :]
    except OSError:
        os.close(handle)
        raise
    return handle


def size_of(handle: int) -> int:
    return os.fstat(handle).st_size


def chunk_of(handle: int, offset: int, length: int) -> bytes:
    return os.pread(handle, length, offset)


def bytes_of(handle: int) -> memoryview:
    """All of it, not copied. Closes the handle; the bytes live as long as a reference to them."""
    try:
        size = size_of(handle)
        return memoryview(mmap.mmap(handle, size, prot=mmap.PROT_READ)) if size else memoryview(b"")
    finally:
        os.close(handle)
