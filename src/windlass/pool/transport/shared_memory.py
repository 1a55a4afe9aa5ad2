"""This module shares bytes in memory between processes of one machine. Nothing is written to disk, and nothing remains
when they end.
"""

from __future__ import annotations

import os
from collections.abc import Iterable


def memory_file(chunks: Iterable[bytes | memoryview]) -> int:
    """Create a file in memory with these bytes; return its descriptor."""
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
