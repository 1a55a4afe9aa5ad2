"""Image declares what nodes need in addition to Python: packages, files, environment variables.

On this computer ``env`` and ``includes`` are given to every node; ``pip`` is installed once into a directory of its own
that comes first on the nodes' path, and kept for the next pool with the same list. ``apt`` is refused: a pool does not
change the computer it runs on.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import BadPool

HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
INSTALL_LIMIT = 900
"""Seconds for pip."""
_INDEX = re.compile(r"((https?|file)://|/)\S+")
_EXAMPLES = {"python": HERE, "pip_index": "https://packages.example.org/simple"}


@dataclass(frozen=True)
class Image:
    """``python``: its minor version, or on machines elsewhere the full path of one. ``pip``: requirements.
    ``pip_index``: the URL of a package index. ``apt``: system packages. ``env``: variables. ``includes``: files and
    directories that nodes can import. ``setup``: shell commands that a machine runs once, after all others."""

    python: str | None = None
    pip: Sequence[str] = ()
    pip_index: str | None = field(default=None, repr=False)
    apt: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    includes: Sequence[str | os.PathLike[str]] = ()
    setup: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in ("python", "pip_index"):
            if (given := getattr(self, name)) is not None and not _is_text(given):
                raise BadPool(f"image: {name} must be text, such as {_EXAMPLES[name]!r}")
        if self.pip_index and not _INDEX.fullmatch(self.pip_index):
            raise BadPool(f"image: pip_index must be the URL of a package index, such as {_EXAMPLES['pip_index']}")
        if self.python is not None and "/" not in self.python and self.python != HERE:
            raise BadPool(
                f"image: python is {self.python!r}, and this program runs on {HERE}: functions that are sent from one "
                f"minor version do not run on another. Leave python out, or run the program on Python {self.python}"
            )
        for name in ("pip", "apt", "includes", "setup"):
            if isinstance(getattr(self, name), str):
                raise BadPool(f"image: {name} must be a list, such as {name}=[{getattr(self, name)!r}]")
            kinds = (str, os.PathLike) if name == "includes" else str
            given = getattr(self, name)
            if not isinstance(given, Sequence) or not all(isinstance(one, kinds) for one in given):
                raise BadPool(f"image: {name} must be a list of texts")
        if not isinstance(self.env, Mapping):
            raise BadPool("image: env must be a mapping of variables, such as env={'OMP_NUM_THREADS': '4'}")
        for name, value in self.env.items():
            if not (_is_text(name) and _is_text(value) and name and "=" not in name):
                raise BadPool(
                    f"image: env: {name!r} or its value is wrong; give names and values as text, without '=' in a name"
                )
        for path in self.includes:
            if not Path(path).exists():
                raise BadPool(f"image: there is no file or directory {path} to include")

    def for_machines(self) -> dict[str, Any]:
        """Return the image in the form of an order for remote machines."""
        return {
            "python": self.python or HERE,
            "pip": list(self.pip),
            "pip_index": self.pip_index or "",
            "apt": list(self.apt),
            "env": dict(self.env),
            "includes": [os.fspath(one) for one in self.includes],
            "setup": list(self.setup),
        }


def _is_text(given: object) -> bool:
    return isinstance(given, str) and "\0" not in given


def prepared_here(image: Image, directory: Path, cache: Path | None = None) -> dict[str, str]:
    """Prepare everything that nodes on this computer need, and return their environment variables.

    ``directory`` belongs to the pool; ``cache`` to all pools of this user.
    """
    if image.apt:
        raise BadPool(
            f"image: apt={list(image.apt)} is for machines that a pool starts from nothing; on this computer install "
            f"them yourself: sudo apt install {' '.join(image.apt)}"
        )
    if image.setup or "/" in (image.python or ""):
        raise BadPool("image: setup and the path of a Python are for machines elsewhere; run setup here yourself")
    path = []
    if image.includes:
        path.append(str(_included(image.includes, directory / "includes")))
    if image.pip:
        path.append(str(_installed(image.pip, cache or _cache(), image.pip_index)))
    # Functions of modules are sent by name: nodes on this computer find them where this program found them.
    path += [str(Path(one).absolute()) for one in sys.path]
    return {"PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), **image.env}


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass" / "images"


def _included(includes: Sequence[str | os.PathLike[str]], into: Path) -> Path:
    """Copy the files, so that later edits do not change a running pool."""
    into.mkdir(parents=True, exist_ok=True)
    for one in map(Path, includes):
        if one.is_dir():
            shutil.copytree(one, into / one.resolve().name, dirs_exist_ok=True)
        else:
            shutil.copy2(one, into / one.name)
    return into


def _installed(requirements: Sequence[str], cache: Path, index: str | None = None) -> Path:
    """Return a directory with the packages. It is made once for each list of requirements and each Python version."""
    names = "\n".join([sys.version, *sorted(requirements), *([index] if index else [])])
    home = cache / hashlib.sha256(names.encode()).hexdigest()[:16]
    if home.exists():
        return home
    cache.mkdir(parents=True, exist_ok=True)
    making = cache / f"{home.name}.{os.getpid()}"
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(making), *requirements]
    try:
        # Not as an argument, which other users can read: the URL may contain a password.
        environment = {**os.environ, **({"PIP_INDEX_URL": index} if index else {})}
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_LIMIT, env=environment
        )
        if done.returncode:
            words = (done.stderr or done.stdout).strip().splitlines()
            raise BadPool(f"image: pip could not install {', '.join(requirements)}: {' '.join(words[-3:])}")
        making.replace(home)  # atomic, also when two pools install at the same time
    except subprocess.TimeoutExpired:
        raise BadPool(f"image: pip took longer than {INSTALL_LIMIT} s to install {', '.join(requirements)}") from None
    except OSError:
        if not home.exists():
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return home
