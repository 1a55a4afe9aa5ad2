"""``Local()`` makes nodes that are processes on this computer."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Local:
    """Nodes on this computer. They end with the program, however it ends.

    ``boot_delay``: seconds that a node takes to come up, to see what that would be like. ``price``: dollars per hour of
    a node, to see what a budget would do. ``grace``: seconds between asking a node to end and ending it. ``pretend``:
    accelerators that this computer does not have are believed to be there, for tests.
    """

    boot_delay: float = 0.0
    price: float | str | None = None
    grace: float = 2.0
    directory: str | os.PathLike[str] | None = None
    """Where the files of nodes are; None: in the pool's own directory."""
    pretend: bool = False
