"""The planner's cases, one test each, through the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.cases import check_cases
from windlass.cli import windlass

HOME = Path(__file__).parent / "cases"
FILES = sorted((*HOME.glob("*.yaml"), *(HOME / "own").glob("*.yaml")))
CASES = [
    pytest.param(case, id=f"{path.stem}: {case['name']}")
    for path in FILES
    for case in yaml.safe_load(path.read_text(encoding="utf-8"))
]


def ask_in_process(_command: list[str], scenario: Any) -> SimpleNamespace:
    """What the checker's own ``ask`` does, without starting an interpreter for each of its 250 questions."""
    text = scenario if isinstance(scenario, str) else yaml.safe_dump(scenario, sort_keys=False)
    result = CliRunner().invoke(windlass, ["plan", "-", "--json"], input=text)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return SimpleNamespace(returncode=result.exit_code, stdout=result.stdout, stderr=result.stderr)


@pytest.mark.parametrize("case", CASES)
def test_case(case, monkeypatch):
    monkeypatch.setattr(check_cases, "ask", ask_in_process)
    assert check_cases.problems([], case) == []


def test_the_checker_itself_passes_on_the_real_command():
    command = f"{sys.executable} -m windlass"
    done = subprocess.run(
        [sys.executable, HOME / "check_cases.py", "--windlass", command, HOME / "bad_input.yaml"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("10 passed, 0 failed\n")


def test_every_file_of_cases_is_run():
    assert len(FILES) >= 17
    assert len(CASES) > 180
