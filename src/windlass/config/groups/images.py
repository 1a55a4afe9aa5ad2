"""``image``: what machines must have before their program starts, of a group or of a provider.

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
            "A minor version such as `3.11`, or the full path of a Python on the machine.",
            type=WORD,
        ),
        "pip": Key("none", "A list of requirements, as pip takes them.", type=TEXTS),
        "pip_index": Key(
            "pip's own", "The URL of a package index. It may hold a password: it is never written down.", type=WORD
        ),
        "apt": Key("none", "A list of system packages.", type=TEXTS),
        "env": Key("none", "Variables of the script and of the program. Never written down.", type=LABELS),
        "includes": Key("none", "Files and directories beside this file that programs can import.", type=TEXTS),
        "setup": Key("none", "A list of shell commands that are run once, last.", type=TEXTS),
    },
)
_MINOR: Final = re.compile(r"3\.[0-9]{1,2}")
LISTS: Final = ("pip", "apt", "includes", "setup")


def read_image(reader: DataReader, at: Path, value: object, home: FilePath) -> dict[str, Any] | None:
    """Read an image; None if there is none. Mistakes go to the reader."""
    if value is None:
        return None
    fields = reader.fields(at, value, IMAGE)
    found: dict[str, Any] = {}
    for name in ("python", "pip_index"):
        if (given := fields.get(name)) is not None:
            found[name] = _text(reader, (*at, name), given, _version_hint(name, given))
    if (python := found.get("python")) and "/" not in python and not _MINOR.fullmatch(python):
        reader.wrong((*at, "python"), f"must be a minor version such as '3.11' or a full path, is {shown(python)}")
    for name in LISTS:
        if (given := fields.get(name)) is not None:
            found[name] = _texts(reader, (*at, name), given)
    if (given := fields.get("env")) is not None:
        entries = reader.mapping((*at, "env"), given, "a mapping of variables, such as {OMP_NUM_THREADS: 4}")
        found["env"] = {key: _text(reader, (*at, "env", key), one) for key, one in entries.items()}
    if "includes" in found:
        found["includes"] = [str(home / FilePath(one).expanduser()) for one in found["includes"]]
        for number, path in enumerate(found["includes"]):
            if not FilePath(path).exists():
                reader.wrong((*at, "includes", number), f"there is no file or directory {path}")
    return {name: one for name, one in found.items() if one} or None


def refused_image(provider: str, type: str) -> str:
    """Why machines of a provider take no image; empty if they do."""
    if not type or PROVIDER_TYPES[type].takes_images:
        return ""
    able = [name for name in PROVIDER_TYPES if PROVIDER_TYPES[name].takes_images]
    return f"machines of {provider} ({type}) take no image; those of {' and '.join(able)} do"


def _version_hint(name: str, given: object) -> str:
    return "; put it in quotes: 3.1 and 3.10 are one number" if name == "python" and isinstance(given, float) else ""


def _texts(reader: DataReader, at: Path, value: object) -> list[str]:
    return [_text(reader, (*at, number), one) for number, one in enumerate(reader.items(at, value, "texts"))]


def _text(reader: DataReader, at: Path, value: object, hint: str = "") -> str:
    """Text of any number of lines. What is there instead is not shown."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) or (isinstance(value, int | float) and not hint):
        return str(value)
    reader.wrong(at, f"must be text{hint}")
    return ""
