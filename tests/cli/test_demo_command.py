"""The demo does what it says, ends within a minute, and leaves nothing running."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from tests.providers.local_processes import marked
from windlass.cli.commands.start.demo.view import Scene
from windlass.control.report.events import EventLine


def demo(home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "windlass", "demo", "--directory", str(home)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@pytest.mark.slow
def test_the_demo_shows_what_happened_and_why_and_what_it_cost_and_leaves_nothing_running(tmp_path):
    done = demo(tmp_path / "demo")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "24 of 24 done" in done.stdout
    assert "1 killed" in done.stdout
    assert "0 left running" in done.stdout
    assert "[DEMAND]" in done.stdout
    assert "one of its hosts is dead [LOST]" in done.stdout
    assert "[IDLE]" in done.stdout
    assert re.search(r"bill +\$0\.0\d+: work \$", done.stdout)
    assert marked(tmp_path) == []
    assert not any((tmp_path / "demo" / ".windlass" / "local").glob("worker-*"))
    for command in re.findall(r"windlass (?:events|why) .*", done.stdout):
        again = subprocess.run(
            [sys.executable, "-m", *command.split()], capture_output=True, text=True, check=False, cwd=Path.cwd()
        )
        assert again.returncode == 0, again.stderr
        assert "worker" in again.stdout


@pytest.mark.slow
def test_on_a_terminal_the_demo_is_a_live_view(tmp_path):
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", "demo", "--directory", str(tmp_path / "demo")],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            seen += os.read(ours, 65536)
        except OSError:
            break
    os.close(ours)
    assert process.wait(60) == 0
    text = seen.decode(errors="replace")
    assert "running" in text
    assert "so far" in text
    assert "\x1b[" in text
    assert "24 of 24 done" in text
    assert marked(tmp_path) == []


@pytest.mark.slow
def test_ctrl_c_ends_the_demo_at_once_and_leaves_nothing_running(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "windlass", "demo", "--directory", str(tmp_path / "demo")],
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if "[DEMAND]" in line and "ready" in line:
                break
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 130
    assert rest.endswith("stopped; nothing is left running\n")
    assert time.monotonic() - began < 10  # 0.4 s on a machine that has time
    assert marked(tmp_path) == []


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("ten years of work")
    done = demo(tmp_path)
    assert done.returncode == 1
    assert "choose another --directory" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


def test_in_80_columns_the_progress_is_one_line_and_the_echo_of_ctrl_c_starts_no_new_one():
    events = [EventLine(0.0, "slice", "", f"{n} machines: " + "words " * 20, ()) for n in range(20)]
    output = io.StringIO()
    console = Console(width=80, height=40, file=output)
    console.print(Scene(waiting=10, running=14, done=0, lines=events))
    lines = output.getvalue().splitlines()
    assert lines[0].startswith("windlass demo")
    assert lines[0].endswith("10 waiting")
    assert 70 < len(lines[-1].rstrip()) <= 78
