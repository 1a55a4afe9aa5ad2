"""The docs are true: code runs, links resolve, and every code and key is described."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shown import PAGES, ROOT, RUN, blocks, outputs
from windlass import plan, read_scenario
from windlass.config import read_config
from windlass.core.model.reasons import Code
from windlass.scenario import schema
from windlass.scenario.declarations import Form

README = (ROOT / "README.md").read_text(encoding="utf-8")
REFERENCE = ROOT / "docs" / "reference"
CORE = ROOT / "src" / "windlass" / "core"
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """A page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def sections(path: Path, level: int) -> dict[str, str]:
    """The text under each heading of one level."""
    _, *parts = re.split(rf"^{'#' * level} (?=\S)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {part.partition("\n")[0].strip().strip("`"): part.partition("\n")[2] for part in parts}


# -- code ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", RUN, ids=named)
def test_what_a_page_shows_is_what_is_printed(page):
    for one in outputs(page.read_text(encoding="utf-8")):
        assert one.same, f"{named(page)}:{one.line} shows\n{one.shown}\nbut this is printed\n{one.printed}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_yaml_block_is_a_scenario_or_a_configuration(page):
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.kind == "yaml" and re.search(r"^providers:", block.text, re.MULTILINE):
            config = read_config(block.text, path=page)
            assert config.settings.groups or config.workload.type == "kubernetes"
        elif block.kind == "yaml":
            assert read_scenario(block.text).groups


def test_the_readme_shows_a_scenario_a_plan_and_a_program():
    assert {"yaml", "console", "python", "text"} <= {block.kind for block in blocks(README)}


# -- links and names -----------------------------------------------------------------------------------------------


def anchors(path: Path) -> set[str]:
    """What a link into a page may point at, as GitHub makes it out of headings."""
    headings = re.findall(r"^#+ (.*)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(path: Path) -> Iterator[tuple[str, str]]:
    """(file, anchor) of every link that stays in the project."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(path)):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield file, anchor


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page):
    for file, anchor in links(page):
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{file} is not there"
        assert target.is_relative_to(ROOT)
        assert not anchor or anchor in anchors(target), f"{file} has no heading for #{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_file_that_is_named_is_there(page):
    homes = "src|tests|docs|tools|benchmarks|examples"
    for name in re.findall(rf"`((?:{homes})/[\w./-]*)(?:::\w+)?`", prose(page)):
        assert (ROOT / name).exists(), f"{name} is not there"


def test_every_page_can_be_reached_from_the_readme():
    reached, border = set(), [ROOT / "README.md"]
    while border:
        page = border.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            border += [(page.parent / file).resolve() for file, _ in links(page) if file]
    assert [named(page) for page in PAGES if page not in reached] == []


def promises() -> list[list[str]]:
    """The rows of the README's table of promises."""
    table = re.split(r"^## ", README.split("## What it promises")[1], flags=re.MULTILINE)[0]
    return [row.strip("| \n").split(" | ") for row in table.splitlines() if row.startswith("| ")][1:]


def test_every_promise_names_a_test_that_exists():
    assert len(promises()) >= 6
    for promise, proof in promises():
        proofs = re.findall(r"`(tests/[\w./]+\.py)(?:::(\w+))?`", proof)
        commands = re.findall(r"`make (\w+)`", proof)
        assert proofs or commands, promise
        for file, name in proofs:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert not name or name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name
        for target in commands:
            assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE), target


def test_every_package_has_its_place_in_the_tree_of_the_architecture_page():
    words = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    packages = {path.parent for path in (ROOT / "src" / "windlass").glob("*/__init__.py")}
    packages |= {path.parent for name in ("core", "control") for path in packages_of(name)}
    assert {path.name for path in packages if f"{path.name}/" not in words} == set()


def test_the_core_page_names_every_part_of_the_core():
    words = (CORE / "__init__.py").read_text(encoding="utf-8")
    parts = {path.stem for path in CORE.glob("*.py")} | {path.parent.name for path in packages_of("core")}
    assert {name for name in parts - {"__init__"} if f"`{name}`" not in words} == set()


def packages_of(name: str) -> Iterator[Path]:
    return (ROOT / "src" / "windlass" / name).glob("*/__init__.py")


# -- the reference -------------------------------------------------------------------------------------------------


def test_the_reference_is_what_the_code_says():
    command = [sys.executable, str(ROOT / "tools" / "reference.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("code", Code)
def test_every_code_has_its_meaning_and_what_to_do_next(code):
    text = sections(REFERENCE / "reasons.md", 3)[code]
    meaning, _, next_step = text.partition("**What to do next:**")
    assert len(meaning.partition("**What it means:**")[2].split()) > 4
    assert len(next_step.split()) > 2


@pytest.mark.parametrize("code", Code)
def test_a_code_that_no_plan_gives_is_marked_so(code):
    used = any(
        re.search(rf"\bCode\.{code}\b", path.read_text(encoding="utf-8"))
        for path in CORE.glob("**/*.py")
        if path.stem not in ("reasons", "plan_laws")
    )
    text = sections(REFERENCE / "reasons.md", 3)[code]
    assert used != ("a plan does not" in text or "is not in use" in text)


FORMS = {name: form for name, form in vars(schema).items() if isinstance(form, Form)}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_key_of_a_scenario_is_in_its_reference(form):
    tables = sections(REFERENCE / "scenario.md", 3).values()
    home = next(text for text in tables if text.strip().startswith(f"Keys of {form.noun}.\n"))
    assert {key for key in form.known if f"| `{key}` |" not in home} == set()


def keys_of(value: Any, at: str = "") -> Iterator[str]:
    """Names in an answer, without those that the user gave (groups, resources)."""
    if isinstance(value, list):
        for one in value:
            yield from keys_of(one, at)
    elif isinstance(value, dict):
        for key, one in value.items():
            given = at in ("launch", "groups", "passed_over", "demands", "value")
            if not given:
                yield key
            if key != "value":
                yield from keys_of(one, "" if given else key)


@pytest.mark.parametrize("path", EXAMPLES, ids=named)
def test_every_key_of_an_answer_is_in_its_reference(path):
    answer = json.loads(json.dumps(plan(read_scenario(path.read_text(encoding="utf-8"))).to_dict()))
    page = (REFERENCE / "answer.md").read_text(encoding="utf-8")
    assert {key for key in keys_of(answer) if f"`{key}`" not in page} == set()


# -- words ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_pages_have_no_machine_paths_and_no_hosts_of_registries(page):
    text = page.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.])/(?:work|tmp|home|root|Users)/|pypi\.org|ghcr\.io|docker\.io", text)
