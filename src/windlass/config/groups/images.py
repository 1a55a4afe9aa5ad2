"""This module reads ``image`` of a group or a provider: the software that a machine needs before its program starts.

An image may hold secrets (variables, a package index with a password). No value of it is repeated in a message.
"""

from __future__ import annotations

import re
from pathlib import Path as FilePath
from typing import Any, Final

from windlass.providers.registry import PROVIDER_TYPES
from windlass.scenario.declarations import Form, Key, ValueType
from windlass.scenario.reader import DataReader, Path, shown
from windlass.scenario.value_types import LABELS, TEXT

TEXTS: Final = ValueType(
    lambda reader, at, value: _texts(reader, at, value), {"type": "array", "items": TEXT}, "Sequence[str]"
)
WORD: Final = ValueType(lambda reader, at, value: _text(reader, at, value), {"type": "string"}, "str")
IMAGE: Final = Form(
    "an image",
    {
        "python": Key(
            "the minor version of the controller's Python",
            "A minor version such as `3.11`, or the path of a Python on the machine.",
            type=WORD,
        ),
        "pip": Key("none", "A list of requirements for pip.", type=TEXTS),
        "pip_index": Key(
            "pip's own",
            "The URL of a package index. It may hold a password, so it is never printed or recorded.",
            type=WORD,
        ),
        "apt": Key("none", "A list of system packages.", type=TEXTS),
        "env": Key(
            "none",
            "Environment variables of the script and of the program. They are never printed or recorded.",
            type=LABELS,
        ),
        "includes": Key("none", "Files and directories, relative to this file, that programs can import.", type=TEXTS),
        "setup": Key("none", "A list of shell commands that run once, after everything else.", type=TEXTS),
    },
)
_MINOR: Final = re.compile(r"3\.[0-9]{1,2}")
_INDEX: Final = re.compile(r"((https?|file)://|/)[^\s\x00-\x1f]+")
LISTS: Final = ("pip", "apt", "includes", "setup")


def read_image(reader: DataReader, at: Path, value: object, home: FilePath) -> dict[str, Any] | None:
    """Read an image; None if the section is absent. Mistakes are reported to the reader."""
    if value is None:
        return None
    fields = reader.fields(at, value, IMAGE)
    found: dict[str, Any] = {}
    for name in ("python", "pip_index"):
        if (given := fields.get(name)) is not None:
            found[name] = _text(reader, (*at, name), given, _version_hint(name, given))
    if (python := found.get("python")) and not python.startswith("/") and not _MINOR.fullmatch(python):
        reader.wrong((*at, "python"), f"must be a minor version such as '3.11' or a full path, is {shown(python)}")
    if (index := found.get("pip_index")) and not _INDEX.fullmatch(index):
        reader.wrong(
            (*at, "pip_index"), "must be the URL of a package index, such as https://packages.example.org/simple"
        )
    for name in LISTS:
        if (given := fields.get(name)) is not None:
            found[name] = _texts(reader, (*at, name), given)
    if (given := fields.get("env")) is not None:
        entries = reader.mapping((*at, "env"), given, "a mapping of variables, such as {OMP_NUM_THREADS: 4}")
        found["env"] = {key: _text(reader, (*at, "env", key), one) for key, one in entries.items()}
        for name in entries:
            if not name or not name.isprintable() or "=" in name or " " in name:
                reader.wrong(
                    (*at, "env", name), "is not the name of a variable: it is empty, or has a space or = in it"
                )
    if "includes" in found:
        found["includes"] = [
            _included(reader, (*at, "includes", number), one, home) for number, one in enumerate(found["includes"])
        ]
    return {name: one for name, one in found.items() if one} or None


def refused_image(provider: str, type: str) -> str:
    """Explain why a provider cannot prepare machines with an image; empty if it can."""
    if not type or PROVIDER_TYPES[type].takes_images:
        return ""
    able = [name for name in PROVIDER_TYPES if PROVIDER_TYPES[name].takes_images]
    return f"machines of {provider} ({type}) take no image; those of {' and '.join(able)} do"


def _included(reader: DataReader, at: Path, given: str, home: FilePath) -> str:
    """Return the path of a file or directory of an image; report one that does not exist."""
    try:
        path = home / FilePath(given).expanduser()
        if given and path.exists():
            return str(path)
        reader.wrong(at, f"there is no file or directory {shown(str(path) if given else given)}")
    except (OSError, RuntimeError, ValueError):
        reader.wrong(at, f"is not the path of a file or directory: {shown(given)}")
    return ""


def _version_hint(name: str, given: object) -> str:
    return "; put it in quotes: 3.1 and 3.10 are one number" if name == "python" and isinstance(given, float) else ""


def _texts(reader: DataReader, at: Path, value: object) -> list[str]:
    return [_text(reader, (*at, number), one) for number, one in enumerate(reader.items(at, value, "texts"))]


def _text(reader: DataReader, at: Path, value: object, hint: str = "") -> str:
    """Read text of any number of lines. A wrong value may be a secret, so the message does not show it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) or (isinstance(value, int | float) and not hint):
        text = str(value)
        if "\0" not in text:
            return text
        hint = " without the character NUL"
    reader.wrong(at, f"must be text{hint}")
    return ""
