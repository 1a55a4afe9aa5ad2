"""This module computes the addresses that a program on a machine uses: through the tunnel to its controller, if
there is one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from windlass.providers.remote.machine_store import MARK
from windlass.providers.remote.supervisor import TUNNELS


def is_remote() -> bool:
    """Whether this process was started on a machine by a controller elsewhere."""
    return MARK in os.environ


def tunnels() -> Mapping[str, str]:
    """The address here by which each address of the controller's network is reached."""
    return {str(far): str(near) for far, near in json.loads(os.environ.get(TUNNELS, "{}")).items()}
