"""Writes the two pages of results from the stored measurements. Edit this module, not the pages.

``docs/benchmarks.md`` has the conclusions, one row for each benchmark; ``docs/benchmark-tables.md`` has how each one is
measured, all tables and all targets.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from .plot import has_picture
from .summary import conclusion
from .table import as_markdown, of_checks

HEAD = """\
# Benchmarks

`python benchmarks/run.py` writes this page from its measurements (`benchmarks/results/*.json`); do not edit it. Each
question links to [its tables](benchmark-tables.md), which also say how, when and where it was measured. Unless they
say otherwise, times are CPU seconds of one thread, and other programs were measured in the same run.
"""
COMMANDS = """\
## Run them yourself

```
make bench                              # everything except the largest inputs for Ray
make bench BENCH_ARGS=--quick           # a few inputs of each, about a minute
make bench BENCH_ARGS=--full            # everything
make bench BENCH_ARGS='--only growth'   # one of growth, karpenter_mix, karpenter_pods, cost_bound, against_ray, loop,
                                        # simulating, traces, parts, spot, pool, pool_crashes, pool_data, remote,
                                        # dashboard, kubernetes
make bench-ray                          # Ray's own autoscaler and Windlass on a real Ray cluster
```
"""
TABLES_HEAD = """\
# Benchmark tables

`python benchmarks/run.py` writes this page from its measurements (`benchmarks/results/*.json`); do not edit it. The
conclusions are in [benchmarks](benchmarks.md).
"""


def page(results: Mapping[str, Mapping[str, Any]], modules: Mapping[str, ModuleType], more: Sequence[str] = ()) -> str:
    """Return the page of conclusions; a benchmark that was never run is left out. ``more``: further rows."""
    rows, missed, judged = [], [], []
    for name, module in modules.items():
        checks = results.get(name, {}).get("checks", ())
        if not checks:
            continue
        question, answer = conclusion(results[name])
        rows.append(f"| [{question}](benchmark-tables.md#{_anchor(module.TITLE)}) | {answer} |")
        judged += [check["reached"] for check in checks]
        missed += [
            f"- {module.TITLE}: {check['what']}: {check['shown']} (target {check['target']})"
            for check in checks
            if check["reached"] is False
        ]
    count = f"{judged.count(True)} of {len(judged)} targets are reached."
    return "\n".join(
        [
            HEAD,
            "| question | answer |\n|---|---|",
            *rows,
            *more,
            f"\n## Targets\n\n{count}" + (" Missed:\n" if missed else "\n"),
            *([*missed, ""] if missed else []),
            COMMANDS,
        ]
    )


def tables_page(results: Mapping[str, Mapping[str, Any]], modules: Mapping[str, ModuleType]) -> str:
    """Return the page of tables; a benchmark that was never run is left out."""
    parts = [TABLES_HEAD]
    for name, module in modules.items():
        if name in results:
            parts += _section(results[name], module)
    return "\n".join(parts)


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _section(result: Mapping[str, Any], module: ModuleType) -> list[str]:
    parts = [f"## {module.TITLE}\n", _prose(module)]
    if result.get("skipped"):
        return [*parts, f"Not measured: {result['skipped']}.\n"]
    machine = result["machine"]
    parts.append(
        f"Measured on {machine['date']}: {machine['processor']}, {machine['cores']} cores, Python {machine['python']}, "
        f"numpy {machine['numpy']}; inputs: {result['which']}.\n"
    )
    if result.get("rows") and has_picture(result["name"]):
        parts.append(f"![{module.TITLE}](images/benchmark-{result['name'].replace('_', '-')}.png)\n")
    parts += [as_markdown(table) for table in module.tables(result)]
    parts.append(as_markdown(of_checks(result["checks"])))
    return parts


def _prose(module: ModuleType) -> str:
    """Return the module's docstring as Markdown: what is measured, and how."""
    text = textwrap.dedent(module.__doc__ or "").replace("``", "`").strip()
    return text + "\n"
