"""This module writes the bootstrap script of an image, which installs packages and files before a program starts.

An image becomes one idempotent script with named phases and a hash of its content; a machine that has run the script
with this hash skips it. The script has no secrets in it: variables and the package index, whose URL may have a
password, go into the environment of the script and of the program.

Packages are installed into a directory of the image that comes first on the program's path. A package that the
machine's Python already has in the right version is not installed again.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shlex
import sys
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

from windlass.providers.protocol import InvalidRequest

PHASE: Final = "::windlass:: "
_MINOR: Final = re.compile(r"3\.[0-9]{1,2}")
HERE: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The minor version of the controller's Python. Functions that are sent as code run on no other."""

_MISSING: Final = """\
import sys
from importlib import metadata
def has(requirement):
    name, _, version = requirement.partition("==")
    try:
        found = metadata.version(name)
    except Exception:
        return False
    return not version or found == version
print("\\n".join(one for one in sys.argv[1:] if not has(one)))
"""


@dataclass(frozen=True, slots=True)
class ImageSpec:
    """The content of an image.

    ``python``: a minor version or the full path of an interpreter. ``pip``: requirements. ``pip_index``: the URL of a
    package index. ``apt``: system packages. ``env``: variables. ``includes``: files and directories of this computer
    that programs can import. ``setup``: shell commands that run once, last. ``needs``: requirements of the program
    itself.
    """

    python: str = HERE
    pip: tuple[str, ...] = ()
    pip_index: str = ""
    apt: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    includes: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: Mapping[str, Any] | None, needs: Iterable[str] = ()) -> ImageSpec:
        """Read an image from a mapping with the keys of the configuration."""
        given = given or {}
        unknown = sorted(set(given) - set(cls.__slots__))
        if unknown:
            raise InvalidRequest(f"image: {unknown[0]!r} is not known; an image has {', '.join(cls.__slots__[:-1])}")
        python = str(given.get("python") or HERE)
        if not python.startswith("/") and not _MINOR.fullmatch(python):
            raise InvalidRequest(
                f"image: python must be a minor version such as 3.11 or a full path, is {python[:80]!r}"
            )
        lists = {
            name: tuple(str(one) for one in given.get(name) or ())
            for name in ("pip", "apt", "includes", "setup")
            if not isinstance(given.get(name), str) or _refuse_text(name, given[name])
        }
        return cls(
            python=python,
            pip_index=str(given.get("pip_index") or ""),
            env={str(name): str(value) for name, value in dict(given.get("env") or {}).items()},
            needs=tuple(needs),
            **lists,
        )

    @property
    def requirements(self) -> tuple[str, ...]:
        return (*self.needs, *self.pip)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The values that must not be shown."""
        hidden = [value for value in self.env.values() if len(value) >= 6]
        if "@" in self.pip_index:
            hidden += [self.pip_index, self.pip_index.split("@")[0].rpartition("//")[2]]
        return tuple(hidden)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the script."""
        return {**self.env, **({"PIP_INDEX_URL": self.pip_index} if self.pip_index else {})}

    def archives(self) -> dict[str, bytes]:
        """Return the archives that the script unpacks, by name."""
        found = {f"windlass-{_digest(_package())}.tar.gz": _package()}
        if self.includes:
            try:
                packed = _packed({Path(one).resolve().name: Path(one) for one in self.includes})
            except (OSError, RuntimeError, ValueError) as error:
                if isinstance(error, InvalidRequest):
                    raise
                raise InvalidRequest(f"image: includes cannot be read: {str(error)[:200]}") from None
            found[f"includes-{_digest(packed)}.tar.gz"] = packed
        return found

    @property
    def hash(self) -> str:
        """The hash of all commands and files of the image."""
        content = [
            [self.python, self.requirements, self.pip_index, self.apt, sorted(self.env.items()), self.setup],
            sorted(self.archives()),
            _body("", self, ()),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def script(self) -> str:
        return _body(self.hash, self, sorted(self.archives()))


def _refuse_text(name: str, value: str) -> bool:
    raise InvalidRequest(f"image: {name} must be a list, such as [{value!r}]")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


@cache
def _package() -> bytes:
    """Pack this package, so that a machine runs the same code as the controller."""
    return _packed({"windlass": Path(__file__).parents[2]}, suffixes=(".py", ".typed"))


def _packed(parts: Mapping[str, Path], suffixes: tuple[str, ...] = ()) -> bytes:
    """Pack files into a reproducible archive: the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=6, format=tarfile.PAX_FORMAT) as archive:
        for name, path in sorted(parts.items()):
            if not path.exists():
                raise InvalidRequest(f"image: there is no file or directory {path} to include")
            files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
            for file in files:
                if "__pycache__" in file.parts or (suffixes and not file.name.endswith(suffixes)):
                    continue
                inside = name if path.is_file() else f"{name}/{file.relative_to(path).as_posix()}"
                entry = tarfile.TarInfo(inside)
                data = file.read_bytes()
                entry.size, entry.mode = len(data), 0o700 if file.stat().st_mode & 0o100 else 0o600
                archive.addfile(entry, io.BytesIO(data))
    data = buffer.getvalue()
    return data[:4] + b"\0\0\0\0" + data[8:]  # without the time of the compression


def _body(stamp: str, spec: ImageSpec, archives: Iterable[str]) -> str:
    """Write the script. Status shows the text of the last ``phase`` line."""
    lines = [
        "#!/usr/bin/env bash",
        f"# Windlass image {stamp}: prepares a machine once, and can be run again.",
        "set -euo pipefail",
        "umask 077",
        'home="${WINDLASS_HOME:-$HOME/.windlass}"',
        f'image="$home/images/{stamp}"',
        f"phase() {{ printf '{PHASE}%s\\n' \"$1\"; }}",
        'if [ -f "$image/done" ]; then exit 0; fi',
        'mkdir -p "$image/site"',
        "",
        *_apt_lines(spec.apt),
        *_python_lines(spec.python),
        'path="$image/site/bin:$(dirname "$python")"',
        'phase "unpacking windlass"',
        *(f'tar -xzf "$home/incoming/{name}" -C "$image/site"' for name in archives),
        "",
        *_pip_lines(spec.requirements),
        *_setup_lines(spec.setup),
        'printf \'#!/bin/sh\\nexec %s "$@"\\n\' "$python" > "$image/python"',
        'chmod 700 "$image/python"',
        'printf %s "$path" > "$image/path"',
        'touch "$image/done"',
    ]
    return "\n".join(lines) + "\n"


def _apt_lines(packages: tuple[str, ...]) -> list[str]:
    if not packages:
        return []
    names = " ".join(map(shlex.quote, packages))
    return [
        f"phase {shlex.quote('installing system packages: ' + ' '.join(packages))}",
        'sudo=""; if [ "$(id -u)" != 0 ]; then sudo="sudo -n"; fi',
        "export DEBIAN_FRONTEND=noninteractive",
        "$sudo apt-get update -q",
        f"$sudo apt-get install -q -y --no-install-recommends {names}",
        "",
    ]


def _python_lines(python: str) -> list[str]:
    if "/" in python:
        wanted = shlex.quote(python)
        return [
            f"phase {shlex.quote(f'checking {python}')}",
            f"python={wanted}",
            'if ! "$python" -c pass; then echo "there is no Python at $python on this machine"; exit 3; fi',
            "",
        ]
    check = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{python}')"
    return [
        f'phase "checking Python {python}"',
        'python=""',
        f"for one in python{python} python3; do",
        '  found="$(command -v "$one" || true)"',
        f'  if [ -n "$found" ] && "$found" -c {shlex.quote(check)}; then python="$found"; break; fi',
        "done",
        'if [ -z "$python" ] && command -v uv > /dev/null; then',
        f'  uv python install {python}; python="$(uv python find {python})"',
        "fi",
        'if [ -z "$python" ]; then',
        f'  echo "this machine has no Python {python}; install it, or give the image another python"; exit 3',
        "fi",
        "",
    ]


def _pip_lines(requirements: tuple[str, ...]) -> list[str]:
    if not requirements:
        return []
    words = " ".join(map(shlex.quote, requirements))
    return [
        f'missing="$("$python" -c {shlex.quote(_MISSING)} {words})"',
        'if [ -n "$missing" ]; then',
        '  mapfile -t missing <<< "$missing"',
        '  into=(--target "$image/site" "${missing[@]}")',
        '  phase "installing ${missing[*]}"',
        '  if "$python" -m pip --version > /dev/null 2>&1; then',
        '    "$python" -m pip install --quiet --disable-pip-version-check --no-input --upgrade "${into[@]}"',
        "  elif command -v uv > /dev/null; then",
        '    if [ -n "${PIP_INDEX_URL:-}" ]; then export UV_INDEX_URL="$PIP_INDEX_URL"; fi',
        '    uv pip install --quiet --python "$python" "${into[@]}"',
        "  else",
        '    echo "$python has no pip, and there is no uv; install python3-pip, for example with apt: [python3-pip]"',
        "    exit 3",
        "  fi",
        "fi",
        "",
    ]


def _setup_lines(commands: tuple[str, ...]) -> list[str]:
    lines: list[str] = []
    for number, command in enumerate(commands, start=1):
        lines += [  # without --norc, bash under sshd reads /etc/bash.bashrc, which fails with -u
            f'phase "setup {number} of {len(commands)}"',
            f'(cd "$image" && PATH="$path:$PATH" bash --norc -euo pipefail -c {shlex.quote(command)})',
        ]
    return [*lines, ""] if lines else []
