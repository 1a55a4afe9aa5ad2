"""Writes the reference pages of the docs from the code, or checks that they are what the code says.

    python tools/reference.py          check: exit status 1 and the name of each page that differs
    python tools/reference.py --write  write them

The pages are docs/reference/*.md: the words and limits that stand in the code once and must not be kept twice by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from windlass.cli.plan import command as plan_command
from windlass.core import reasons
from windlass.core.lifecycle import TABLE, TRANSITIONS
from windlass.scenario import forms as scenario

HOME = Path(__file__).resolve().parent.parent / "docs" / "reference"
NOTE = "<!-- Written by tools/reference.py from the code; change it there, then run: make docs-write -->"


def main() -> int:
    write = sys.argv[1:] == ["--write"]
    wrong = []
    for name, lines in pages():
        path = HOME / name
        text = "\n".join([NOTE, "", *lines]).rstrip() + "\n"
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            wrong.append(path)
    for path in wrong:
        print(f"docs/reference/{path.name} is not what the code says; run: make docs-write")
    return 1 if wrong else 0


def pages() -> Iterator[tuple[str, Iterable[str]]]:
    yield "command-line.md", _command_line()
    yield "lifecycle.md", _lifecycle()
    yield "reasons.md", _reasons()
    yield "scenario.md", _scenario()


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _command_line() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "```text"
    with click.Context(plan_command, info_name="windlass plan", terminal_width=100) as context:
        yield plan_command.get_help(context)
    yield "```"


def _lifecycle() -> Iterator[str]:
    yield "# The life of a slice"
    yield ""
    yield from _table(
        ("state", "meaning", "takes demand", "in flight", "costs money", "limit", "then"),
        (
            (
                f"`{state}`",
                facts.meaning,
                facts.takes_demand,
                "yes" if facts.in_flight else "no",
                "yes" if facts.costs else "no",
                "" if facts.limit is None else f"{facts.limit:g} s",
                f"`{facts.after_limit}`" if facts.after_limit else "",
            )
            for state, facts in TABLE.items()
        ),
    )
    yield ""
    yield "## Legal transitions"
    yield ""
    yield from _table(
        ("from", "to", "cause"), ((f"`{edge.source}`", f"`{edge.target}`", edge.cause) for edge in TRANSITIONS)
    )


def _reasons() -> Iterator[str]:
    questions = {
        "Why a demand waits": reasons.WHY_DEMAND_WAITS,
        "Why a group was passed over": reasons.WHY_GROUP_PASSED_OVER,
        "Why a slice starts": reasons.WHY_SLICE_STARTS,
        "Why a slice stops": reasons.WHY_SLICE_STOPS,
        "Why a slice stays": reasons.WHY_SLICE_STAYS,
    }
    yield "# Reason codes"
    yield ""
    yield "A code never changes its meaning. Each comes with a sentence that has the numbers in it."
    yield ""
    yield from _table(
        ("question", "codes"),
        ((name, ", ".join(f"`{code}`" for code in reasons.Code if code in codes)) for name, codes in questions.items()),
    )


def _scenario() -> Iterator[str]:
    yield "# Keys of a scenario file"
    yield ""
    yield "Unknown keys are mistakes. A key whose value is null is the same as a key that is not there."
    yield ""
    forms = {
        "top": scenario.SCENARIO,
        "`cluster`": scenario.CLUSTER,
        "`groups.NAME`": scenario.GROUP,
        "`groups.NAME.taints[]`": scenario.TAINT,
        "`groups.NAME.scale_down`": scenario.SCALE_DOWN,
        "`groups.NAME.scale_down.low_utilization`": scenario.LOW_UTILIZATION,
        "`groups.NAME.scale_down.utilization`": scenario.UTILIZATION,
        "`groups.NAME.availability`": scenario.AVAILABILITY,
        "`slices[]`": scenario.SLICE,
        "`slices[].nodes[]`": scenario.NODE,
        "`demands[]`, `requests[]`": scenario.DEMAND,
        "`demands[].bundles[]`": scenario.BUNDLE,
        "`demands[].tolerates[]`": scenario.TOLERATION,
    }
    yield from _table(
        ("where", "required", "optional"),
        (
            (
                where,
                ", ".join(f"`{key}`" for key in form.required),
                ", ".join(f"`{key}`" for key in form.known if key not in form.required),
            )
            for where, form in forms.items()
        ),
    )
    yield ""
    yield "## Bounds"
    yield ""
    yield from _table(
        ("what", "at most"),
        (
            ("`hosts`", f"{scenario.MOST_HOSTS:,}"),
            ("devices (`gpu`, `tpu`) of a node", f"{scenario.MOST_DEVICES:,}"),
            ("`max`, `min`, `spare`", f"{scenario.MOST_SLICES:,}"),
            ("`count`, `tasks`", f"{scenario.MOST_TASKS:,}"),
            ("`effort`", f"{scenario.MOST_EFFORT:,}"),
            ("`rank`, `max_nodes`, `max_launching`", f"{scenario.MOST:,}"),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
