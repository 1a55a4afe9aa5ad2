"""Pauses the garbage collector while thousands of small objects are created that all stay alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

MANY: Final = 500
"""Objects from which on it is worth it: the collector looks through everything again for every few hundred new ones,
and took two fifths of the time that ten thousand tasks cost the pool's process, and half of reading a large file."""


@contextmanager
def uncollected(objects: int = MANY) -> Iterator[None]:
    """No collection while that many are made. Two threads may do so at once: the first that was in lets the collector
    work again."""
    aside = objects >= MANY and gc.isenabled()
    if aside:
        gc.disable()
    try:
        yield
    finally:
        if aside:
            gc.enable()
