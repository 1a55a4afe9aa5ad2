"""``docs/benchmarks.md``, written from the results on disk. Edit this module, not the page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from .plot import has_picture
from .table import as_markdown, of_checks

HEAD = """\
# Benchmarks

Written by `python benchmarks/run.py` from what it measured (`benchmarks/results/*.json`); not edited by hand.

Times are CPU seconds of one thread: on both sides, in the same run, on the same machine. A target that was missed says
so.

```
make bench                              # everything but the largest inputs of Ray
make bench BENCH_ARGS=--quick           # a few inputs of each, about a minute
make bench BENCH_ARGS=--full            # everything
make bench BENCH_ARGS='--only growth'   # one of growth, karpenter_mix, karpenter_pods, cost_bound, against_ray, loop,
                                        # simulating, traces, parts, spot, pool, pool_crashes, pool_data, remote,
                                        # dashboard, kubernetes
```
"""


def page(results: Mapping[str, Mapping[str, Any]], modules: Mapping[str, ModuleType]) -> str:
    """The whole page; a benchmark that was never run is left out."""
    parts = [HEAD]
    missed = [
        f"- {modules[name].TITLE}: {check['what']}: {check['shown']} (target {check['target']})"
        for name in modules
        for check in results.get(name, {}).get("checks", ())
        if check["reached"] is False
    ]
    judged = [check["reached"] for name in modules for check in results.get(name, {}).get("checks", ())]
    parts.append(f"## Targets\n\n{judged.count(True)} of {len(judged)} reached" + (". Missed:\n" if missed else ".\n"))
    if missed:
        parts.append("\n".join(missed) + "\n")
    for name, module in modules.items():
        if name in results:
            parts += _section(results[name], module)
    return "\n".join(parts)


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
    """What the module says about itself: what is measured and how."""
    text = textwrap.dedent(module.__doc__ or "").replace("``", "`").strip()
    return text + "\n"
