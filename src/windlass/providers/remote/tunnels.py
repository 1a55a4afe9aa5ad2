"""This module tells a program on a machine which local addresses lead through the tunnel to its controller."""

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
    """Return the local address for each address of the controller's network."""
    return {str(far): str(near) for far, near in json.loads(os.environ.get(TUNNELS, "{}")).items()}
