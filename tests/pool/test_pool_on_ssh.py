"""A pool on machines with SSH: real sshd, asyncssh and Dask. The machines cannot reach this program's loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import windlass as wl
from windlass.testing.clouds import SshHosts, missing_for_hosts

from .machines_elsewhere import PACKAGE, behind_nat, package_index
from .processes import children, command, eventually, stores_of

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")
pytestmark = [
    pytest.mark.ssh,
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_for_hosts()), reason=missing_for_hosts() or "-"),
]
SECRET = "hunter2-is-not-a-password"


@wl.compute
def tripled(number, file, seconds, gate=""):
    """Leaves a line when it begins, and one when it ends. With a ``gate`` it waits for that file to be there."""
    import windlasstoy  # type: ignore[import-not-found]

    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"begin {number} {os.environ['WINDLASS_NODE']}\n")
    time.sleep(seconds)
    while gate and not Path(gate).exists():
        time.sleep(0.05)
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"end {number} {os.environ['TOY']}\n")
    return windlasstoy.triple(number)


@wl.compute
def marked(number, file, seconds, gate=""):
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"begin {number} {os.environ['WINDLASS_NODE']}\n")
    while gate and not Path(gate).exists():
        time.sleep(0.05)
    time.sleep(seconds)
    return number


def marks(file: Path, word: str) -> list[int]:
    if not file.exists():
        return []
    lines = [line.split() for line in file.read_text().splitlines()]
    return [int(line[1]) for line in lines if line[0] == word]


def begun_on(file: Path) -> set[str]:
    """Nodes on which tasks have begun."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {line.split()[2] for line in lines if line.startswith("begin")}


@pytest.fixture(scope="module")
def four() -> Iterator[SshHosts]:
    with SshHosts(4) as hosts:
        yield hosts


@pytest.fixture
def hosts(four: SshHosts) -> SshHosts:
    """Four hosts, as new."""
    for host in four:
        host.reset()
    return four


def pool_on(hosts: SshHosts, nodes, **more) -> wl.ComputePool:
    machines = wl.SSH(
        hosts=[host.spec for host in hosts], key_file=hosts.key_file, known_hosts=hosts.known_hosts, price="$1/h"
    )
    settings = {"autoscale_cooldown": 1.0, "autoscale_idle_timeout": 2.0, "reconcile_tick_interval": 0.5}
    return wl.ComputePool(machines, nodes, **{"console": False, "slots": 2, **settings, **more})


def test_200_tasks_with_a_package_a_crashed_machine_and_scale_to_zero(hosts, tmp_path, monkeypatch):
    monkeypatch.setattr("windlass.pool.machines.LEASE", 12.0)
    file, gate = tmp_path / "marks", tmp_path / "gate"
    image = wl.Image(pip=[PACKAGE], pip_index=package_index(tmp_path), env={"TOY": SECRET}, setup=["echo set up"])
    journal = tmp_path / "pool"
    with pool_on(hosts, (0, 4), image=image, directory=journal) as pool:
        future = wl.gather(*[tripled(n, str(file), 0.0, str(gate) if n >= 50 else "") for n in range(200)]) > pool
        eventually(lambda: len(marks(file, "end")) > 40, 180, lambda: marks(file, "end"))
        next(host for host in hosts if (host.home / ".windlass/run/supervisor.json").exists()).crash()
        gate.touch()
        values = future.result()
        assert values == [3 * n for n in range(200)]
        begun = Counter(marks(file, "begin"))
        lines = [line.split() for line in file.read_text().splitlines() if line.startswith("begin")]
        first = {number: node for _, number, node in reversed(lines)}
        again = {first[str(number)] for number, times in begun.items() if times > 1}
        assert len(again) <= 1, "only what ran on the machine that crashed is run again"
        assert pool.status().dollars > 0
        eventually(lambda: pool.status().count("ready") == 0, 180, pool.status)
    for host in hosts:
        assert not [pid for pid in host.pids() if "dask" in command(pid)]
        assert not (host.home / ".windlass/sold.json").exists() or host._process is None
    assert SECRET.encode() not in (journal / "journal.db").read_bytes()


def test_a_connection_that_is_cut_while_tasks_run_runs_none_twice(hosts, tmp_path):
    file, gate = tmp_path / "marks", tmp_path / "gate"
    with pool_on(hosts, 2) as pool:
        future = wl.gather(*[marked(n, str(file), 0.5, str(gate)) for n in range(8)]) > pool
        eventually(lambda: len(marks(file, "begin")) >= 4, 180, lambda: marks(file, "begin"))
        for host in hosts:
            host.cut()
        gate.touch()
        assert future.result() == list(range(8))
    assert Counter(marks(file, "begin")) == Counter(range(8))
    for host in hosts:
        assert not (host.home / ".windlass/sold.json").exists(), "a closed pool leaves its machines free"


@wl.compute
def shifted(array, number):
    return array + number


def received_by(pid: int) -> int:
    """Bytes that a process has received over its TCP connections that are open."""
    text = subprocess.run(["ss", "-tinpH"], capture_output=True, text=True, check=True).stdout
    return sum(
        int(found)
        for line in re.sub(r"\n\s+", " ", text).splitlines()
        if f"pid={pid}," in line
        for found in re.findall(r"bytes_received:(\d+)", line)
    )


@pytest.mark.skipif(shutil.which("ss") is None, reason="needs ss: apt install iproute2")
def test_large_values_go_between_program_and_machine_without_the_scheduler_and_leave_nothing(hosts):
    array = np.arange(5 << 20, dtype=float)
    before = stores_of(os.getpid())
    with pool_on(hosts, 2) as pool:
        eventually(lambda: pool.status().count("ready") == 2, 180, pool.status)
        handle = pool.put(array)
        results = wl.gather(*[shifted(handle, number) for number in range(6)]) >> pool
        for number, result in enumerate(results):
            assert np.array_equal(result, array + number)
        (scheduler,) = [pid for pid in children(os.getpid()) if "dask.scheduler" in command(pid)]
        assert 0 < received_by(scheduler) < 4 << 20, "280 MB went by"
        kept = {store for host in hosts for pid in host.pids() for store in stores_of(pid)}
        assert kept, "values are kept on the machines"
        kept |= stores_of(os.getpid()) - before
        holder = next(host for host in hosts if (host.home / ".windlass/run/supervisor.json").exists())
        for pid in holder.pids():
            if "dask.node" in command(pid):
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
        assert float((shifted(handle, 1) >> pool)[3]) == 4.0
    eventually(lambda: not any(store.exists() for store in kept), 60, lambda: kept)


BEHIND_NAT = """
import json, socket, sys
import windlass as wl

given = json.loads(sys.argv[1])
here = socket.socket()
here.bind(("0.0.0.0", 0))
here.listen()

@wl.compute
def reaches(address, port):
    import socket
    try:
        socket.create_connection((address, port), timeout=2).close()
        return True
    except OSError:
        return False

@wl.compute
def square(n):
    return n * n

machines = wl.SSH(hosts=given["hosts"], key_file=given["key_file"], known_hosts=given["known_hosts"])
with wl.ComputePool(machines, 2, slots=2, console=False) as pool:
    values = wl.gather(*[square(n) for n in range(40)]) >> pool
    way_back = reaches(given["address"], here.getsockname()[1]) >> pool
print(json.dumps({"values": values, "way_back": way_back}))
"""


def test_a_program_that_the_machines_cannot_reach_runs_its_tasks_there(hosts, tmp_path):
    if not hosts.namespaces:
        pytest.skip("a network behind NAT needs root, ip and unshare: run as root")
    script = tmp_path / "program.py"
    script.write_text(BEHIND_NAT)
    with behind_nat(hosts) as (inside, specs, known_hosts):
        address = specs[0]["address"].rpartition(".")[0] + ".2"
        given = {
            "hosts": specs[:2],
            "key_file": str(hosts.key_file),
            "known_hosts": str(known_hosts),
            "address": address,
        }
        done = subprocess.run(
            [*inside, sys.executable, str(script), json.dumps(given)],
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["values"] == [n * n for n in range(40)]
    assert answer["way_back"] is False, "the machines have no route to the program"


@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_machines_that_reach_the_program_directly_share_a_value_on_either_engine(hosts, engine):
    """Without tunnels. A value is sent to each machine once, large results come back as files."""
    if not hosts.namespaces:
        pytest.skip("machines with addresses of their own need root, ip and unshare: run as root")
    pytest.importorskip(engine, reason=f"needs {engine}: pip install '.[pool-ray]'")
    machines = wl.SSH(
        hosts=[host.spec for host in hosts][:2],
        key_file=hosts.key_file,
        known_hosts=hosts.known_hosts,
        connect="direct",
    )
    array = np.arange(1 << 20, dtype=float)

    @wl.compute  # here, so that it is sent by value: machines do not have this module
    def where(value):
        return wl.here().node, float(value.sum())

    @wl.compute
    def one_more(value):
        return value + 1

    with wl.ComputePool(machines, 2, slots=2, console=False, engine=engine) as pool:
        eventually(lambda: pool.status().count("ready") == 2, 400, pool.status)
        handle = pool.put(array)
        assert len({node for node, _ in where(handle) @ pool}) == 2
        assert all(total == array.sum() for _, total in wl.gather(*[where(handle)] * 8) >> pool)
        assert np.array_equal(one_more(handle) >> pool, array + 1)
        kept = [store for host in hosts for pid in host.pids() for store in stores_of(pid)]
        values = [one.name for store in set(kept) for one in store.iterdir() if one.name.startswith("v-")]
        assert len([name for name in values if not name.endswith(".lock")]) == 2, "one file of it on each machine"
    eventually(lambda: not any(store.exists() for store in kept), 60, lambda: kept)


def test_ray_through_a_tunnel_is_refused_with_what_to_write():
    pytest.importorskip("ray", reason="needs ray: pip install '.[pool-ray]'")
    with pytest.raises(ValueError, match=r"SSH\(\.\.\., connect='direct'\), or engine='dask'"):
        wl.ComputePool(wl.SSH(hosts=["gpu1.example.org"]), engine="ray")
