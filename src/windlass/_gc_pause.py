"""This module pauses the garbage collector while thousands of small objects are created that all stay alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 500
"""Number of new objects from which on a pause pays off. The collector scans all objects again after every few hundred
new ones: that was 40 % of the CPU time of ten thousand tasks in the pool's process, and 50 % of reading a large file.
"""


@contextmanager
def uncollected(objects: int = MANY) -> Iterator[None]:
    """Pause the collector while ``count`` objects are created. With two threads at once, the first one resumes the
    collector.
    """
    aside = objects >= MANY and gc.isenabled()
    if aside:
        gc.disable()
    try:
        yield
    finally:
        if aside:
            gc.enable()
