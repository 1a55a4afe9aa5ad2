"""The example of "Write a provider" keeps the contract, and works as a package of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from windlass.testing.provider_conformance import ProviderConformance

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "provider"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the example reads /proc: it runs on Linux only")


def module():
    spec = importlib.util.spec_from_file_location("windlass_rack", EXAMPLE / "windlass_rack.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


class TestRackProvider(ProviderConformance):
    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        self.file = str(tmp_path / "rack.db")

    def provider(self):
        return module().RackProvider(self.file)


@pytest.fixture
def installed(tmp_path):
    """A folder with the package as an installer would leave it: the module, and metadata with its entry point."""
    site = tmp_path / "site"
    info = site / "windlass_rack-0.1.0.dist-info"
    info.mkdir(parents=True)
    (site / "windlass_rack.py").write_bytes((EXAMPLE / "windlass_rack.py").read_bytes())
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: windlass-rack\nVersion: 0.1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text("[windlass.providers]\nrack = windlass_rack:RACK\n", encoding="utf-8")
    return site


def windlass(site: Path, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "windlass", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


CONFIG = """
groups: {small: {resources: {cpu: 1}, max: 4, scale_down: {idle_timeout: 1m}}}
providers: {mine: {type: rack, places: 8}}
workload: {type: queue}
"""


def test_a_provider_of_another_package_is_named_in_a_configuration_like_our_own(installed, tmp_path):
    (tmp_path / "windlass.yaml").write_text(CONFIG, encoding="utf-8")
    done = windlass(installed, "config", "check", "windlass.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    listed = json.loads(windlass(installed, "config", "reference", "--json", cwd=tmp_path).stdout)
    assert {"path": "providers.NAME.places", "type": "rack"}.items() <= next(
        one for one in listed["settings"] if one["path"] == "providers.NAME.places"
    ).items()


def test_a_wrong_setting_of_it_is_reported_with_its_path(installed, tmp_path):
    (tmp_path / "windlass.yaml").write_text(CONFIG.replace("places: 8", "places: none"), encoding="utf-8")
    done = windlass(installed, "config", "check", "windlass.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "providers.mine.places" in done.stdout + done.stderr


def test_a_package_that_cannot_be_loaded_is_named(installed, tmp_path):
    (installed / "windlass_rack.py").write_text("raise RuntimeError('half installed')\n", encoding="utf-8")
    (tmp_path / "windlass.yaml").write_text(CONFIG, encoding="utf-8")
    done = windlass(installed, "config", "check", "windlass.yaml", cwd=tmp_path)
    assert done.returncode == 1
    assert "windlass-rack cannot be loaded: half installed" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
