"""Imports go down only, and the core stays pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CORE = ROOT / "src" / "windlass" / "core"

PURE = {
    *("__future__", "bisect", "collections", "contextlib", "dataclasses", "decimal", "difflib", "enum", "fractions"),
    *("functools", "heapq", "itertools", "math", "numpy", "operator", "re", "types", "typing"),
}
"""The imports that the core may have: no clock, randomness, files, network or threads."""


def imported(path: Path) -> set[str]:
    """Top-level names of the modules that a file imports, its own package left out."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
    return {name for name in found if not name.startswith("windlass.core")}


@pytest.mark.parametrize("path", sorted(CORE.glob("**/*.py")), ids=lambda path: path.stem)
def test_the_core_is_made_of_pure_parts_only(path):
    assert {name.partition(".")[0] for name in imported(path)} <= PURE


@pytest.mark.parametrize("path", sorted(CORE.glob("**/*.py")), ids=lambda path: path.stem)
def test_the_core_reads_no_file_and_prints_nothing(path):
    names = {
        node.id
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    assert not names & {"open", "print", "input", "exec", "eval", "__import__", "hash", "id"}


def test_imports_go_down_only():
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_holds_two_ideas():
    long = {
        str(path.relative_to(ROOT)): lines
        for path in (ROOT / "src").glob("**/*.py")
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 500
    }
    assert long == {}


def test_no_public_class_name_is_used_twice():
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "src").glob("**/*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_package_has_too_many_modules():
    counts: dict[str, int] = {}
    for path in (ROOT / "src").glob("**/*.py"):
        if path.stem != "__init__" and not path.stem.endswith("_pb2"):
            place = str(path.parent.relative_to(ROOT))
            counts[place] = counts.get(place, 0) + 1
    assert {place: count for place, count in counts.items() if count > 13} == {}


def test_what_is_called_on_a_provider_or_workload_belongs_to_a_protocol():
    found = []
    for path in sorted((ROOT / "src" / "windlass").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in ("getattr", "hasattr")
            ):
                target = ast.unparse(node.args[0])
                if target.rpartition(".")[2] in ("provider", "workload") and "bridge" not in path.name:
                    found.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    assert found == [], "declare it in a protocol of providers or workloads, and ask with isinstance"
