"""The front end as it is shipped: vendored files, no inline code, and nothing of it in a plain import."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

from windlass.control.record.journal_tables import new_slice_id
from windlass.core.model.reasons import WHY_DEMAND_WAITS, WHY_GROUP_PASSED_OVER, Code

ROOT = Path(__file__).resolve().parents[2]
STATIC = ROOT / "src" / "windlass" / "server" / "static"


def test_every_vendored_file_is_the_one_in_the_manifest():
    done = subprocess.run([sys.executable, ROOT / "tools" / "vendor.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_manifest_has_name_version_licence_and_checksum():
    manifest = json.loads((STATIC / "vendor" / "manifest.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in manifest["packages"]] == [
        "preact",
        "@preact/signals-core",
        "@preact/signals",
        "uplot",
    ]
    for package in manifest["packages"]:
        assert package["version"]
        assert package["license"] == "MIT"
        assert all(re.fullmatch(r"[0-9a-f]{64}", one["sha256"]) for one in package["files"])


def test_the_page_has_no_inline_script_or_style_and_no_address_elsewhere():
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert "<style" not in page
    assert "style=" not in page
    for path in STATIC.rglob("*"):
        if path.suffix in (".js", ".css", ".html") and path.parent.name != "vendor":
            text = path.read_text(encoding="utf-8")
            assert not re.search(r"https?://(?!www\.w3\.org)", text), path
            assert "innerHTML" not in text, path


def test_the_page_knows_every_reason_that_can_hold_up_a_job():
    known = re.search(r"const KINDS = \{(.*?)\};", (STATIC / "format.js").read_text(encoding="utf-8"), re.DOTALL)
    assert known is not None
    assert {str(code) for code in WHY_DEMAND_WAITS | WHY_GROUP_PASSED_OVER} <= set(re.findall(r'"([A-Z_]+)"', known[1]))
    listed = re.search(r"const CODES = \[(.*?)\];", (STATIC / "pages" / "decisions.js").read_text(encoding="utf-8"))
    assert listed is not None
    assert re.findall(r'"([A-Z_]+)"', listed[1]) == sorted(Code)


def test_a_change_to_paste_has_only_keys_of_the_configuration_file(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is missing")
    (tmp_path / "paste.mjs").write_bytes((STATIC / "paste.js").read_bytes())
    changes = [
        {"path": ["groups", "gpu", "frozen"], "value": False},
        {"path": ["groups", "gpu", "availability"], "value": {"state": "available"}},
        {"path": ["families", "fpga", "max"], "value": 3},
        {"path": ["cluster", "max_hourly_cost"], "value": 19.44},
    ]
    (tmp_path / "main.mjs").write_text(
        f'import {{ paste }} from "./paste.mjs"; process.stdout.write(paste({json.dumps(changes)}));'
    )
    done = subprocess.run(["node", tmp_path / "main.mjs"], capture_output=True, text=True, check=True)
    assert done.stdout == "families:\n  fpga:\n    max: 3\ncluster:\n  max_hourly_cost: 19.44"


def test_a_machine_is_counted_with_its_group_although_its_name_has_no_slash_and_is_cut(tmp_path):
    if shutil.which("node") is None:
        pytest.skip("node is missing")
    groups = ["cpu", "cpu-large", "fpga/spot", "fpga/on demand", "a-group-" * 12, "a-group-" * 12 + "b"]
    names: dict[str, str | None] = {new_slice_id(group, "7aa1beb193top8rl", 12): group for group in groups[:-1]}
    assert max(map(len, names)) >= 60
    names |= {"cpu": "cpu", "cpu-huge-7aa1beb193top8rl-3": None, "train-llm": None}
    (tmp_path / "format.mjs").write_bytes((STATIC / "format.js").read_bytes())
    (tmp_path / "main.mjs").write_text(
        'import { groupOf } from "./format.mjs";'
        f"process.stdout.write(JSON.stringify({json.dumps(list(names))}.map((one) => "
        f"groupOf(one, {json.dumps(groups)}) ?? null)));"
    )
    done = subprocess.run(["node", tmp_path / "main.mjs"], capture_output=True, text=True, check=True)
    assert dict(zip(names, json.loads(done.stdout), strict=True)) == names


def test_every_module_that_is_imported_is_there():
    for path in STATIC.rglob("*.js"):
        for found in re.findall(r'from\s*"(\.[^"]+)"', path.read_text(encoding="utf-8")):
            assert (path.parent / found).is_file(), f"{path}: {found}"


def test_the_types_of_the_api_are_those_of_its_document():
    tool = ROOT / "tools" / "api_types.py"
    done = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_javascript_has_no_mistake_of_types():
    checker = ROOT / "tools" / "typescript"
    if shutil.which("node") is None or not (checker / "node_modules" / "typescript").is_dir():
        pytest.skip("TypeScript is missing: install Node and npm, then run make typescript")
    done = subprocess.run([sys.executable, checker / "check.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_static_files_are_in_the_package():
    assert (files("windlass.server") / "static" / "index.html").is_file()
    assert (files("windlass.server") / "static" / "vendor" / "preact.js").is_file()


def test_a_plain_import_and_a_quick_command_load_no_web_server():
    code = (
        "import sys, windlass, windlass.cli\n"
        "from windlass.cli.commands.look import status\n"
        "print([name for name in ('fastapi', 'starlette', 'uvicorn', 'prometheus_client') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
