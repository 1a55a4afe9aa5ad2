"""Windlass as it is installed: from a wheel and from an sdist, with and without the server's packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import time
import urllib.request
import zipfile
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
WEB = ("fastapi", "starlette", "uvicorn", "prometheus_client")


def build(source: Path, into: Path, target: str) -> Path:
    pytest.importorskip("hatchling", reason="the build backend is missing: pip install hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [made] = into.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


def closure(names: list[str], extras: tuple[str, ...] = ()) -> dict[str, Distribution]:
    """Packages with all that they require, as installed here."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        with suppress(PackageNotFoundError):
            found[key] = distribution(name)
            waiting += [one.name for one in requirements(found[key].requires or [], ())]
    return found


def requirements(lines: list[str], extras: tuple[str, ...]) -> list[Requirement]:
    parsed = [Requirement(line) for line in lines]
    return [
        one
        for one in parsed
        if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in (*extras, ""))
    ]


def installed(wheel: Path, home: Path, *extras: str) -> Path:
    """A fresh environment with the wheel and what it requires, and nothing else; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    [site] = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    [metadata] = site.glob("windlass_autoscaler-*.dist-info/METADATA")
    lines = [line.partition(": ")[2] for line in metadata.read_text().splitlines() if line.startswith("Requires-Dist")]
    here = Path(sysconfig.get_paths()["purelib"])
    for one in closure([one.name for one in requirements(lines, extras)]).values():
        for file in one.files or ():
            top = file.parts[0]
            if top != ".." and top != "__pycache__" and not (site / top).exists() and (here / top).exists():
                (site / top).symlink_to(here / top)
    return home / "bin" / "python"


def run(python: Path, *words: str, cwd: Path, **more: object) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [python, *words], cwd=cwd, env=environment, capture_output=True, text=True, check=False, **more
    )


CONFIG = """
groups: {small: {resources: {cpu: 2}, max: 2}}
providers: {here: {type: local}}
workload: {type: queue}
server: {listen: "127.0.0.1:0"}
"""


def test_without_extras_there_is_no_web_server_and_none_is_loaded(wheel, tmp_path):
    python = installed(wheel, tmp_path / "plain")
    (tmp_path / "windlass.yaml").write_text(CONFIG)
    for name in WEB:
        assert run(python, "-c", f"import {name}", cwd=tmp_path).returncode == 1
    code = f"import sys, windlass, windlass.cli; print([name for name in {WEB!r} if name in sys.modules])"
    assert run(python, "-c", code, cwd=tmp_path).stdout.strip() == "[]"
    planned = run(python, "-m", "windlass", "plan", "windlass.yaml", cwd=tmp_path)
    assert (planned.returncode, planned.stderr) == (0, "")
    refused = run(python, "-m", "windlass", "run", "--serve", cwd=tmp_path)
    assert refused.returncode == 1
    assert "pip install" in refused.stderr
    assert "server" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_wheel_serves_the_dashboard(wheel, tmp_path):
    python = installed(wheel, tmp_path / "served", "server")
    (tmp_path / "windlass.yaml").write_text(CONFIG)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    process = subprocess.Popen(
        [python, "-m", "windlass", "run", "--serve"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        line = ""
        deadline = time.monotonic() + 60
        while "dashboard: " not in line and time.monotonic() < deadline and process.poll() is None:
            line = process.stderr.readline()
        found = re.search(r"dashboard: (\S+) ", line)
        assert found, line
        for path in ("/login", "/static/app.js", "/static/vendor/preact.js", "/static/app.css", "/healthz"):
            with urllib.request.urlopen(found[1] + path, timeout=30) as answer:
                assert answer.status == 200, path
                assert answer.read()
    finally:
        process.terminate()
        process.wait(30)
        assert process.stderr is not None
        process.stderr.close()


def test_a_wheel_from_the_sdist_is_the_wheel_from_the_clone(wheel, tmp_path):
    sdist = build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # Python 3.11.2, which Debian has, does not have it yet
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path / "source")
    [source] = (tmp_path / "source").iterdir()
    again = build(source, tmp_path / "again", "wheel")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        names = set(one.namelist())
        assert names == set(other.namelist())
    assert "windlass/server/static/index.html" in names
    assert "windlass/server/static/vendor/manifest.json" in names
    assert not any("node_modules" in name or "/tests/" in name for name in names)
