"""The local provider under faults: processes that die, controllers that are killed, process ids that are reused."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.providers.local_processes import marked, pid_of
from windlass.providers.local.faults import LocalFault
from windlass.providers.local.provider import LocalProvider
from windlass.providers.local.supervisor import HostProcess, remember_end
from windlass.providers.protocol import (
    HostOrder,
    InsufficientCapacity,
    InvalidRequest,
    LaunchOrder,
    ProviderError,
    QuotaExceeded,
    StaleEpoch,
)
from windlass.testing.eventually import eventually, run


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "slices"
    yield directory
    for pid in marked(directory):
        os.kill(pid, signal.SIGKILL)


def order(slice_id: str, *commands: str, group: str = "g", **environment: str) -> LaunchOrder:
    shells = commands or ("exec sleep 3600",)
    hosts = tuple(HostOrder(("sh", "-c", shell), environment) for shell in shells)
    return LaunchOrder(slice_id, group, hosts, (("cpu", 1000),))


async def only(provider: LocalProvider):
    (instance,) = await provider.list()
    return instance


async def running(provider: LocalProvider):
    return await eventually(lambda: only(provider), lambda seen: seen.state == "running")


async def text_in(path: Path, wanted: str) -> str:
    async def read() -> str:
        return path.read_text(encoding="utf-8") if path.exists() else ""

    return await eventually(read, lambda text: wanted in text)


# -- what a host is given ------------------------------------------------------------------------------------------


def test_a_host_knows_its_slice_group_number_and_node_and_has_the_environment_of_its_order(directory):
    async def test():
        provider = LocalProvider(directory)
        words = "$WINDLASS_SLICE $WINDLASS_GROUP $WINDLASS_HOST $WINDLASS_NODE $COLOUR"
        await provider.launch(order("s-1", f"echo {words}; sleep 99", f"echo {words} >&2; sleep 99", COLOUR="red"), 1)
        await text_in(directory / "s-1" / "host-0" / "stdout.log", "s-1 g 0 s-1/0 red\n")
        await text_in(directory / "s-1" / "host-1" / "stderr.log", "s-1 g 1 s-1/1 red\n")
        assert [host.id for host in (await running(provider)).hosts] == ["s-1/0", "s-1/1"]
        await provider.terminate("s-1", 1)

    run(test())


def test_each_host_runs_in_a_session_of_its_own(directory):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1", "sleep 99", "sleep 99"), 1)
        await running(provider)
        sessions = {os.getsid(pid_of(directory, "s-1", host)) for host in (0, 1)}
        assert len(sessions) == 2
        assert os.getsid(0) not in sessions
        await provider.terminate("s-1", 1)

    run(test())


def test_a_slice_that_boots_is_pending_until_its_command_runs(directory):
    async def test():
        slow, quick = LocalProvider(directory, boot_delay=600), LocalProvider(directory, boot_delay=0.1)
        await slow.launch(order("s-1"), 1)
        instance = await only(slow)
        assert (instance.state, [host.running for host in instance.hosts]) == ("pending", [False])
        await slow.terminate("s-1", 1)
        await quick.launch(order("s-2"), 1)
        assert [host.running for host in (await running(quick)).hosts] == [True]
        await quick.terminate("s-2", 1)

    run(test())


# -- death ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["command", "supervisor"])
def test_a_host_that_is_killed_is_shown_as_not_running_and_the_other_as_running(directory, which):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1", "sleep 99", "sleep 99"), 1)
        await running(provider)
        os.kill(pid_of(directory, "s-1", 1, which), signal.SIGKILL)
        seen = await eventually(lambda: only(provider), lambda seen: not all(host.running for host in seen.hosts))
        assert seen.state == "running"
        assert [host.running for host in seen.hosts] == [True, False]
        await provider.terminate("s-1", 1)
        assert await provider.list() == []

    run(test())
    assert marked(directory) == []


def test_a_host_whose_command_ends_is_never_started_again(directory):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1", "echo once"), 1)
        await eventually(lambda: only(provider), lambda seen: seen.state == "running" and not seen.hosts[0].running)
        await provider.launch(order("s-1", "echo once"), 1)
        assert not (await only(LocalProvider(directory))).hosts[0].running
        assert (directory / "s-1" / "host-0" / "stdout.log").read_text(encoding="utf-8") == "once\n"
        await provider.terminate("s-1", 1)

    run(test())


def test_terminating_asks_nicely_first(directory, tmp_path):
    async def test():
        provider = LocalProvider(directory)
        said = tmp_path / "said"
        shell = f"trap 'echo bye > {said}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
        await provider.launch(order("s-1", shell), 1)
        await text_in(directory / "s-1" / "host-0" / "stdout.log", "up")
        await provider.terminate("s-1", 1)
        assert said.read_text(encoding="utf-8") == "bye\n"

    run(test())
    assert marked(directory) == []


def test_what_does_not_listen_is_killed_after_the_grace_period(directory):
    async def test():
        provider = LocalProvider(directory, grace=0.3)
        await provider.launch(order("s-1", "trap '' TERM; echo up; while :; do sleep 0.05; done"), 1)
        await text_in(directory / "s-1" / "host-0" / "stdout.log", "up")
        began = time.monotonic()
        await provider.terminate("s-1", 1)
        assert time.monotonic() - began >= 0.3
        assert await provider.list() == []
        assert not (directory / "s-1").exists()

    run(test())
    assert marked(directory) == []


@pytest.mark.parametrize("supervisor_dies", [False, True])
def test_a_daemon_that_left_its_process_group_is_ended_too(directory, supervisor_dies):
    async def test():
        provider = LocalProvider(directory, grace=1.0)
        await provider.launch(order("s-1", "(setsid sleep 3600 &); echo up; sleep 3600"), 1)
        await text_in(directory / "s-1" / "host-0" / "stdout.log", "up")

        async def processes():
            return len(marked(directory))

        await eventually(processes, lambda count: count >= 4)  # supervisor, shell, its sleep and the daemon
        if supervisor_dies:
            os.kill(pid_of(directory, "s-1", 0, "supervisor"), signal.SIGKILL)
        await provider.terminate("s-1", 1)

    run(test())
    assert marked(directory) == []


def test_a_supervisor_that_hangs_cannot_keep_its_host(directory, monkeypatch):
    monkeypatch.setattr("windlass.providers.local.provider._PATIENCE", 0.2)
    monkeypatch.setattr(signal, "SIGCONT", 0)  # it stays stopped, like one that hangs for another reason

    async def test():
        provider = LocalProvider(directory, grace=0.2)
        await provider.launch(order("s-1"), 1)
        await running(provider)
        os.kill(pid_of(directory, "s-1", 0, "supervisor"), signal.SIGSTOP)
        await provider.terminate("s-1", 1)
        assert await provider.list() == []

    run(test())
    assert marked(directory) == []


def test_a_host_whose_processes_are_stopped_ends_before_its_grace_period_is_over(directory):
    async def test():
        provider = LocalProvider(directory, grace=600.0)
        await provider.launch(order("s-1"), 1)
        await running(provider)
        for pid in marked(directory):
            os.kill(pid, signal.SIGSTOP)
        async with asyncio.timeout(120):
            await provider.terminate("s-1", 1)
        assert await provider.list() == []

    run(test())
    assert marked(directory) == []


# -- the owner dies ------------------------------------------------------------------------------------------------

OWNER = """
import asyncio, os, sys, time
from windlass.providers.local.provider import LocalProvider
from windlass.providers.protocol import HostOrder, LaunchOrder

async def main():
    provider = LocalProvider(sys.argv[1], tie_to=os.getpid() if sys.argv[2] == "tied" else None, grace=0.5)
    host = HostOrder(("sh", "-c", "(setsid sleep 3600 &); sleep 3600"))
    await provider.launch(LaunchOrder("s-1", "g", (host, host), ()), 1)
    while not all(host.running for one in await provider.list() for host in one.hosts):
        await asyncio.sleep(0.02)
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


BURST = """
    print("launching", flush=True)
    await asyncio.gather(*(provider.launch(LaunchOrder(f"s-{n}", "g", (host, host), ()), 1) for n in range(6)))
"""


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    """A process that is gone when the test is over, also when the test fails."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@contextmanager
def owner(directory: Path, how: str) -> Iterator[subprocess.Popen[str]]:
    with started(sys.executable, "-c", OWNER, str(directory), how) as process:
        assert said(process) == "up"
        yield process


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_slices_that_are_tied_to_a_process_end_with_it_however_it_ends(directory, end):
    with owner(directory, "tied") as process:
        assert len(marked(directory)) >= 6
        process.send_signal(end)
        process.wait()

    async def left():
        return marked(directory), [path.name for path in directory.iterdir() if not path.name.startswith(".")]

    run(eventually(left, lambda seen: seen == ([], [])))


def test_tied_slices_end_also_when_no_process_reaps_their_dead_owner(directory):
    with owner(directory, "tied") as process:
        process.kill()  # not waited for: it stays in the table of processes, as a zombie

        async def left():
            return marked(directory)

        run(eventually(left, lambda seen: seen == []))
        assert process.poll() is not None, "the owner was dead all the time"


def test_slices_live_on_when_their_controller_is_killed_and_the_next_one_adopts_them(directory):
    with owner(directory, "free") as process:
        process.kill()
        process.wait()

    async def test():
        provider = LocalProvider(directory)
        before = pid_of(directory, "s-1", 0)
        instance = await only(provider)
        assert (instance.slice_id, instance.group, instance.state) == ("s-1", "g", "running")
        assert [host.running for host in instance.hosts] == [True, True]
        await provider.launch(order("s-1", "sleep 1", "sleep 1"), 2)
        assert pid_of(directory, "s-1", 0) == before
        await provider.terminate("s-1", 2)
        assert await provider.list() == []

    run(test())
    assert marked(directory) == []


def test_slices_can_be_tied_only_to_a_process_that_runs(directory):
    gone = subprocess.Popen(["true"])
    gone.wait()
    with pytest.raises(InvalidRequest, match="your own"):
        LocalProvider(directory, tie_to=gone.pid)


# -- crashes between two lines -------------------------------------------------------------------------------------


def forget_the_processes(directory: Path, slice_id: str) -> None:
    """A slice as a controller leaves it that is killed after the record and before the first process."""
    home = directory / slice_id
    while pids := marked(home):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for host in home.glob("host-*"):
        (host / "process.json").unlink()


def recorded(directory: Path, hosts: int = 2) -> None:
    async def make():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1", *["exec sleep 3600"] * hosts), 1)
        await running(provider)

    run(make())
    forget_the_processes(directory, "s-1")


@pytest.mark.parametrize("by", ["launch", "list"])
def test_a_record_without_processes_is_carried_out_by_the_next_list(directory, by):
    recorded(directory)

    async def test():
        provider = LocalProvider(directory)
        if by == "launch":
            await provider.launch(order("s-1", "exec sleep 3600", "exec sleep 3600"), 1)
            assert pid_of(directory, "s-1", 1, "supervisor")
        assert [host.running for host in (await running(provider)).hosts] == [True, True]
        await provider.terminate("s-1", 1)

    run(test())
    assert marked(directory) == []


def test_two_that_carry_out_the_same_record_at_once_start_each_host_once(directory):
    recorded(directory)

    async def test():
        providers = [LocalProvider(directory) for _ in range(4)]
        again = order("s-1", "exec sleep 3600", "exec sleep 3600")
        await asyncio.gather(*(p.list() for p in providers), *(p.launch(again, 1) for p in providers))
        await running(providers[0])

        async def processes():
            return len(marked(directory))

        await eventually(processes, lambda count: count == 4)  # a supervisor and a command for each host
        await providers[0].terminate("s-1", 1)

    run(test())
    assert marked(directory) == []


def test_a_slice_that_was_half_started_becomes_whole(directory):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1", "exec sleep 3600", "exec sleep 3600"), 1)
        await running(provider)
        first = pid_of(directory, "s-1", 0)
        for which in ("supervisor", "command"):
            os.kill(pid_of(directory, "s-1", 1, which), signal.SIGKILL)
        (directory / "s-1" / "host-1" / "process.json").unlink()
        seen = await eventually(lambda: only(provider), lambda seen: all(host.running for host in seen.hosts))
        assert seen.state == "running"
        assert pid_of(directory, "s-1", 0) == first
        await provider.terminate("s-1", 1)

    run(test())


def test_a_record_without_processes_can_be_terminated(directory):
    recorded(directory)
    run(LocalProvider(directory).terminate("s-1", 1))
    assert not (directory / "s-1").exists()
    assert marked(directory) == []


@pytest.mark.parametrize("after", [0.0, 0.01, 0.03, 0.06, 0.1, 0.2])
def test_a_controller_that_is_killed_at_any_moment_of_its_launches_leaves_whole_slices_or_none(directory, after):
    program = OWNER.replace('    await provider.launch(LaunchOrder("s-1", "g", (host, host), ()), 1)\n', BURST)
    with started(sys.executable, "-c", program, str(directory), "free") as process:
        assert said(process) == "launching"
        time.sleep(after)  # not to wait for anything: to choose the moment of the blow
        process.kill()
        process.wait()

    async def test():
        provider = LocalProvider(directory)

        async def hosts():
            return [[host.running for host in one.hosts] for one in await provider.list()]

        await eventually(hosts, lambda seen: all(one == [True, True] for one in seen))
        await asyncio.gather(*(provider.terminate(one.slice_id, 1) for one in await provider.list()))
        assert await provider.list() == []

    run(test())
    assert marked(directory) == []


def test_an_end_that_was_begun_is_finished_by_the_next_list(directory):
    recorded(directory)
    edit_record(directory, ending=True)
    assert run(LocalProvider(directory).list()) == []
    assert not (directory / "s-1").exists()


def test_what_a_crash_left_under_another_name_is_swept_away(directory):
    (directory / ".new-1" / "host-0").mkdir(parents=True)
    (directory / ".gone-2").mkdir()

    async def test():
        provider = LocalProvider(directory)
        assert await provider.list() == []
        await provider.launch(order("s-1"), 1)
        assert sorted(path.name for path in directory.iterdir()) == [".epoch", ".lock", "s-1"]
        await provider.terminate("s-1", 1)

    run(test())


def test_a_process_that_took_the_number_of_a_dead_host_is_neither_shown_nor_touched(directory):
    recorded(directory, hosts=1)
    with started("sleep", "3600") as stranger:
        recycled = [stranger.pid, "1@00000000"]
        known = {"supervisor": recycled, "command": recycled}
        (directory / "s-1" / "host-0" / "process.json").write_text(json.dumps(known), encoding="utf-8")

        async def test():
            provider = LocalProvider(directory)
            assert [host.running for host in (await only(provider)).hosts] == [False]
            await provider.terminate("s-1", 1)
            assert await provider.list() == []

        run(test())
        assert stranger.poll() is None


def test_a_process_is_the_same_one_only_with_the_same_start():
    me = HostProcess.of(os.getpid())
    assert me is not None
    assert me.alive
    other = HostProcess(me.pid, "1@00000000")
    assert not other.alive
    assert not other.signal(signal.SIGKILL)


# -- looking without touching ----------------------------------------------------------------------------------------


def tree(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Every file and directory from here on, this one included: when it changed, how large it is, and its mode."""
    paths = [directory, *directory.rglob("*")] if directory.exists() else []
    status = {str(path.relative_to(directory)): path.lstat() for path in paths}
    return {name: (one.st_mtime_ns, one.st_size, one.st_mode) for name, one in status.items()}


def edit_record(directory: Path, **changes: object) -> None:
    path = directory / "s-1" / "record.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        pytest.param({}, "pending", id="an order that was taken"),
        pytest.param({"ending": True}, "ending", id="an end that was begun"),
        pytest.param({"tie_to": [1, "1@00000000"]}, "ending", id="an order whose owner is dead"),
    ],
)
def test_a_read_only_list_shows_unfinished_launches_and_leaves_them_unfinished(directory, changes, state):
    recorded(directory)
    edit_record(directory, **changes)
    (directory / ".new-1" / "host-0").mkdir(parents=True)
    (directory / ".gone-2").mkdir()
    (directory / "s-2").mkdir()
    (directory / "s-2" / "record.json").write_text("{", encoding="utf-8")
    before = tree(directory)

    async def test():
        for _ in range(2):
            onlooker = LocalProvider(directory, repair=False)
            for _ in range(2):
                instance = await only(onlooker)
                assert (instance.slice_id, instance.state) == ("s-1", state)
                assert [host.running for host in instance.hosts] == [False, False]
            assert "s-2" in onlooker.mistakes[0]
            await onlooker.close()

    run(test())
    assert tree(directory) == before
    assert marked(directory) == []
    # The same is done by the next one that repairs: the look has not only waited.
    assert [one.slice_id for one in run(LocalProvider(directory).list())] == ([] if state == "ending" else ["s-1"])
    assert tree(directory) != before


def test_a_read_only_list_leaves_running_slices_and_their_files_alone(directory):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1", "exec sleep 3600", "exec sleep 3600"), 1)
        seen = await running(provider)
        before, processes = tree(directory), sorted(marked(directory))
        assert await only(LocalProvider(directory, repair=False)) == seen
        assert (tree(directory), sorted(marked(directory))) == (before, processes)
        await provider.terminate("s-1", 1)

    run(test())


def test_the_list_of_a_missing_directory_is_empty_and_does_not_create_it(directory, tmp_path):
    onlooker = LocalProvider(directory, repair=False)
    assert run(onlooker.list()) == []
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_vanished_under_a_controller_is_an_error_and_not_an_empty_list(directory):
    provider = LocalProvider(directory)
    shutil.rmtree(directory)
    with pytest.raises(ProviderError):
        run(provider.list())


# -- an id buys once -------------------------------------------------------------------------------------------------


def ended(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory / ".ended")) for path in directory.glob(".ended/*/*"))


def test_an_id_that_has_ended_starts_nothing_also_after_a_restart_and_the_log_says_so(directory, tmp_path, caplog):
    async def test():
        ran = tmp_path / "ran"
        again = order("s-1", f"echo once >> {ran}; exec sleep 3600")
        await LocalProvider(directory).launch(again, 1)
        await text_in(ran, "once")
        await LocalProvider(directory).terminate("s-1", 1)
        await LocalProvider(directory).launch(again, 1)
        assert await LocalProvider(directory).list() == []
        assert ran.read_text(encoding="utf-8") == "once\n"

    run(test())
    assert marked(directory) == []
    assert "s-1 starts nothing" in caplog.text


def test_an_id_whose_end_was_finished_by_the_next_list_is_kept_too(directory):
    recorded(directory)
    edit_record(directory, ending=True)

    async def test():
        provider = LocalProvider(directory)
        assert await provider.list() == []
        await provider.launch(order("s-1"), 1)
        assert await provider.list() == []

    run(test())


def test_the_id_of_a_slice_that_ended_with_its_owner_is_kept_too(directory):
    with owner(directory, "tied") as process:
        process.kill()
        process.wait()

    async def test():
        async def left():
            return marked(directory), [path.name for path in directory.iterdir() if not path.name.startswith(".")]

        await eventually(left, lambda seen: seen == ([], []))
        provider = LocalProvider(directory)
        await provider.launch(order("s-1"), 1)
        assert await provider.list() == []

    run(test())
    assert marked(directory) == []


def fill_disk(monkeypatch) -> None:
    """Refuse every new file and directory of this process, as a full disk does. Files can be changed in place."""
    opened, touched, made = Path.open, Path.touch, Path.mkdir

    def refuse(path: Path) -> None:
        if not path.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def open_(path, mode="r", *arguments, **options):
        if mode[0] in "wax":
            refuse(path)
        return opened(path, mode, *arguments, **options)

    def touch(path, *arguments, **options):
        refuse(path)
        touched(path, *arguments, **options)

    def mkdir(path, *arguments, **options):
        refuse(path)
        made(path, *arguments, **options)

    for name, fault in (("open", open_), ("touch", touch), ("mkdir", mkdir)):
        monkeypatch.setattr(Path, name, fault)


def test_on_a_full_disk_a_slice_is_ended_and_its_id_is_kept(directory, monkeypatch):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1", "exec sleep 3600"), 1)
        await running(provider)
        with monkeypatch.context() as full:
            fill_disk(full)
            await provider.terminate("s-1", 1)
            assert await provider.list() == []
            assert marked(directory) == []
            await provider.launch(order("s-1", "exec sleep 3600"), 1)
            assert await provider.list() == []
        assert await provider.list() == []
        assert list(await provider.confirm_ended(["s-1"])) == ["s-1"]
        await provider.launch(order("s-1", "exec sleep 3600"), 1)
        assert await provider.list() == [], "an id launches once"
        assert not (directory / "s-1").exists()

    run(test())


def test_an_order_that_this_machine_could_not_start_may_be_repeated(directory, monkeypatch):
    async def test():
        provider = LocalProvider(directory)
        with monkeypatch.context() as patch:
            patch.setattr("sys.executable", str(directory / "no-such-python"))
            with pytest.raises(InsufficientCapacity):
                await provider.launch(order("s-1"), 1)
        assert await provider.list() == []
        assert ended(directory) == []
        await provider.launch(order("s-1"), 1)
        await running(provider)
        await provider.terminate("s-1", 1)

    run(test())


def test_ended_ids_are_forgotten_a_day_at_a_time_after_a_month(directory):
    day = 86400.0
    clock = [0.0]

    async def test():
        provider = LocalProvider(directory, now=lambda: clock[0])
        for name, at in (("s-1", 0.0), ("s-2", 1.0), ("s-3", day), ("s-4", 30 * day)):
            clock[0] = at
            await provider.launch(order(name), 1)
            await provider.terminate(name, 1)
        assert ended(directory) == ["1970-01-01/s-1", "1970-01-01/s-2", "1970-01-02/s-3", "1970-01-31/s-4"]
        clock[0] = 31 * day
        await provider.launch(order("s-5"), 1)
        await provider.terminate("s-5", 1)
        assert ended(directory) == ["1970-01-02/s-3", "1970-01-31/s-4", "1970-02-01/s-5"]

    run(test())


# -- garbage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"slice_id": "s-2"}', '{"slice_id": 7, "group": "g", "hosts": []}', "\x00\xff"]
)
def test_a_garbage_record_is_reported_and_the_others_are_listed(directory, text, caplog):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1"), 1)
        (directory / "s-2").mkdir()
        (directory / "s-2" / "record.json").write_text(text, encoding="utf-8")
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert [one.slice_id for one in await provider.list()] == ["s-1"]
        assert len(caplog.records) == 1, "told once, not at every list"
        assert "s-2" in provider.mistakes[0]
        with pytest.raises(InvalidRequest, match="terminate s-2"):
            await provider.launch(order("s-2"), 1)
        await provider.terminate("s-2", 1)
        await provider.list()
        assert provider.mistakes == ()
        await provider.terminate("s-1", 1)

    run(test())


def test_a_slice_whose_record_became_garbage_is_still_ended_whole(directory):
    async def test():
        provider = LocalProvider(directory)
        await provider.launch(order("s-1"), 1)
        await running(provider)
        (directory / "s-1" / "record.json").write_text("{", encoding="utf-8")
        await provider.terminate("s-1", 1)

    run(test())
    assert marked(directory) == []
    assert not (directory / "s-1").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", ".hidden", "x" * 201, "a\0b"])
def test_an_id_that_cannot_be_a_directory_is_refused_with_the_remedy(directory, name):
    with pytest.raises(InvalidRequest, match="letters, digits"):
        run(LocalProvider(directory).launch(order(name), 1))


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        (HostOrder(()), "give the program to run"),
        (HostOrder(("",)), "give the program to run"),
        (HostOrder(("no-such-program-at-all",)), "install it, or give its full path"),
        (HostOrder(("sleep", "1\0")), "leave out NUL"),
        (HostOrder(("sleep", "1"), {"A=B": "c"}), "leave out NUL and '='"),
    ],
)
def test_a_host_that_cannot_run_is_refused_before_anything_is_started(directory, host, remedy):
    async def test():
        provider = LocalProvider(directory)
        good = HostOrder(("sleep", "3600"))
        with pytest.raises(InvalidRequest, match=remedy):
            await provider.launch(LaunchOrder("s-1", "g", (good, host), ()), 1)
        assert await provider.list() == []

    run(test())
    assert marked(directory) == []


# -- the fence over restarts ---------------------------------------------------------------------------------------


def test_the_highest_epoch_is_kept_over_a_restart(directory):
    async def test():
        await LocalProvider(directory).terminate("s-0", 5)
        for call in (LocalProvider(directory).terminate("s-0", 4), LocalProvider(directory).launch(order("s-1"), 4)):
            with pytest.raises(StaleEpoch, match="that one 5"):
                await call

    run(test())


def test_an_empty_epoch_file_stops_changes_and_not_the_list(directory):
    async def test():
        provider = LocalProvider(directory)
        (directory / ".epoch").write_text("?", encoding="utf-8")
        with pytest.raises(ProviderError, match="delete it"):
            await provider.launch(order("s-1"), 1)
        assert await provider.list() == []

    run(test())


# -- faults --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "error"), [("stock-out", InsufficientCapacity), ("quota", QuotaExceeded), ("fail", ProviderError)]
)
def test_a_fault_refuses_the_launches_it_was_set_for_and_no_others(directory, kind, error):
    async def test():
        provider = LocalProvider(directory, faults=[LocalFault(kind, groups=frozenset({"a"}), launches=1)])
        await provider.launch(order("s-0", group="b"), 1)
        with pytest.raises(error):
            await provider.launch(order("s-1", group="a"), 1)
        await provider.launch(order("s-1", group="a"), 1)
        assert [one.slice_id for one in await provider.list()] == ["s-0", "s-1"]
        await asyncio.gather(provider.terminate("s-0", 1), provider.terminate("s-1", 1))

    run(test())


def test_a_launch_that_hangs_holds_nothing_else_up_and_leaves_nothing(directory):
    async def test():
        provider = LocalProvider(directory, faults=[LocalFault("hang", groups=frozenset({"a"}))])
        hanging = asyncio.create_task(provider.launch(order("s-1", group="a"), 1))
        await provider.launch(order("s-2", group="b"), 1)
        assert [one.slice_id for one in await provider.list()] == ["s-2"]
        assert not hanging.done()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        await provider.terminate("s-2", 1)

    run(test())


def test_a_slow_boot_ends_by_the_given_clock(directory):
    clock = [100.0]

    async def test():
        fault = LocalFault("slow-boot", until=200.0, seconds=3600)
        provider = LocalProvider(directory, faults=[fault], now=lambda: clock[0])
        await provider.launch(order("s-1"), 1)
        clock[0] = 200.0
        await provider.launch(order("s-2"), 1)

        async def states():
            return [one.state for one in await provider.list()]

        await eventually(states, lambda seen: seen == ["pending", "running"])
        await asyncio.gather(provider.terminate("s-1", 1), provider.terminate("s-2", 1))

    run(test())
    assert marked(directory) == []


def test_hosts_get_the_usual_variables_and_those_that_are_named_and_no_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "secret")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret too")
    monkeypatch.setenv("HF_TOKEN", "wanted")
    monkeypatch.setenv("LC_ALL", "C")

    async def test():
        provider = LocalProvider(tmp_path / "slices", environment=["HF_TOKEN"])
        host = HostOrder(("sh", "-c", f"env > {tmp_path}/env.new; mv {tmp_path}/env.new {tmp_path}/env; sleep 60"))
        await provider.launch(LaunchOrder("s-1", "g", (host,), ()), 1)
        try:

            async def written():
                return (tmp_path / "env").exists()

            await eventually(written)
        finally:
            await provider.terminate("s-1", 1)

    run(test())
    found = dict(
        line.split("=", 1) for line in (tmp_path / "env").read_text(encoding="utf-8").splitlines() if "=" in line
    )
    assert "PGPASSWORD" not in found
    assert "AWS_SECRET_ACCESS_KEY" not in found
    assert (found["HF_TOKEN"], found["LC_ALL"], found["PATH"]) == ("wanted", "C", os.environ["PATH"])


def test_the_record_of_an_end_does_not_make_a_removed_directory_again(tmp_path):
    with pytest.raises(FileNotFoundError):
        remember_end(tmp_path / "removed", "a-1", 0.0)
    assert not (tmp_path / "removed").exists()
