"""What goes wrong with machines and SSH, on a real sshd: keys, silence, full disks, two controllers, secrets."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from windlass.core.model.snapshot import amounts
from windlass.providers.protocol import (
    ClusterIdentity,
    HostOrder,
    Instance,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
)
from windlass.testing.clouds import SshHost, SshHosts, missing_for_hosts
from windlass.testing.clouds.hosts import namespaces_work
from windlass.testing.eventually import eventually, refusal_of

pytest.importorskip("asyncssh", reason="needs asyncssh: pip install '.[ssh]'")

from windlass.providers.ssh.provider import SSHProvider

pytestmark = [pytest.mark.ssh, pytest.mark.skipif(bool(missing_for_hosts()), reason=missing_for_hosts() or "-")]

SECRET = "a-token-that-nobody-must-see"
OURS = ClusterIdentity("ours", "c0ffee01")


@pytest.fixture(scope="module")
def machine() -> Iterator[SshHosts]:
    with SshHosts(1) as hosts:
        yield hosts


@pytest.fixture
def hosts(machine: SshHosts) -> SshHosts:
    """One host, as new."""
    machine[0].reset()
    return machine


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy computer answers late, and a machine that is late is out of stock."""
    monkeypatch.setattr("windlass.providers.ssh.provider.PATIENCE", 60.0)
    monkeypatch.setattr("windlass.providers.ssh.provider.POLL_LIMIT", 60.0)


@pytest.fixture
def notice_silence_soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """To be called once a machine is up: a busy computer may need longer until then."""
    monkeypatch.setattr("windlass.providers.remote.connection.KEEPALIVE", 1.0)

    def soon() -> None:
        monkeypatch.setattr("windlass.providers.ssh.provider.PATIENCE", 1.0)
        monkeypatch.setattr("windlass.providers.ssh.provider.POLL_LIMIT", 20.0)

    return soon


def order(name: str, command: tuple[str, ...] = ("sleep", "600"), **environment: str) -> LaunchOrder:
    return LaunchOrder(name, "g", (HostOrder(command, environment),), amounts({"cpu": 1000}), cluster=OURS)


def provider_of(hosts: SshHosts, cluster: ClusterIdentity = OURS, **more: Any) -> SSHProvider:
    keys = {"key_file": str(hosts.key_file), "known_hosts": str(hosts.known_hosts)}
    provider = SSHProvider([host.spec for host in hosts], **{**keys, **more})
    provider.bind(cluster)
    return provider


def using(
    hosts: SshHosts, test: Callable[[SSHProvider], Awaitable[None]], cluster: ClusterIdentity = OURS, **more: Any
) -> None:
    async def run() -> None:
        provider = provider_of(hosts, cluster, **more)
        try:
            await test(provider)
        finally:
            await provider.close()

    asyncio.run(run())


async def shown(provider: SSHProvider, name: str, wanted: Callable[[Instance], object], within: float = 90) -> Instance:
    async def look() -> Instance | None:
        return next((one for one in await provider.list() if one.slice_id == name), None)

    found = await eventually(look, lambda one: one is not None and wanted(one), within=within)
    assert found is not None
    return found


def is_up(one: Instance) -> bool:
    return not one.phase and all(host.running for host in one.hosts)


async def in_use_by(provider: SSHProvider, name: str) -> None:
    """Buy a machine as soon as it is free, until its program runs."""

    async def launched() -> bool:
        try:
            await provider.launch(order(name), 1)
        except InsufficientCapacity:
            return False
        return True

    await eventually(launched, within=90)
    await shown(provider, name, is_up)


def test_a_machine_with_another_host_key_is_out_of_stock_and_nothing_is_sent(hosts, tmp_path):
    other = tmp_path / "known_hosts"
    wrong = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIG5lVZ5fF7a1vpZ9rp0GZjS1oGVYjHhU0yZ0gR9V9V9V"
    other.write_text(hosts[0].known_hosts_line.partition(" ")[0] + f" {wrong}\n")

    async def test(provider: SSHProvider) -> None:
        refusal = await refusal_of(provider.launch(order("s-1"), 1), InsufficientCapacity)
        assert "host key" in str(refusal)
        assert list(await provider.list()) == []
        (found,) = await provider.diagnose()
        assert "host key" in found

    using(hosts, test, known_hosts=str(other))
    using(hosts, test, known_hosts=str(tmp_path / "missing"))
    assert not (hosts[0].home / ".windlass").exists()


def test_a_machine_that_refuses_our_key_says_which_key_and_what_to_do(hosts, tmp_path):
    from windlass.testing.clouds.hosts import make_key

    make_key(tmp_path / "other_key")

    async def test(provider: SSHProvider) -> None:
        refusal = await refusal_of(provider.launch(order("s-1"), 1), InsufficientCapacity)
        assert "authorized_keys" in str(refusal)
        assert str(tmp_path / "other_key") in str(refusal)

    using(hosts, test, key_file=str(tmp_path / "other_key"))


def test_a_machine_that_hangs_at_connect_is_out_of_stock_with_why(hosts):
    hosts[0].unplug()

    async def test(provider: SSHProvider) -> None:
        refusal = await refusal_of(provider.launch(order("s-1"), 1), InsufficientCapacity)
        assert "does not answer" in str(refusal)

    using(hosts, test)


def test_a_machine_that_goes_silent_and_comes_back_keeps_its_slice_and_its_program(hosts, notice_silence_soon):
    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1"), 1)
        await shown(provider, "s-1", is_up)
        before = (hosts[0].home / ".windlass/run/supervisor.json").read_text()
        notice_silence_soon()
        hosts[0].unplug()
        during = [one.slice_id for one in await provider.list()]
        assert during == ["s-1"], "shown as it was last seen"
        hosts[0].replug()
        await shown(provider, "s-1", is_up)
        assert (hosts[0].home / ".windlass/run/supervisor.json").read_text() == before

    using(hosts, test)


def test_a_machine_that_stays_silent_counts_as_dead_and_its_slice_is_ended_when_it_is_back(hosts, notice_silence_soon):
    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1"), 1)
        await shown(provider, "s-1", is_up)
        notice_silence_soon()
        hosts[0].unplug()
        await shown(provider, "s-1", lambda one: not one.hosts[0].running)
        await provider.terminate("s-1", 1)
        assert [one.state for one in await provider.list()] == ["ending"], "its end is not confirmed"
        hosts[0].replug()

        async def look() -> int:
            return len(await provider.list())

        await eventually(look, lambda count: count == 0, within=90)
        assert not (hosts[0].home / ".windlass/sold.json").exists()

    using(hosts, test, lost_after=1.0)


def test_two_clusters_with_one_machine_sell_it_once_and_the_second_hears_to_whom(hosts):
    async def first(provider: SSHProvider) -> None:
        await provider.launch(order("s-1"), 1)
        second = provider_of(hosts, ClusterIdentity("theirs", "c0ffee02"))
        try:
            refusal = await refusal_of(second.launch(order("t-1"), 1), InsufficientCapacity)
            assert "in use by cluster ours" in str(refusal)
        finally:
            await second.close()
        await provider.terminate("s-1", 1)

    using(hosts, first)


def test_a_full_disk_ends_the_launch_with_its_last_lines_and_without_secrets(hosts):
    image = {
        "setup": ["echo token is $TOKEN; printf '\\033[31mred\\007\\n'; echo x > /dev/full"],
        "env": {"TOKEN": SECRET},
    }

    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1"), 1)
        dead = await shown(provider, "s-1", lambda one: one.trouble)
        assert not dead.hosts[0].running
        assert "'setup 1 of 1' ended with code" in dead.trouble
        assert [host.failed_phase for host in dead.hosts] == ["setup 1 of 1"]
        assert "No space left on device" in dead.trouble
        assert SECRET not in dead.trouble
        assert "***" in dead.trouble
        assert "\033" not in dead.trouble
        await provider.terminate("s-1", 1)

    using(hosts, test, image=image)


def disk_of(host: SshHost, size: str) -> None:
    """Give a host a disk of this size for its files."""
    place = host.home / ".windlass"
    place.mkdir(exist_ok=True)
    command = ["nsenter", "-t", str(host.pids()[0]), "-m", "mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
    subprocess.run([*command, str(place)], check=True)


@pytest.mark.skipif(not namespaces_work(), reason="a disk of its own needs root and namespaces")
def test_on_a_disk_without_space_for_the_reason_the_launch_fails_with_it_and_the_machine_is_free_again():
    with SshHosts(1) as hosts:
        disk_of(hosts[0], "200k")

        async def test(provider: SSHProvider) -> None:
            for name in ("s-1", "s-2"):
                await provider.launch(order(name, (sys.executable, "-c", "pass")), 1)
                dead = await shown(provider, name, lambda one: not one.hosts[0].running)
                assert "No space left on device" in dead.trouble
                assert not dead.phase
                await provider.terminate(name, 1)
                assert not await provider.list()

        using(hosts, test, image={"setup": ["true"]})


def test_a_machine_that_says_too_much_is_cut_short_and_its_phase_is_named(hosts):
    noise = "head -c 3000000 /dev/zero | tr '\\0' 'x'"
    image = {
        "setup": [f"{noise}; echo; {noise}; printf $TOKEN; echo; echo last words; exit 4"],
        "env": {"TOKEN": SECRET},
    }

    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1"), 1)
        dead = await shown(provider, "s-1", lambda one: one.trouble)
        assert len(dead.trouble) < 5000
        assert dead.trouble.startswith("phase 'setup 1 of 1' ended with code 4: ")
        assert dead.trouble.endswith("last words")
        assert not any(SECRET[cut:] in dead.trouble or SECRET[: -cut or None] in dead.trouble for cut in range(20))
        await provider.terminate("s-1", 1)

    using(hosts, test, image=image)


def test_a_program_that_prints_without_end_does_not_fill_the_disk(hosts):
    program = ("bash", "-c", "head -c 80000000 /dev/zero | tr '\\0' 'x'; sleep 1; echo; echo last words; exit 7")

    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1", program), 1)
        dead = await shown(provider, "s-1", lambda one: not one.hosts[0].running)
        assert dead.hosts[0].exit_code == 7
        assert dead.hosts[0].last_output.endswith("last words")
        kept = sum(file.stat().st_size for file in (hosts[0].home / ".windlass/run").iterdir())
        assert kept < 40_000_000
        await provider.terminate("s-1", 1)

    using(hosts, test)


def test_a_password_in_a_requirement_is_in_no_phase_and_no_reason(hosts):
    image = {"pip": [f"toy @ http://ada:{SECRET}@127.0.0.1:9/toy.tar.gz"]}

    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1"), 1)
        seen = await shown(provider, "s-1", lambda one: one.trouble or one.phase.startswith("installing"))
        assert SECRET not in seen.phase
        dead = await shown(provider, "s-1", lambda one: one.trouble)
        assert "installing toy @ http://***@127.0.0.1:9/toy.tar.gz" in dead.trouble
        assert SECRET not in dead.trouble + str(dead.hosts)
        await provider.terminate("s-1", 1)

    using(hosts, test, image=image)


def test_a_machine_without_the_right_python_says_so_before_anything_is_sent(tmp_path):
    bin_directory = tmp_path / "bin"
    bin_directory.mkdir()
    other = bin_directory / "python3"
    other.write_text(f'#!/bin/sh\ncase "$*" in *version_info*) echo 3.8;; *) exec {sys.executable} "$@";; esac\n')
    other.chmod(0o755)
    with SshHosts(1, path=[str(bin_directory), "/usr/bin", "/bin"], namespaces=False) as hosts:
        for name in ("python3", f"python3.{sys.version_info.minor}"):
            (bin_directory / name).write_text(other.read_text())
            (bin_directory / name).chmod(0o755)

        async def test(provider: SSHProvider) -> None:
            await provider.launch(order("s-1", (sys.executable, "-c", "pass")), 1)
            dead = await shown(provider, "s-1", lambda one: one.trouble)
            assert f"needs Python 3.{sys.version_info.minor}:" in dead.trouble
            assert not list((hosts[0].home / ".windlass/incoming").iterdir())
            await provider.terminate("s-1", 1)

        using(hosts, test)


def test_an_image_for_another_python_is_refused_at_once(hosts):
    async def test(provider: SSHProvider) -> None:
        refusal = await refusal_of(provider.launch(order("s-1", (sys.executable, "-c", "pass")), 1), InvalidRequest)
        assert "minor version" in str(refusal)

    using(hosts, test, image={"python": "3.8"})


def test_a_program_that_the_image_installs_is_found_by_its_name_and_the_image_is_installed_once(hosts, tmp_path):
    seen, installed = tmp_path / "seen", tmp_path / "installed"
    script = f"#!/bin/sh\\npython3 -c 'import sys; print(sys.executable)' > {seen}; exec sleep 600\\n"
    setup = f'mkdir -p site/bin; printf "{script}" > site/bin/greet; chmod +x site/bin/greet; echo once >> {installed}'

    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1", ("greet",)), 1)
        await shown(provider, "s-1", is_up)

        async def written() -> str:
            return seen.read_text() if seen.exists() else ""

        assert Path((await eventually(written)).strip()).parent == Path(sys.executable).parent
        await provider.terminate("s-1", 1)
        await provider.launch(order("s-2", ("greet",)), 1)
        await shown(provider, "s-2", is_up)
        assert installed.read_text() == "once\n", "a machine that has the image skips its script"
        await provider.terminate("s-2", 1)

    using(hosts, test, image={"setup": [setup]})


def test_secrets_reach_the_program_and_nothing_else(hosts, tmp_path):
    seen = tmp_path / "seen"
    command = ("/bin/sh", "-c", f'printf %s "$ORDER_TOKEN $IMAGE_TOKEN" > {seen}; exec sleep 600')
    image = {"env": {"IMAGE_TOKEN": SECRET + "-image"}, "setup": ["true"]}

    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1", command, ORDER_TOKEN=SECRET), 1)
        await shown(provider, "s-1", is_up)

        async def written() -> str:
            return seen.read_text() if seen.exists() else ""

        assert await eventually(written) == f"{SECRET} {SECRET}-image"
        for pid in hosts[0].pids():
            assert SECRET.encode() not in words_of(pid)
        home = hosts[0].home / ".windlass"
        for path in [home, *home.rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
            if path.is_file():
                assert SECRET.encode() not in path.read_bytes(), path
        assert SECRET not in json.dumps([str(one) for one in await provider.list()])
        assert SECRET not in hosts[0].log
        await provider.terminate("s-1", 1)

    using(hosts, test, image=image)


def words_of(pid: int) -> bytes:
    """The command line of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


CLOCK = """
import os, pathlib, runpy, sys, time
true, off = time.time, {offset}
def touch(self, *args, **more):
    self.write_bytes(b"")
    os.utime(str(self), (true() + off, true() + off))
time.time = lambda: true() + off
pathlib.Path.touch = touch
sys.executable, sys.argv = {wrapper!r}, sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def python_with_clock(directory: Path, hours: int) -> str:
    """A directory with a ``python3`` under which the agent sees another time than we."""
    home = directory / f"clock {hours}"
    home.mkdir()
    wrapper, clock = home / "python3", home / "clock.py"
    clock.write_text(CLOCK.format(offset=hours * 3600, wrapper=str(wrapper)))
    wrapper.write_text(
        f'#!/bin/sh\ncase "$2" in *agent-*.pyz) shift; exec {sys.executable} -I "{clock}" "$@";; esac\n'
        f'exec {sys.executable} "$@"\n'
    )
    wrapper.chmod(0o755)
    return str(home)


def test_a_program_with_a_lease_ends_itself_and_frees_its_machine_also_where_the_clock_is_off(tmp_path):
    """What an agent writes down and compares is by its own clock."""
    lease = 6.0

    async def whole_life(hosts: SshHosts, number: int, hours: int) -> None:
        def provider_for(cluster: ClusterIdentity, **more: Any) -> SSHProvider:
            provider = SSHProvider(
                [hosts[number].spec], key_file=str(hosts.key_file), known_hosts=str(hosts.known_hosts), **more
            )
            provider.bind(cluster)
            return provider

        ours, theirs = provider_for(OURS, lease=lease), provider_for(ClusterIdentity("theirs", "c0ffee02"))
        try:
            await ours.launch(order("s-1"), 1)
            up = await shown(ours, "s-1", is_up)
            assert up.phase_since is None
            assert up.started_at is not None
            assert abs(up.started_at - time.time()) < 600, "the bill begins by our own clock"
            sold = json.loads((hosts[number].home / ".windlass/sold.json").read_text())
            assert abs(sold["taken"] - time.time() - hours * 3600) < 600, "its clock is off by so many hours"
            refusal = await refusal_of(theirs.launch(order("t-1"), 1), InsufficientCapacity)
            assert "in use by cluster ours" in str(refusal)
            await ours.close()  # as if the controller had died
            await in_use_by(theirs, "t-2")
            await theirs.terminate("t-2", 1)
        finally:
            await ours.close()
            await theirs.close()

    async def all_lives(hosts: SshHosts, clocks: tuple[int, ...]) -> None:
        await asyncio.gather(*(whole_life(hosts, number, hours) for number, hours in enumerate(clocks)))

    clocks = (-2, 0, 2)
    with SshHosts(0) as hosts:
        for hours in clocks:
            hosts.add(environment={"PATH": f"{python_with_clock(tmp_path, hours)}:/usr/bin:/bin"})
        asyncio.run(all_lives(hosts, clocks))


def test_a_program_that_ends_leaves_its_exit_code_and_its_last_lines_without_secrets(hosts):
    command = ("/bin/sh", "-c", 'echo "token $TOKEN"; echo no such device >&2; exit 3')

    async def test(provider: SSHProvider) -> None:
        await provider.launch(order("s-1", command, TOKEN=SECRET), 1)
        (host,) = (await shown(provider, "s-1", lambda one: not one.hosts[0].running)).hosts
        assert (host.exit_code, host.last_output) == (3, "token ***\nno such device")
        await provider.terminate("s-1", 1)
        await provider.launch(order("s-2"), 1)
        await shown(provider, "s-2", is_up)
        (sleeping,) = [pid for pid in hosts[0].pids() if words_of(pid).startswith(b"sleep")]
        os.kill(sleeping, signal.SIGKILL)
        (host,) = (await shown(provider, "s-2", lambda one: not one.hosts[0].running)).hosts
        assert host.exit_code == -signal.SIGKILL
        await provider.terminate("s-2", 1)

    using(hosts, test)


def test_a_controller_that_crashes_before_or_after_any_call_buys_once_and_leaks_nothing(monkeypatch):
    """A crash after a call leaves what a crash before the next call leaves: so many calls were carried out."""
    from windlass.providers.remote.machine import RemoteMachine

    class Crash(BaseException):
        """Not an error that the provider could handle."""

    real = RemoteMachine.ask
    state = {"calls": 0, "carried_out": 0}

    async def ask(self: RemoteMachine, op: str, **fields: Any) -> Any:
        state["calls"] += 1
        if state["calls"] > state["carried_out"]:
            raise Crash
        return await real(self, op, **fields)

    with SshHosts(2) as hosts:

        def holders(name: str) -> int:
            files = [host.home / ".windlass/sold.json" for host in hosts]
            return sum(path.exists() and json.loads(path.read_text())["slice"] == name for path in files)

        def life(name: str, carried_out: int, epoch: int) -> int:
            state.update(calls=0, carried_out=carried_out)

            async def whole() -> None:
                provider = provider_of(hosts)
                try:
                    async with asyncio.timeout(120):
                        await provider.launch(order(name), epoch)
                        while provider._preparations.under_way(name):
                            await asyncio.sleep(0.01)
                        await provider.terminate(name, epoch)
                finally:
                    await provider.close()

            monkeypatch.setattr(RemoteMachine, "ask", ask)
            with suppress(Crash):
                asyncio.run(whole())
            monkeypatch.setattr(RemoteMachine, "ask", real)
            return state["calls"]

        calls = life("s-all", sys.maxsize, 1)
        assert calls >= 6
        for carried_out in range(calls):
            name = f"s-{carried_out}"
            life(name, carried_out, 2 * carried_out + 2)

            async def next_controller(
                provider: SSHProvider, name: str = name, epoch: int = 2 * carried_out + 3
            ) -> None:
                await provider.launch(order(name), epoch)
                assert holders(name) <= 1, name
                if holders(name):  # else its end had been carried out before the crash
                    await shown(provider, name, is_up)
                    assert holders(name) == 1, name
                await provider.terminate(name, epoch)
                assert list(await provider.list()) == []

            using(hosts, next_controller)
            assert holders(name) == 0, name
            for host in hosts:
                assert not list((host.home / ".windlass/run").glob("*")), name
                assert not any(b"sleep" in words_of(pid) for pid in host.pids()), name
