"""``Local()`` makes nodes that are processes on this computer."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Local:
    """Nodes on this computer. They end with the program, however it ends.

    ``boot_delay``: seconds that a node takes to boot, to try out slow machines. ``price``: dollars per hour of a node,
    to try out a budget. ``grace``: seconds between the request to end a node and its kill. ``pretend``: assume
    accelerators that this computer does not have, for tests.
    """

    boot_delay: float = 0.0
    price: float | str | None = None
    grace: float = 2.0
    directory: str | os.PathLike[str] | None = None
    """The directory for the files of nodes; None: the pool's own directory."""
    pretend: bool = False
