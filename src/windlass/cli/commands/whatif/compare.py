"""``windlass compare`` runs one trace under several policies, side by side."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import click

from windlass.cli.commands.whatif.simulate.trace import SPOT, mistakes_printed, progress
from windlass.cli.ui.output import content, write, write_file
from windlass.config import ConfigError
from windlass.config.set_option import overridden
from windlass.core.model.reasons import seconds
from windlass.sim.cloud.stock import StockRecording
from windlass.sim.trace.charts import Point, frontier, page
from windlass.sim.trace.metrics import Measures
from windlass.sim.trace.offline_bound import offline_bound
from windlass.sim.trace.reader import TraceError, read_trace
from windlass.sim.trace.run import run_trace

SCHEMA = "windlass.comparison/v1"


@click.command("compare", epilog="Exit status: 0 compared, 1 a file is wrong.")
@click.argument("file", metavar="CONFIG")
@click.option("--trace", "trace_file", required=True, metavar="FILE", help="A trace of jobs, .csv or .csv.gz.")
@click.option("--policies", "first", metavar="FILE...", help="Policies that override parts of CONFIG.")
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--limit", type=click.IntRange(min=1), help="Run only the first N jobs.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same run.")
@SPOT
@click.option("--picture", metavar="FILE.html", help="Draw cost against wait.")
@click.option("--json", "as_json", is_flag=True, help="The numbers as JSON.")
def command(
    file: str,
    trace_file: str,
    first: str | None,
    files: tuple[str, ...],
    limit: int | None,
    seed: int,
    recordings: tuple[StockRecording, ...],
    picture: str | None,
    as_json: bool,
) -> None:
    """Run a trace of jobs with CONFIG, and again with each policy, and compare costs and waiting times.

    A policy is a part of a configuration that overrides CONFIG; under groups, * means every group. The last row is a
    lower bound for every policy: each job pays only for its share of the cheapest machine while it runs. Every policy
    plans at the evaluation interval of CONFIG.

    \b
    Example:
      windlass compare windlass.yaml --trace jobs.csv.gz --policies patient.yaml eager.yaml --picture compare.html
    """
    names = [*((first,) if first else ()), *files]
    try:
        trace = read_trace(Path(trace_file), limit)
        if trace.warning:
            click.echo(f"{trace_file}: {trace.warning}", err=True)
        text = content(file)
        configs = {"as configured": overridden(text, path=file)}
        configs |= {Path(name).stem: overridden(text, path=file, policy=content(name)) for name in names}
    except ConfigError as error:
        for mistake in error.mistakes:
            click.echo(mistake, err=True)
        sys.exit(1)
    except TraceError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    found: dict[str, Measures] = {}
    interval = configs["as configured"].settings.policy.evaluation_interval
    for name, config in configs.items():
        settings = config.settings
        if settings.policy.evaluation_interval != interval:
            click.echo(
                f"{name}: its evaluation_interval is not used: every policy plans at the interval of {file}", err=True
            )
            settings = replace(settings, policy=replace(settings.policy, evaluation_interval=interval))
        with progress(enabled=not as_json) as on_progress, mistakes_printed():
            found[name] = run_trace(settings, trace, seed=seed, recordings=recordings, on_progress=on_progress)[1]
    bound = offline_bound([one.group for one in configs["as configured"].settings.groups], trace.jobs)
    if picture:
        points = [Point(name, one.dollars, one.wait_p95, name == "as configured") for name, one in found.items()]
        write_file(picture, page(f"{trace_file} on {file}", [], [frontier(points)]))
    if as_json:
        rows = {name: one.to_dict() for name, one in found.items()}
        write(json.dumps({"schema": SCHEMA, "policies": rows, "bound": bound}, indent=2) + "\n")
        return
    write("\n".join(_table(found, bound)) + "\n")


def _table(found: dict[str, Measures], bound: float) -> list[str]:
    head = ("policy", "cost", "to bound", "wait p50", "wait p95", "wait max", "node-hours", "use", "launches", "jobs")
    rows: list[tuple[str, ...]] = [
        (
            name,
            f"${one.dollars:,.2f}",
            f"{one.dollars / bound:.2f}x" if bound else "-",
            seconds(round(one.wait_p50, 1)),
            seconds(round(one.wait_p95, 1)),
            seconds(round(one.wait_max, 1)),
            f"{one.node_hours:,.0f}",
            f"{100 * one.utilization:.0f} %",
            f"{one.launches:,}",
            f"{one.finished:,} of {one.jobs:,}",
        )
        for name, one in found.items()
    ]
    rows.append(("offline bound", f"${bound:,.2f}", "1.00x", *["-"] * 7))
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths, strict=True)) for row in (head, *rows))
    ]
