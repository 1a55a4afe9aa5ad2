"""``windlass plan`` as a user meets it: status, streams, speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.measuring import cpu_seconds
from tests.scenario.malformed import MALFORMED, G
from windlass import __version__

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WINDLASS = [sys.executable, "-m", "windlass"]
NOTHING_TO_DO = "groups: {g: {resources: {cpu: 4}, max: 5}}"
SOMETHING_TO_DO = NOTHING_TO_DO + "\ndemands: [{id: d, needs: {cpu: 1}}]"


def run(*args: str | Path, text: str | bytes = "", **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*WINDLASS, *args],
        input=text.encode() if isinstance(text, str) else text,
        capture_output=True,
        timeout=60,
        env=os.environ | environment,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize(
    ("text", "flags", "status"),
    [
        (NOTHING_TO_DO, [], 0),
        (SOMETHING_TO_DO, [], 0),
        (NOTHING_TO_DO, ["--detailed-exitcode"], 0),
        (SOMETHING_TO_DO, ["--detailed-exitcode"], 2),
        (SOMETHING_TO_DO, ["--detailed-exitcode", "--json"], 2),
        ("groups: 3", [], 1),
        ("groups: 3", ["--detailed-exitcode", "--json"], 1),
    ],
)
def test_the_exit_status_shows_what_was_found(text, flags, status):
    done = run("plan", "-", *flags, text=text)
    assert done.returncode == status
    assert bool(done.stdout) == (status != 1)
    assert bool(done.stderr) == (status == 1)


def test_the_answer_as_json_has_every_part():
    done = run("plan", "-", "--json", text=SOMETHING_TO_DO)
    answer = json.loads(done.stdout)
    assert answer["schema"] == "windlass.plan/v1"
    assert answer["launch"] == {"g": 1}
    assert answer["placements"] == [{"demand": "d", "count": 1, "on": "new:g:0"}]
    assert answer.keys() >= {"now", "cancel", "drain", "uncordon", "mark", "unmark", "waiting", "keep", "hourly_cost"}


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_planned_for_people_and_for_programs(path):
    assert run("plan", path).returncode == 0
    assert json.loads(run("plan", path, "--json").stdout)["schema"] == "windlass.plan/v1"


def test_one_line_per_mistake_and_nothing_on_standard_output():
    done = run("plan", "-", text="groups: {a: {resources: {cpu: -1}, min: 3, max: 1}}\nfoo: 1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "foo: unknown key; known here: now, cluster, families, groups, slices, demands, requests",
        "groups.a.resources.cpu: must not be negative, is -1",
        "groups.a.max: must be at least min (3), is 1",
    ]


@pytest.mark.parametrize("text", list(MALFORMED)[::9], ids=range(len(list(MALFORMED)[::9])))
def test_a_wrong_file_never_shows_a_stack_trace(text):
    done = run("plan", "-", "--json", text=text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "No such file or directory; check the path"),
        (lambda path: path.mkdir(), "Is a directory; give a file"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not UTF-8 text"),
        (lambda path: path.write_bytes(b"groups: {}\x00"), "is not YAML"),
    ],
    ids=["missing", "directory", "not UTF-8", "binary"],
)
def test_a_file_that_cannot_be_read_is_one_line(make, reason, tmp_path):
    path = tmp_path / "cluster.yaml"
    make(path)
    done = run("plan", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_without_permission_is_one_line(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(G)
    path.chmod(0)
    done = run("plan", path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"{path}: cannot be read: Permission denied\n"


def test_a_name_that_no_file_can_have_is_one_line():
    done = run("plan", "a" * 5000)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)


@pytest.mark.parametrize("reader", ["head -c 10", "true"])
@pytest.mark.parametrize("flags", ["", "--json"])
def test_a_reader_that_has_seen_enough_ends_it_quietly(reader, flags):
    slices = ", ".join(f"{{id: s-{index}, group: g, state: ready}}" for index in range(3000))
    text = f"{NOTHING_TO_DO}\nslices: [{slices}]"
    command = f"{sys.executable} -m windlass plan - {flags} | {reader}; echo status ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.endswith("status 0\n")
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_a_full_disk_is_one_line():
    command = f"{sys.executable} -m windlass plan - > /dev/full"
    done = subprocess.run(["bash", "-c", command], input=NOTHING_TO_DO, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "Error: cannot write the output: No space left on device\n"


def test_an_interrupt_ends_it_quietly_with_130():
    with subprocess.Popen(
        [*WINDLASS, "plan", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        process.stdin.write(b"x" * 200_000)  # more than a pipe holds: when this returns, it is reading
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


def test_output_survives_a_terminal_that_knows_ascii_only():
    text = "groups: {é: {resources: {cpu: 4}, max: 5, labels: {zone: ü}}}\ndemands: [{id: ñ, needs: {cpu: 9}}]"
    for flags in ([], ["--json"]):
        done = run("plan", "-", *flags, text=text, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert done.returncode == 0, done.stderr
    done = run("plan", "-", text="groups: {é: 3}", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.alone
@pytest.mark.parametrize("flags", [[], ["--json"]], ids=["for people", "for programs"])
def test_a_small_plan_takes_less_than_a_third_of_a_second_of_cpu_time(flags):
    spent = cpu_seconds([*WINDLASS, "plan", EXAMPLES / "small-cluster.yaml", *flags])
    # Where neighbours share the core and its caches, every CPU second is longer: numpy alone takes 0.085 when quiet.
    yardstick = cpu_seconds([sys.executable, "-c", "import numpy"])
    assert spent < max(0.3, 3.5 * yardstick), f"{spent:.3f} s, importing numpy {yardstick:.3f} s"


def test_help_has_examples_and_the_exit_status():
    done = run("plan", "--help")
    assert done.returncode == 0
    assert "windlass plan cluster.yaml --json" in done.stdout
    assert "Exit status" in done.stdout
    assert "plan" in run("--help").stdout


def test_the_version_is_the_version_of_the_package():
    assert run("--version").stdout == f"windlass, version {__version__}\n"


def test_a_mistyped_command_is_answered_with_the_one_that_was_meant():
    done = run("paln")
    assert done.returncode == 64
    assert "did you mean plan?" in done.stderr
    assert run("xyzzy").returncode == 64
    assert run("plan").returncode == 64
