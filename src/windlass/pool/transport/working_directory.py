"""Tasks on this computer run in the working directory of the pool's program, so that relative file names and modules
beside a script or a notebook are found. On another machine a task runs in the directory of its node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from windlass.providers.remote.tunnels import is_remote


def working_directory() -> str:
    """Return the working directory of this process; an empty string if it was removed."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def enter_program(directory: str, path: Sequence[str]) -> None:
    """Use the working directory and the module search path of the pool's program in this process."""
    if directory and not is_remote():
        with suppress(OSError):  # it was removed since
            os.chdir(directory)
    sys.path.extend(one for one in path if one not in sys.path)
