"""What nodes on this computer have besides Python."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

import windlass as wl
from windlass.pool.environment import prepared_here
from windlass.pool.errors import BadPool


def wheel(directory: Path) -> Path:
    """A package that is nowhere else, as pip takes it without a network."""
    file = directory / "onlyhere-1.0-py3-none-any.whl"
    about = "onlyhere-1.0.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("onlyhere.py", "ANSWER = 42\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: onlyhere\nVersion: 1.0\n")
        archive.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{about}/RECORD", "")
    return file


def test_packages_are_installed_once_and_kept(tmp_path):
    image, cache = wl.Image(pip=["--no-index", str(wheel(tmp_path))]), tmp_path / "cache"
    first = prepared_here(image, tmp_path / "pool", cache)["PYTHONPATH"].split(os.pathsep)[0]
    assert Path(first, "onlyhere.py").read_text() == "ANSWER = 42\n"
    (tmp_path / "onlyhere-1.0-py3-none-any.whl").unlink()
    again = prepared_here(image, tmp_path / "pool", cache)["PYTHONPATH"].split(os.pathsep)[0]
    assert again == first, "nothing had to be installed"


def test_the_output_of_pip_is_shown(tmp_path):
    image = wl.Image(pip=["--no-index", "no-such-package-anywhere"])
    with pytest.raises(BadPool, match=r"pip could not install .*no-such-package-anywhere"):
        prepared_here(image, tmp_path, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == [], "nothing half done is left"


@pytest.mark.slow
def test_nodes_have_the_environment_the_files_and_the_packages(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    own = tmp_path / "own_package"
    own.mkdir()
    (own / "__init__.py").write_text("WORD = 'included'\n")
    (tmp_path / "own_module.py").write_text("WORD = 'too'\n")

    @wl.compute
    def output():
        import onlyhere  # type: ignore[import-not-found]
        import own_module  # type: ignore[import-not-found]
        import own_package  # type: ignore[import-not-found]

        return os.environ["GREETING"], own_package.WORD, own_module.WORD, onlyhere.ANSWER

    image = wl.Image(
        pip=["--no-index", str(wheel(tmp_path))],
        env={"GREETING": "hello"},
        includes=[own, tmp_path / "own_module.py"],
    )
    with wl.ComputePool(wl.Local(), 1, image=image, console=False) as pool:
        assert output() >> pool == ("hello", "included", "too", 42)
