"""Writes the reference pages of the docs from the code, or checks that they are what the code says.

    python tools/reference.py          check: exit status 1 and the name of each page that differs
    python tools/reference.py --write  write them

The pages are docs/reference/*.md. They repeat names, defaults and limits of the code, which must not be copied by hand.
Texts that are not in the code (the meaning of a reason code) are in reference_texts.py.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import wrap

import click
import reference_commands as commands
import reference_texts as texts
from builder_stubs import stub
from reference_api import api_page

from windlass.cli import SECTIONS
from windlass.cli import windlass as windlass_command
from windlass.config.reference import pages as config_pages
from windlass.config.registry import PROVIDERS, WORKLOADS, Types
from windlass.core.model import quantities, reasons
from windlass.core.model.lifecycle import TABLE, TRANSITIONS
from windlass.scenario import parser as text
from windlass.scenario import schema as scenario

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / "docs" / "reference"
STUB = ROOT / "src" / "windlass" / "builders.pyi"
CONFIGURATION = ROOT / "examples" / "config" / "windlass.yaml"
NOTE = "<!-- Written by tools/reference.py from the code; change it there, then run: make docs-write -->"


def main() -> int:
    write = sys.argv[1:] == ["--write"]
    wrong = []
    for name, lines in pages():
        path = HOME / name
        page = "\n".join([NOTE, "", *lines]).rstrip() + "\n"
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(page, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != page:
            wrong.append(path)
    text = "\n".join(stub()) + "\n"
    if write:
        STUB.write_text(text, encoding="utf-8")
    elif STUB.read_text(encoding="utf-8") != text:
        wrong.append(STUB)
    for path in wrong:
        print(f"{path.relative_to(ROOT)} is not what the code says; run: make docs-write")
    return 1 if wrong else 0


def pages() -> Iterator[tuple[str, Iterable[str]]]:
    yield "answer.md", _answer()
    yield "api.md", api_page()
    yield "command-line.md", _command_line()
    yield "configuration.md", _configuration()
    yield "lifecycle.md", _lifecycle()
    yield "reasons.md", _reasons()
    yield "scenario.md", _scenario()


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"


def _command_line() -> Iterator[str]:
    root = click.Context(windlass_command, info_name="windlass", **windlass_command.context_settings)
    yield "# Command line"
    yield ""
    yield "Every command has `--help`. A command that prints data also has `--json`, for programs. All commands exit"
    yield "with status 64 if they are called in a wrong way. The settings of a cluster are in a file:"
    yield "[settings of a configuration](configuration.md)."
    for (title, _), section in SECTIONS.items():
        yield ""
        yield f"**{title}**"
        yield ""
        yield from _table(
            ("command", "what it does"),
            ((_linked(name, _commands_of(root, name)), summary) for name, summary in section.items()),
        )
    for name in windlass_command.list_commands(root):
        for command, parent, path in _commands_of(root, name):
            yield from _help(command, parent, path)
        yield from _after_help(name)


def _commands_of(root: click.Context, name: str) -> list[tuple[click.Command, click.Context, str]]:
    """Return the command of a name, or its subcommands: each with its context and the words that a user types."""
    command = windlass_command.get_command(root, name)
    assert command is not None
    if not isinstance(command, click.Group):
        return [(command, root, name)]
    parent = click.Context(command, info_name=name, parent=root)
    found = [(one, parent, f"{name} {inner}") for inner, one in command.commands.items()]
    unnamed = command.get_command(parent, "trace")  # `windlass simulate CONFIG --trace FILE` has no word for it
    return found if unnamed is None else [(unnamed, root, name), *found]


def _linked(name: str, commands: list[tuple[click.Command, click.Context, str]]) -> str:
    paths = [path for _, _, path in commands]
    return ", ".join(f"[`{path}`](#windlass-{path.replace(' ', '-')})" for path in paths) or f"`{name}`"


def _after_help(name: str) -> Iterator[str]:
    """What a command's own help does not say."""
    if name == "plan":
        yield ""
        yield "The answer is described in [The answer of `windlass plan --json`](answer.md), the file in"
        yield "[Keys of a scenario file](scenario.md)."
    elif name == "config":
        yield ""
        yield "The file is described in [Settings of a configuration](configuration.md)."
    for schema, keys in commands.SCHEMAS.get(name, {}).items():
        yield ""
        yield f"With `--json`, `{schema}`. Keys may be added to it; none is taken away or changes its meaning."
        yield ""
        yield from _table(("key", "meaning"), ((f"`{key}`", meaning) for key, meaning in keys.items()))


def _help(command: click.Command, parent: click.Context, path: str) -> Iterator[str]:
    with click.Context(command, info_name=path.split()[-1], parent=parent, terminal_width=100) as context:
        yield ""
        yield f"## `windlass {path}`"
        yield ""
        yield "```text"
        yield command.get_help(context)
        yield "```"


def _configuration() -> Iterator[str]:
    yield "# Settings of a configuration"
    yield ""
    yield "A controller reads all its settings from one file, `windlass.yaml` (YAML or JSON). Unknown keys are"
    yield "mistakes. `windlass config check windlass.yaml` reports all mistakes at once, each with its line and path."
    yield "`windlass config reference` prints the list of this page."
    yield ""
    yield "`windlass run windlass.yaml` runs it. A running controller reads the file again when it changes."
    yield ""
    yield from _table(
        ("section", "what it sets"),
        (
            ("[`cluster`](#cluster), [`families`](#familiesname)", "limits over all groups, or over some of them"),
            (
                "[`groups`](#groupsname)",
                (
                    "the kinds of machine: size, limits, price, [release](#groupsnamescale_down), "
                    "[offers](#groupsnameoffers), [image](#groupsnameimage)"
                ),
            ),
            ("`providers`", "where machines come from: " + _types("providersname", PROVIDERS)),
            ("`workload`", "the system that runs the work: " + _types("workload", WORKLOADS)),
            ("[`journal`](#journal), [`leader`](#leader)", "the record of every decision; several controllers"),
            ("[`policy`](#policy)", "intervals, time limits, [back-off](#policybackoff)"),
            ("[`server`](#server), [`notify`](#notify)", "the dashboard, the HTTP API, webhooks"),
            ("[importing](#importing)", "configurations from files of other autoscalers"),
        ),
    )
    yield ""
    yield "```yaml"
    yield CONFIGURATION.read_text(encoding="utf-8").strip()
    yield "```"
    yield ""
    yield "## Values"
    yield ""
    yield "- **Spans of time** are seconds, or text such as `45s`, `10m`, `6h`, `30d`."
    yield "- **Paths** that are not absolute are relative to the configuration file."
    yield "- `cluster` and `groups` are written as in [a scenario file](scenario.md), without `availability`, which the"
    yield "  controller observes. Spans of time in them may be written as above, too."
    yield "- A key whose value is null is the same as a missing key."
    yield ""
    yield "## Settings"
    for page in config_pages():
        title = f"`{page.where}`" if page.where else "top level"
        yield ""
        yield f"### {title}" + f" of type `{page.type}`" * bool(page.type)
        yield ""
        yield from _table(
            ("setting", "default", "unit", "meaning"),
            ((f"`{name}`", key.default, key.unit, key.meaning) for name, key in page.form.keys.items()),
        )
    yield ""
    yield "## Importing"
    yield ""
    yield from IMPORTING.strip().splitlines()


def _types(section: str, types: Types) -> str:
    return ", ".join(f"[`{name}`](#{section}-of-type-{name})" for name in types.known)


def _lifecycle() -> Iterator[str]:
    yield "# The life of a slice"
    yield ""
    yield "The state of a slice decides whether it takes demand, is in flight, and costs money. The controller changes"
    yield "states along the transitions below. A state may have a time limit, which is a setting under `policy`; after"
    yield "it, the slice goes to the state in the column *then*."
    yield ""
    yield "A slice never goes from `ready` to `terminating`: if work may run on it, it is cordoned and drained first."
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
    yield "Every decision has a code and a sentence with the numbers. A code never changes its meaning. A slice that is"
    yield "called back (`uncordon`, `unmark`) has a code of *why a slice starts* or *why a slice stays*."
    yield ""
    yield "## By question"
    yield ""
    yield from _table(
        ("question", "codes"),
        (
            (name, ", ".join(f"[`{code}`](#{code.lower()})" for code in reasons.Code if code in codes))
            for name, codes in questions.items()
        ),
    )
    yield ""
    yield "A demand has a reason for each group. Its overall reason is the one that is easiest to remove, the first of:"
    yield from wrap(", ".join(f"`{code}`" for code in reasons.NEAREST) + ".", 120)
    yield "(`TOO_SMALL` is then reported as `NO_SHAPE_FITS`.)"
    yield ""
    yield "## By name"
    for code in sorted(reasons.Code):
        meaning, next_step = texts.REASONS[code]
        yield ""
        yield f"### {code}"
        yield ""
        yield "Answers: " + ", ".join(name.lower() for name, codes in questions.items() if code in codes) + "."
        if code in texts.RESERVED:
            yield texts.NOT_IN_USE
        elif code in texts.OF_CONTROLLER:
            yield texts.BY_CONTROLLER
        yield ""
        yield from wrap(f"**What it means:** {meaning}", 120)
        yield ""
        yield from wrap(f"**What to do next:** {next_step}", 120)


def _scenario() -> Iterator[str]:
    yield "# Keys of a scenario file"
    yield ""
    yield "A scenario is one snapshot, as YAML or JSON. Unknown keys are mistakes. A key whose value is null is the"
    yield "same as a missing key. All mistakes are reported at once, each with its path. This file has nearly every"
    yield "key:"
    yield ""
    yield "```yaml"
    yield EXAMPLE.strip()
    yield "```"
    yield ""
    yield "## Values"
    yield ""
    yield from VALUES.strip().splitlines()
    yield ""
    yield "## Keys"
    forms = (
        ("top level", scenario.SCENARIO),
        ("`cluster`", scenario.CLUSTER),
        ("`families.NAME`", scenario.FAMILY),
        ("`groups.NAME`", scenario.GROUP),
        ("`groups.NAME.taints[]`", scenario.TAINT),
        ("`groups.NAME.scale_down`", scenario.SCALE_DOWN),
        ("`groups.NAME.scale_down.low_utilization`", scenario.LOW_UTILIZATION),
        ("`groups.NAME.scale_down.utilization`", scenario.UTILIZATION),
        ("`groups.NAME.availability`", scenario.AVAILABILITY),
        ("`slices[]`", scenario.SLICE),
        ("`slices[].nodes[]`", scenario.NODE),
        ("`demands[]`", scenario.DEMAND),
        ("`requests[]`", scenario.REQUEST),
        ("`demands[].bundles[]`", scenario.BUNDLE),
        ("`demands[].tolerates[]`", scenario.TOLERATION),
        ("`demands[].apart[]`", scenario.APART),
        ("`demands[].spread[]`", scenario.SPREAD),
        ("`demands[].together[]`", scenario.TOGETHER),
    )
    for where, form in forms:
        yield ""
        yield f"### {where}"
        yield ""
        yield f"Keys of {form.noun}."
        yield ""
        yield from _table(
            ("key", "default", "meaning"), ((f"`{name}`", key.default, key.meaning) for name, key in form.keys.items())
        )
    yield ""
    yield "## Bounds"
    yield ""
    yield "Larger numbers are refused as typing errors. Amounts, counts and prices are never negative."
    yield ""
    yield from _table(
        ("what", "at most"),
        (
            ("`hosts`", f"{scenario.MOST_HOSTS:,}"),
            ("devices (`gpu`, `tpu`) of a node", f"{scenario.MOST_DEVICES:,}"),
            ("`max`, `min`, `spare`, `keep`, `spare_nodes`", f"{scenario.MOST_SLICES:,}"),
            ("`count`, `tasks`", f"{scenario.MOST_TASKS:,}"),
            ("tasks of one gang", f"{scenario.MOST_GANG:,}"),
            ("`effort`", f"{scenario.MOST_EFFORT:,}"),
            ("`own_machine_premium`", f"{scenario.MOST_APART:,}"),
            ("`rank`, `max_nodes`, `max_launching`", f"{scenario.MOST:,}"),
            ("`priority`, up and down", f"{scenario.MOST * 10:,}"),
            ("an amount, in thousandths or bytes", f"2^{quantities.LARGEST.bit_length() - 1}"),
            ("levels of nesting", f"{text.DEEPEST:,}"),
            ("entries that YAML aliases add", f"{text.MOST_BY_ALIASES:,}"),
        ),
    )


IMPORTING = """
`windlass config import FILE` converts a Ray cluster file, a RayCluster of KubeRay, or an Iris configuration with
`scale_groups`, and prints a configuration. Settings that could not be imported are listed in comments and on standard
error. A provider or workload that this version does not have is replaced by a simulated one, so that the result can be
checked and planned.

| Ray | here |
|---|---|
| `available_node_types.NAME` | `groups.NAME`, one host per slice |
| `resources` `CPU`, `GPU`, `TPU` | `resources` `cpu`, `gpu`, `tpu`; all other names stay |
| `min_workers`, `max_workers` of a type | `min`, `max` |
| `max_workers` | `cluster.max_nodes`; neither counts the head |
| `idle_timeout_minutes`, `idle_timeout_s` of a type | `scale_down.idle_timeout` |
| `upscaling_speed` | `upscaling_speed` of every group, and `cluster.max_concurrent_launches` as in Ray |
| `head_node_type` | not bought: start the head as before. A group only if its `max_workers` is above 0 |
| `node_config` | `settings`; spot machines are `preemptible` |
| `labels` | `labels` |

| Iris | here |
|---|---|
| `scale_groups.NAME` | `groups.NAME`, or `groups.NAME-ZONE` for each of several zones |
| `tpu_pools.NAME` | a group for each size and zone |
| `resources` with `ram`, `device_type`, `device_count` | `resources` with `memory`, `gpu`, `tpu`; `16GB` is `16Gi` |
| `num_vms`, `slice_size` | `hosts` |
| `min_slices`, `max_slices`, `buffer_slices` | `min`, `max`, `spare` |
| `priority` | `rank`, with `cluster.choose: rank` |
| `zone`, `device_variant`, `capacity_type`, `worker.attributes` | `labels` |
| `capacity_type: preemptible`, `preemptible` | `preemptible` |
| `scale_down_delay` | `scale_down.idle_timeout` |
| `evaluation_interval` | `policy.evaluation_interval.max` |
| `slice_template` | `settings` |
"""

EXAMPLE = """
now: 1000
cluster: {max_nodes: 50, max_hourly_cost: 90.0, max_launching: 100, choose: best-fit, effort: 1}
groups:
  gpu-a:
    resources: {cpu: 32, memory: 128Gi, gpu: 4}
    labels: {zone: us-1a, gpu-model: A100}
    taints: [{key: gpu, value: "yes", effect: NoSchedule}]
    hosts: 1
    min: 0
    max: 8
    spare: 0
    rank: 100
    price: 12.0
    preemptible: false
    max_launching: 4
    scale_down:
      idle_timeout: 60
      low_utilization: {below: 0.30, keep: 1}
      utilization: {percent: 80, delay: 600, spare_nodes: 0, resource: gpu}
      consolidate: true
    availability: {state: backoff, until: 1200, why: 3 launches refused}
    protected: [s-0]
    boot_seconds: 300
    frozen: false
slices:
  - id: s-1
    group: gpu-a
    state: ready
    since: 800
    marked_until: 1300
    nodes:
      - {id: n-1, used: {gpu: 2}, tasks: 2, labels: {rack: r7}, healthy: true}
demands:
  - id: train
    needs: {cpu: 4, gpu: 1}
    count: 3
    where: ["zone in (us-1a, us-1b)", "gpu-model == A100"]
    prefer: ["preemptible == true"]
    tolerates: [{key: gpu, operator: Exists}]
    priority: 0
    since: 950
  - id: pg-7
    gang: spread
    deadline: 1600
    bundles:
      - {needs: {cpu: 1}, count: 2}
      - {needs: {gpu: 1}, count: 1}
    tolerates: [{key: gpu, operator: Equal, value: "yes", effect: NoSchedule}]
requests:
  - {id: keep-8-cpus, needs: {cpu: 1}, count: 8}
"""

VALUES = """
- **Amounts** are numbers, or text with `m` (thousandths), `k M G T` (powers of 1000) or `Ki Mi Gi Ti` (powers of
  1024). They are stored as whole numbers: thousandths, or bytes for `memory` and `disk`. Amounts below the unit are
  rounded, but never to zero.
- **Accelerators** (`gpu`, `tpu`) are devices. A need below 1 is a share of one device. From 1 on it is a whole number
  of whole free devices. Devices in `used` are assumed to be packed onto as few devices as possible.
- **Conditions** are `key == v`, `key != v`, `key in (a, b)`, `key not in (a, b)`, `key exists`, `key absent`,
  `key > n`, `key >= n`, `key < n`, `key <= n`. A missing label passes `!=`, `not in` and `absent` only. A value may
  be in quotes.
- **Labels** are text. `true`, `false` and numbers are read as text.
- **Ids and names** are visible text in one line, without blanks at either end. Whole numbers are read as text. They are
  compared and sorted as text.
- **Times** are seconds, or text such as `45s`, `10m`, `6h` or `30d`.
- **Money** is dollars per hour, stored in billionths.
- **Whole numbers** may be written as `3.0`, not as `"3"` or `true`.
"""


def _answer() -> Iterator[str]:
    yield "# The answer of `windlass plan --json`"
    yield ""
    yield "The same as `plan.to_dict()` in Python. Every slice of the scenario is in exactly one of `cancel`, `drain`,"
    yield "`uncordon`, `mark`, `unmark` and `keep`. Every task of every demand is exactly once in `placements` or"
    yield "`waiting`. Lists are sorted by id."
    for title, keys in texts.ANSWER:
        yield ""
        yield f"## {title}"
        yield ""
        yield from _table(("key", "is", "meaning"), ((f"`{key}`", *words) for key, words in keys.items()))


if __name__ == "__main__":
    sys.exit(main())
