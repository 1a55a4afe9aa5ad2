"""Runs the code in the docs: it prints what the page shows.

A page holds three kinds of blocks that are more than pictures:

- ``yaml`` is a scenario. One whose first line is ``# NAME.yaml`` is a file of that name for the commands of its page.
- ``console`` is a session: a line ``$ windlass ...`` and what it prints, errors included.
- ``python`` is a program; a ``text`` block right behind it is what it prints. The programs of a page share their names.

A line ``...`` in shown output stands for any lines. ``python -m tests.shown --write`` puts what is printed now into the
pages, but for blocks with such a line.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RUN = [page for page in PAGES if page.name == "README.md" or page.parent.name == "docs"]
"""Pages whose code is run: those for users."""

_BLOCK = re.compile(r"^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# (?P<name>[\w-]+\.yaml)\n")
ANY_LINES = "..."
NOWHERE = -1
"""The place of output that a page does not show: there must be none."""


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    kind: str
    text: str
    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True)
class Shown:
    """Output that a page shows, and what is printed in truth."""

    line: int
    shown: str
    printed: str
    start: int
    end: int

    @property
    def same(self) -> bool:
        pattern = "".join(
            r"(?:.*\n)*" if line == ANY_LINES else re.escape(line) + r"\n" for line in self.shown.splitlines()
        )
        return re.fullmatch(pattern, self.printed) is not None


def blocks(page: str) -> list[Block]:
    return [
        Block(one["kind"], one["text"], one.start("text"), one.end("text"), page.count("\n", 0, one.start()) + 1)
        for one in _BLOCK.finditer(page)
    ]


def outputs(page: str) -> Iterator[Shown]:
    """Runs a page from top to bottom."""
    names: dict[str, Any] = {"__name__": "__main__"}
    with tempfile.TemporaryDirectory() as home:
        here = Path(home)
        shutil.copytree(ROOT / "examples", here / "examples")
        found = blocks(page)
        for block, following in zip_longest(found, found[1:]):
            if block.kind == "yaml" and (name := _FILE.match(block.text)):
                (here / name["name"]).write_text(block.text, encoding="utf-8")
            elif block.kind == "console":
                yield from _session(block, here)
            elif block.kind == "python":
                printed = _program(block.text, here, names)
                if following and following.kind == "text" and not page[block.end + 4 : following.start - 8].strip():
                    yield Shown(following.line, following.text, printed, following.start, following.end)
                else:
                    yield Shown(block.line, "", printed, NOWHERE, NOWHERE)


def _session(block: Block, here: Path) -> Iterator[Shown]:
    """Each command of a session with what it prints up to the next one."""
    place = block.start
    for part in re.split(r"^(?=\$ )", block.text, flags=re.MULTILINE):
        command, _, shown = part.partition("\n")
        if command.startswith("$ windlass"):
            begin = place + len(command) + 1
            yield Shown(block.line, shown, _run(command[2:], here), begin, begin + len(shown))
        elif part:
            raise ValueError(f"line {block.line}: a session runs windlass, not {command!r}; other commands go into sh")
        place += len(part)


def _run(command: str, here: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=here,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def _program(text: str, here: Path, names: dict[str, Any]) -> str:
    printed, before = StringIO(), Path.cwd()
    os.chdir(here)
    try:
        with redirect_stdout(printed):
            exec(compile(text, "page", "exec"), names)
    finally:
        os.chdir(before)
    return printed.getvalue()


def corrected(page: str) -> str:
    """The page with what is printed now in the place of what it shows."""
    for one in sorted(outputs(page), key=lambda one: -one.start):
        if ANY_LINES not in one.shown.splitlines() and one.start != NOWHERE:
            page = page[: one.start] + one.printed + page[one.end :]
    return page


def main() -> int:
    write, wrong = sys.argv[1:] == ["--write"], 0
    for path in RUN:
        page = path.read_text(encoding="utf-8")
        differing = [one.line for one in outputs(page) if not one.same]
        for line in differing:
            print(f"{path.relative_to(ROOT)}:{line}: is not what is printed")
        if write and differing:
            path.write_text(corrected(page), encoding="utf-8")
        wrong += len(differing)
    return 0 if write else min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
