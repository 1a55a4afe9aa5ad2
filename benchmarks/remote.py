"""Measures the time until remote machines run tasks, on hosts of this computer with a real sshd.

- Twenty machines at once, from the order to a running program: connect, agent, image, start. The image has this package
  and one setup command; packages from an index depend on the network and are not measured.
- From a burst to the first task of a new machine: as for the elastic pool, with SSH in between.

All hosts share the processors of this computer, so the first number is an upper bound for twenty machines.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .fresh import measured_afresh
from .table import Table, seconds
from .targets import Check, below

NAME = "remote"
TITLE = "Machines elsewhere"
HOSTS = {"quick": 5, "default": 20}
SAMPLES = {"quick": 1, "default": 3}


def measure(which: str = "default", say: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    from windlass.testing.clouds import missing_for_hosts

    if missing := missing_for_hosts():
        say(missing)
        return {"name": NAME, "missing": missing, "checks": []}
    hosts = HOSTS.get(which, HOSTS["default"])
    fleet = measured_afresh("remote", "bootstrap", hosts=hosts)
    say(f"{hosts} machines at once: {fleet['seconds']:.2f} s")
    burst = measured_afresh("remote", "burst", samples=SAMPLES.get(which, SAMPLES["default"]))
    say(f"burst to the first task of a new SSH machine: {burst['seconds']:.2f} s")
    return {"name": NAME, "hosts": hosts, "bootstrap": fleet, "burst": burst, "checks": checks(burst)}


def checks(burst: dict[str, Any]) -> list[Check]:
    return [below("from a burst to the first task of a new SSH machine", burst["seconds"], 10, "s", 1)]


def tables(result: dict[str, Any]) -> list[Table]:
    if "missing" in result:
        return [Table("What it takes", ("what", "measured"), ((result["missing"], "-"),))]
    fleet, burst = result["bootstrap"], result["burst"]
    rows = (
        (f"{result['hosts']} machines at once, to a running program", seconds(fleet["seconds"])),
        ("the first of them", seconds(fleet["first"])),
        ("burst to the first task of a new SSH machine", seconds(burst["seconds"])),
    )
    return [Table("What it takes", ("what", "measured"), rows)]


# -- in processes of their own -----------------------------------------------------------------------------------------


def bootstrap(hosts: int) -> dict[str, Any]:
    """Seconds until the program of every machine runs, and of the first."""
    from windlass.core.model.snapshot import amounts
    from windlass.providers.protocol import HostOrder, LaunchOrder
    from windlass.providers.ssh.provider import SSHProvider
    from windlass.testing.clouds import SshHosts

    async def run(machines: SshHosts) -> dict[str, Any]:
        provider = SSHProvider(
            [host.spec for host in machines],
            key_file=str(machines.key_file),
            known_hosts=str(machines.known_hosts),
            image={"setup": ["true"]},
        )
        host = HostOrder((sys.executable, "-c", "import time; time.sleep(600)"))
        orders = [LaunchOrder(f"m-{number}", "g", (host,), amounts({})) for number in range(hosts)]
        begun, first = time.perf_counter(), 0.0
        await asyncio.gather(*(provider.launch(order, 1) for order in orders))
        while True:
            up = sum(not one.phase and one.hosts[0].running for one in await provider.list())
            first = first or (time.perf_counter() - begun if up else 0.0)
            if up == hosts:
                break
            await asyncio.sleep(0.05)
        took = time.perf_counter() - begun
        await asyncio.gather(*(provider.terminate(order.slice_id, 1) for order in orders))
        await provider.close()
        return {"seconds": took, "first": first}

    with SshHosts(hosts) as machines:
        return asyncio.run(run(machines))


def doze(length: float) -> float:
    time.sleep(length)
    return length


def burst(samples: int) -> dict[str, Any]:
    """Seconds from a task that finds no slot to its end on an SSH machine that was bought for it."""
    import windlass as wl
    from windlass.testing.clouds import SshHosts

    made = wl.compute(doze)
    took = []
    for _ in range(samples):
        with SshHosts(2) as hosts:
            machines = wl.SSH(
                hosts=[host.spec for host in hosts], key_file=hosts.key_file, known_hosts=hosts.known_hosts
            )
            image = wl.Image(includes=[Path(__file__).parent])  # the function is found by name
            with wl.ComputePool(machines, (1, 2), image=image, console=False) as pool:
                made(0) >> pool
                busy = made(120.0) > pool
                while not busy.running():
                    time.sleep(0.005)
                begun = time.perf_counter()
                (made(0.0) > pool).result()
                took.append(time.perf_counter() - begun)
                busy.cancel()
    return {"seconds": statistics.median(took)}
