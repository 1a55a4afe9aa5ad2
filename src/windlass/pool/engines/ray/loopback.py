"""This program starts Ray bound to the loopback address, for pools whose nodes are all on this computer.

    python -m windlass.pool.engines.ray.loopback start --head ...

Ray replaces 127.0.0.1 by an address that other machines reach, and then its servers listen on all interfaces. Only
where it believes that a cluster has one machine, by `SINGLE_MACHINE` in the environment, does it stay on the loopback
address; and there ``ray start`` refuses to add nodes. This program sets that variable and skips that check.
"""

from __future__ import annotations

import ipaddress
import os
from typing import Final

SINGLE_MACHINE: Final = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Environment variables of every process of such a cluster."""


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def main() -> None:
    os.environ.update(SINGLE_MACHINE)
    from ray._private import ray_constants, services
    from ray.scripts import scripts

    services.get_node_ip_address = lambda address=None: "127.0.0.1"  # noqa: ARG005
    ray_constants.ENABLE_RAY_CLUSTER = True  # only in this process: its children read the environment
    scripts.main()


if __name__ == "__main__":
    main()
