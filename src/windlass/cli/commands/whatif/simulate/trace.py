"""``windlass simulate CONFIG --trace FILE`` runs a trace of jobs on the configured machines in a simulated cloud."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import click

from windlass.cli.ui.output import content, write, write_file
from windlass.config import Config, ConfigError
from windlass.config.set_option import overridden
from windlass.core.model.reasons import plural, seconds
from windlass.sim.cloud.stock import StockError, StockRecording, read_recordings
from windlass.sim.faults.catalogue import Fault
from windlass.sim.trace.charts import curves, page
from windlass.sim.trace.metrics import Measures
from windlass.sim.trace.reader import Trace, TraceError, read_trace
from windlass.sim.trace.run import run_trace

from . import read_fault_set

SCHEMA = "windlass.simulation/v1"
BAR_EVERY = 0.2
"""Seconds between two updates of the progress bar."""
NAMED = 3
"""Jobs that wait at the end, of which the reason is printed; --json has all of them."""


def read_spot(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[StockRecording, ...]:
    """Read recordings from a file, filtered by columns."""
    if text is None:
        return ()
    file, *wanted = text.split(",")
    if wrong := [one for one in wanted if "=" not in one]:
        raise click.BadParameter(f"{wrong[0]} is not COLUMN=VALUE")
    pairs = (one.partition("=") for one in wanted)
    try:
        return read_recordings(Path(file), {column: value for column, _, value in pairs})
    except StockError as error:
        raise click.BadParameter(str(error)) from None


SPOT = click.option(
    "--spot",
    "recordings",
    callback=read_spot,
    metavar="FILE[,COLUMN=VALUE]...",
    help="How many machines of preemptible groups were available over time, .csv or .csv.gz.  [default: always enough]",
)


@click.command("trace", epilog="Exit status: 0 every invariant held, 1 a file is wrong or an invariant was violated.")
@click.argument("file", metavar="CONFIG")
@click.option("--trace", "trace_file", required=True, metavar="FILE", help="A trace of jobs, .csv or .csv.gz.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--faults",
    "fault_set",
    callback=read_fault_set,
    metavar="NAME|FILE",
    help="The fault set.  [default: no faults]",
)
@SPOT
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a setting, such as gpu.max=8.")
@click.option("--limit", type=click.IntRange(min=1), help="Run only the first N jobs.")
@click.option("--picture", metavar="FILE.html", help="Draw demand, capacity and cost over time.")
@click.option("--json", "as_json", is_flag=True, help="The numbers as JSON.")
def command(
    file: str,
    trace_file: str,
    seed: int,
    fault_set: tuple[Fault, ...] | None,
    recordings: tuple[StockRecording, ...],
    changes: tuple[str, ...],
    limit: int | None,
    picture: str | None,
    as_json: bool,
) -> None:
    """Run the jobs of a trace on the machines of CONFIG, and show the cost and the waiting times.

    The controller is that of windlass run. The cloud and the workload are simulated, whatever CONFIG names. Machines
    boot in the boot_seconds of their group. With --spot, launches of preemptible groups are refused, and their machines
    preempted, as in a recording with the columns zone, start_s, length_s and available.

    \b
    Example:
      windlass simulate windlass.yaml --trace jobs.csv.gz --set gpu.scale_down.idle_timeout=10m --picture run.html
    """
    config, trace = _read(file, trace_file, changes, limit)
    began = time.perf_counter()
    with progress(enabled=not as_json) as on_progress, mistakes_printed():
        gauge, found = run_trace(
            config.settings, trace, seed=seed, faults=fault_set or (), recordings=recordings, on_progress=on_progress
        )
    took = time.perf_counter() - began
    if picture:
        facts = list(_facts(found, trace, took))
        write_file(picture, page(f"{trace_file} on {file}", facts, curves(gauge.samples)))
    if as_json:
        data = {"schema": SCHEMA, "seed": seed, "trace": trace_file, **found.to_dict(), "seconds": took}
        write(json.dumps(data, indent=2) + "\n")
    else:
        lines = [f"  {name:<22} {text}" for name, text in _facts(found, trace, took)]
        steps = [f"picture: {picture}"] if picture else [f"next: add --picture run.html, or --set {_some(config)}"]
        write("\n".join([f"{trace_file} on {file}, seed {seed}", "", *lines, "", *found.breaches, *steps]) + "\n")
    sys.exit(1 if found.breaches else 0)


def _read(file: str, trace_file: str, changes: tuple[str, ...], limit: int | None) -> tuple[Config, Trace]:
    try:
        config, trace = overridden(content(file), path=file, changes=changes), read_trace(Path(trace_file), limit)
        if trace.warning:
            click.echo(f"{trace_file}: {trace.warning}", err=True)
        return config, trace
    except ConfigError as error:
        for mistake in error.mistakes:
            click.echo(mistake, err=True)
    except TraceError as error:
        click.echo(str(error), err=True)
    sys.exit(1)


@contextmanager
def mistakes_printed() -> Iterator[None]:
    """End the command with a message if a group's zone is not recorded."""
    try:
        yield
    except StockError as error:
        click.echo(str(error), err=True)
        sys.exit(1)


@contextmanager
def progress(*, enabled: bool) -> Iterator[Callable[[float], None]]:
    """Show a progress bar on a terminal, and return the function that updates it."""
    shown_at = 0.0

    def move(share: float) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= BAR_EVERY:
            shown_at = time.monotonic()
            click.echo(f"\r[{'#' * int(40 * share):<40}] {100 * share:3.0f} %", nl=False, err=True)

    if not enabled or not sys.stderr.isatty():
        yield lambda _: None
        return
    yield move
    click.echo("\r" + " " * 50 + "\r", nl=False, err=True)


def _facts(result: Measures, trace: Trace, took: float) -> Iterator[tuple[str, str]]:
    yield "simulated time", f"{result.hours / 24:,.1f} days, in {took:.1f} s"
    left_out = f", {trace.left_out} left out (no duration)" if trace.left_out else ""
    yield "jobs", f"{result.finished:,} of {result.jobs:,} finished{left_out}"
    for name, why in islice(result.waiting.items(), NAMED):
        yield f"  {name} waits", why
    if len(result.waiting) > NAMED:
        yield "", f"and {len(result.waiting) - NAMED:,} more"
    yield "cost", f"${result.dollars:,.2f}"
    for kind, dollars in result.accounts.items():
        if dollars:
            yield f"  {kind}", f"${dollars:,.2f}"
    yield "node-hours", f"{result.node_hours:,.1f}, with work {100 * result.utilization:.1f} % of the time"
    waits = (result.wait_p50, result.wait_p95, result.wait_max)
    yield "wait p50 / p95 / max", " / ".join(seconds(round(wait, 1)) for wait in waits)
    yield "launches", f"{result.launches:,}"
    lost = f", which had run {result.lost_hours:,.1f} task-hours" if result.lost_to_preemption else ""
    yield "lost to preemption", plural(result.lost_to_preemption, "task") + lost
    yield "ended by Windlass", plural(result.killed_by_us, "task")
    yield "decisions", f"{result.decisions:,} in {result.passes:,} passes"
    yield "invariants", f"{len(result.breaches)} violated" if result.breaches else "all held"


def _some(config: Config) -> str:
    return f"{config.settings.groups[0].group.name}.max=N"
