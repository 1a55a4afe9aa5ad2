"""Shared by tests of pools on machines elsewhere: a small package in an index of its own."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

PACKAGE = "windlasstoy"


def package_index(directory: Path) -> str:
    """The URL of a package index with one small package that no machine has."""
    home = directory / "simple" / PACKAGE
    home.mkdir(parents=True)
    wheel = home / f"{PACKAGE}-1.0-py3-none-any.whl"
    files = {
        f"{PACKAGE}.py": "def triple(n):\n    return 3 * n\n",
        f"{PACKAGE}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 1.0\n",
        f"{PACKAGE}-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = f"{PACKAGE}-1.0.dist-info/RECORD"
    lines = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    files[record] = "\n".join([*lines, f"{record},,"]) + "\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    (home / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return (directory / "simple").as_uri()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
