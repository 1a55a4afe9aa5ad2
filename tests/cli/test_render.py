"""The page of a plan."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from tests.cli.plans import a_plan, a_snapshot
from windlass.cli.ui.pages import PIPED_WIDTH, grid, headed, plain, section
from windlass.cli.ui.plan_page import rendered, short_ids

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def page(idle: int = 12) -> str:
    return plain(rendered(a_plan(idle), a_snapshot(idle), "cluster.yaml"))


def test_the_first_lines_say_what_changes_and_what_it_costs():
    lines = page().splitlines()
    assert lines[0].startswith("Plan: launch 2 machines, cancel 1 machine, drain 12 machines")
    assert "Cost: $45.00/h now, $57.00/h after (+$12.00/h)" in lines


def test_the_parts_stand_in_the_order_in_which_they_matter():
    titles = [line.partition(":")[0] for line in page().splitlines() if re.match(r"[A-Z]", line)]
    assert titles[0] == "Plan"
    assert titles[-6:] == [
        "Cost",
        "Changes",
        "Why these groups",
        "Waiting",
        "Staying",
        "Every group, placement and remedy, for programs",
    ]


@pytest.mark.parametrize(
    "parts",
    [
        ("+", "launch", "2 x gpu-a ($24.00/h)", "DEMAND", "for 3 tasks of train"),
        ("-", "cancel", "q-1 (gpu-b)", "SURPLUS", "no demand"),
        ("-", "drain", "12 x cpu: c-0001..c-0012", "IDLE", "e.g. idle 101 s, limit 60 s"),
        ("+", "uncordon", "g-1 (gpu-a)", "DEMAND"),
        ("+", "unmark", "g-2 (gpu-a)", "DEMAND"),
        ("~", "mark", "g-3 (gpu-a)", "LOW_UTILIZATION"),
        ("*", "gpu-a", "$12.00/h", "taken", "2 x"),
        ("gpu-b", "$30.00/h", "DEARER", "1 slice for the same tasks"),
        ("big (1 x)", "NO_SHAPE_FITS", "the largest node has none"),
        ("cpu, gpu-a", "TOO_SMALL", "needs 512Gi memory"),
        ("would help:", "memory 512Gi -> 0", "+$12.00/h"),
        ("Staying: 9 machines, BUSY 9",),
        ("cpu", "9", "BUSY", "1 task runs there"),
        ("windlass plan cluster.yaml --json",),
    ],
)
def test_each_part_of_the_answer_is_one_line(parts):
    assert any(all(part in line for part in parts) for line in page().splitlines()), page()


def test_three_thousand_slices_are_no_longer_than_twelve():
    assert len(page(3000).splitlines()) == len(page(12).splitlines())
    assert "3000 x cpu: c-0001..c-3000" in page(3000)


def test_a_page_has_no_escape_codes_no_long_lines_and_no_blanks_at_line_ends():
    assert "\x1b" not in page()
    assert all(len(line) <= PIPED_WIDTH and line == line.rstrip() for line in page().splitlines())


def test_nothing_is_cut_off_on_a_narrow_terminal():
    console = Console(width=80, record=True, file=StringIO(), highlight=False)
    console.print(*rendered(a_plan(), a_snapshot(), "cluster.yaml"), sep="\n")
    text = console.export_text()
    assert all(len(line.rstrip()) <= 80 for line in text.splitlines())
    assert "…" not in text
    for word in ("LOW_UTILIZATION", "c-0001..c-0012", "NO_SHAPE_FITS", "running"):
        assert word in text


def test_no_line_is_broken_between_a_number_and_its_unit():
    for length in range(PIPED_WIDTH - 30, PIPED_WIDTH):
        words = f"{'x' * length} limit 5 min, 12 s or 3 GiB of it"
        rows = grid("-", "")
        rows.add_row("why", words)
        text = plain([words, Text(words), section("Title", rows)])
        assert not re.search(r"\d$", text, re.MULTILINE), text
        assert text.count("5 min") == text.count("12 s") == text.count("3 GiB") == 3


def test_names_are_shown_as_they_are_and_never_as_markup():
    assert short_ids(["[red]a[/red]"]) == "[red]a[/red]"


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (["a"], "a"),
        (["b", "a"], "a, b"),
        (["s-1", "s-2"], "s-1, s-2"),
        (["s-3", "s-1", "s-2"], "s-1..s-3"),
        (["s-8", "s-9", "s-10", "s-11"], "s-8..s-11"),
        (["s-08", "s-09", "s-10"], "s-08..s-10"),
        (["s-1", "s-2", "s-3", "s-5", "t"], "s-1..s-3, s-5, t"),
        (["a", "b", "c", "d", "e", "f"], "a, b, c, d and 2 more"),
        (["a", "b", "c", "d", *(f"s-{index}" for index in range(10))], "a, b, c, d and 10 more"),
        ([], ""),
    ],
)
def test_many_ids_in_few_words(ids, text):
    assert short_ids(ids) == text


def on_a_terminal(**environment: str) -> str:
    """What the command writes to a real terminal of 80 columns."""
    primary, secondary = pty.openpty()
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "windlass", "plan", EXAMPLES / "small-cluster.yaml"],
            stdout=secondary,
            stderr=secondary,
            stdin=secondary,
            env=os.environ | {"TERM": "xterm-256color", "COLUMNS": "80"} | environment,
        ) as process:
            os.close(secondary)
            chunks = []
            while True:
                try:
                    chunk = os.read(primary, 65536)
                except OSError:  # how a terminal says that nobody writes any more
                    break
                if not chunk:
                    break
                chunks.append(chunk)
            assert process.wait(timeout=60) == 0
    finally:
        os.close(primary)
    return b"".join(chunks).decode()


def test_a_terminal_gets_colour_unless_it_asks_for_none():
    environment = {name: "" for name in ("NO_COLOR", "FORCE_COLOR") if name in os.environ}
    assert "\x1b[36m" in on_a_terminal(**environment)
    assert "\x1b[36m" not in on_a_terminal(NO_COLOR="1")


def test_what_is_piped_is_plain_and_the_same_every_time():
    command = [sys.executable, "-m", "windlass", "plan", str(EXAMPLES / "small-cluster.yaml")]
    pages = {
        subprocess.run(
            command, capture_output=True, text=True, check=True, env=os.environ | {"COLUMNS": columns, "TERM": term}
        ).stdout
        for columns, term in (("60", "xterm-256color"), ("200", "dumb"))
    }
    assert len(pages) == 1
    assert "\x1b" not in pages.pop()


@pytest.mark.parametrize("width", [30, 60, 200])
def test_no_value_of_a_table_is_cut_off_in_a_narrow_terminal(width):
    table = headed("group", "ready>", "starting>", "leaving>", "cost>", "availability*")
    table.add_row("general-purpose-spot", "1234", "56", "78", "$12.00/h", "available")
    table.add_row("gpu", "1", "2", "3", "$9.99/h", "")
    output = StringIO()
    Console(file=output, width=width).print(table)
    printed = output.getvalue()
    for value in ("general-purpose-spot", "1234", "$12.00/h", "available", "gpu", "$9.99/h"):
        assert value in printed
    assert max(map(len, printed.splitlines())) <= width
    assert ("group" in printed) == (width == 200), "in a narrow terminal each row is a list of names and values"


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_long_name_in_a_list_without_a_head_cuts_off_no_reason(width):
    table = grid("-", "-", "fold")
    table.add_row("a-group-with-a-name-that-takes-most-of-a-line-of-80-letters", "TOO_SMALL", "needs 8 cpu, it has 4")
    table.add_row("gpu", "AT_MAX", "gpu is at its max of 3")
    output = StringIO()
    Console(file=output, width=width).print(table)
    printed = output.getvalue()
    words = " ".join(printed.split())
    for value in ("TOO_SMALL needs 8 cpu, it has 4", "gpu AT_MAX gpu is at its max of 3"):
        assert value in words
    assert max(map(len, printed.splitlines())) <= width
