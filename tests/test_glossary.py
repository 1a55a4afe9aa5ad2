"""One word has one meaning: help texts use the words of users, and no text uses retired words.

In text for people a *machine* is bought and a *job* waits; `slice` and `demand` are the words of files, JSON and code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from windlass.cli import windlass

ROOT = Path(__file__).resolve().parents[1]
INTERNAL = re.compile(r"(?i)\b(slices?|a demand|demands|epochs?|fences?|fenced|worlds?|promises?)\b")
"""Words of the code, or of the docs about the code, that a user of a command need not know."""
RETIRED = re.compile(r"(?i)\b(astir|muster\w*|reckon\w*|sighted|lineup|see_off|dearer|the very same|of all waits)\b")
"""Words that were replaced everywhere. ``DEARER`` is a reason code, with a link to its text; codes never change."""


def helps(command: click.Command, context: click.Context, name: str) -> Iterator[tuple[str, str]]:
    options = [one.help or "" for one in command.params if isinstance(one, click.Option)]
    for text in (command.help or "", command.epilog or "", command.short_help or "", *options):
        yield name, text
    if isinstance(command, click.Group):
        for word in command.list_commands(context):
            below = command.get_command(context, word)
            assert below is not None
            yield from helps(below, click.Context(below, info_name=word, parent=context), f"{name} {word}")


def test_help_texts_use_the_words_of_users() -> None:
    found = [
        (name, word[0])
        for name, text in helps(windlass, click.Context(windlass), "windlass")
        for word in INTERNAL.finditer(text)
    ]
    assert found == []


CODE = re.compile(r"(?i)\b(epochs?|fences?|fenced|luck)\b")
"""Words of the code that no message has."""


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """The texts of raised exceptions and the lines that a generator yields."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Raise | ast.Yield):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str) and " " in part.value:
                    yield part.lineno, part.value


def test_no_message_uses_a_word_of_the_code() -> None:
    found = [
        (str(path.relative_to(ROOT)), line, text)
        for path in sorted((ROOT / "src").rglob("*.py"))
        if "testing" not in path.parts and "sim" not in path.parts  # read by people who write code
        for line, text in messages(path)
        if CODE.search(text)
    ]
    assert found == []


@pytest.mark.parametrize("folder", ["src", "docs"])
def test_no_text_uses_a_retired_word(folder: str) -> None:
    found = [
        (str(path.relative_to(ROOT)), word[0])
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".md", ".js", ".html")
        for word in RETIRED.finditer(path.read_text(encoding="utf-8"))
        if word[0] != "DEARER" and word.string[word.start() - 1] != "#"
    ]
    assert found == []
