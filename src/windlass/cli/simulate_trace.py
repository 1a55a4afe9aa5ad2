"""``windlass simulate CONFIG --trace FILE``: a real trace of jobs on the configured machines, in a made-up cloud."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click

from windlass.config import Config, ConfigError
from windlass.config.overriding import overridden
from windlass.control.policy import Interval, Settings
from windlass.core.reasons import plural, seconds
from windlass.sim.clock import EPOCH
from windlass.sim.drawing import curves, page
from windlass.sim.engine import Engine
from windlass.sim.faults import Fault
from windlass.sim.machines import MachineKind
from windlass.sim.measuring import Gauge, Measures, measures
from windlass.sim.script import Script
from windlass.sim.traces import Trace, TraceError, read_trace

from .output import content, write
from .simulate import read_storm

SCHEMA = "windlass.simulation/v1"
CURVE = 2000
"""Points of a curve; more than a picture shows."""
FOR_EVER = 10.0 * 365 * 86400


@click.command("trace", epilog="Exit status: 0 every promise was kept, 1 a file is wrong or a promise was broken.")
@click.argument("file", metavar="CONFIG")
@click.option("--trace", "trace_file", required=True, metavar="FILE", help="A trace of jobs, .csv or .csv.gz.")
@click.option("--seed", type=int, default=0, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--faults", "storm", callback=read_storm, metavar="NAME|FILE", help="What goes wrong: a storm.  [default: nothing]"
)
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a setting: gpu.max=8.")
@click.option("--limit", type=click.IntRange(min=1), help="Only the first so many jobs.")
@click.option("--picture", metavar="FILE.html", help="Draw demand, capacity and cost over time.")
@click.option("--json", "as_json", is_flag=True, help="The numbers as JSON.")
def command(
    file: str,
    trace_file: str,
    seed: int,
    storm: tuple[Fault, ...] | None,
    changes: tuple[str, ...],
    limit: int | None,
    picture: str | None,
    as_json: bool,
) -> None:
    """Run the jobs of a trace on the machines of CONFIG, and tell what it cost and how long work waited.

    The controller is the one of windlass run; the cloud and the work are simulated, whatever CONFIG names. Machines
    boot in the boot_seconds of their group.

    \b
    Example:
      windlass simulate windlass.yaml --trace jobs.csv.gz --set gpu.scale_down.idle_timeout=10m --picture run.html
    """
    config, trace = _read(file, trace_file, changes, limit)
    gauge, found, took = simulated(config.settings, trace, seed=seed, faults=storm or (), progress=not as_json)
    if picture:
        facts = list(_facts(found, trace, took))
        Path(picture).write_text(page(f"{trace_file} on {file}", facts, curves(gauge.samples)), encoding="utf-8")
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
        return overridden(content(file), path=file, changes=changes), read_trace(Path(trace_file), limit)
    except ConfigError as error:
        for mistake in error.mistakes:
            click.echo(mistake, err=True)
    except TraceError as error:
        click.echo(str(error), err=True)
    sys.exit(1)


def simulated(
    settings: Settings, trace: Trace, *, seed: int = 0, faults: tuple[Fault, ...] = (), progress: bool = False
) -> tuple[Gauge, Measures, float]:
    """A trace on the machines of some settings; the seconds it took are real ones."""
    # Where nothing happens and no deadline comes, a pass can change nothing: made-up time leaps over it.
    policy = settings.policy
    interval = Interval(policy.evaluation_interval.min, max(policy.evaluation_interval.max, 86400.0))
    settings = replace(settings, policy=replace(policy, evaluation_interval=interval))
    span = max((job.arrives for job in trace.jobs), default=0.0)
    script = Script(settings, jobs=trace.jobs, faults=faults, kinds=_kinds(settings), seed=seed, hours=span / 3600)
    gauge = Gauge(max(1.0, span / CURVE))
    bar = _Progress(span, enabled=progress and sys.stderr.isatty())

    def watch(engine: Engine) -> None:
        gauge(engine)
        bar.at(engine.now() - EPOCH)

    engine = Engine(script, watch=watch, thorough=False, lease=FOR_EVER, cap=FOR_EVER)
    began = time.perf_counter()
    run = engine.run()
    bar.done()
    return gauge, measures(engine, run, gauge, trace.jobs), time.perf_counter() - began


def _kinds(settings: Settings) -> tuple[MachineKind, ...]:
    """What the made-up cloud sells: each group, which boots in the time that it says."""
    plain = Script(settings).all_kinds()
    boots = {sold.group.name: float(sold.group.boot_seconds) for sold in settings.groups}
    return tuple(replace(kind, boot=boots[kind.offering.name], join=0.0) for kind in plain)


class _Progress:
    """How far the made-up time has come, on a terminal."""

    def __init__(self, span: float, *, enabled: bool) -> None:
        self._span, self._enabled, self._next = max(span, 1.0), enabled, 0.0

    def at(self, now: float) -> None:
        if self._enabled and time.monotonic() >= self._next:
            self._next = time.monotonic() + 0.2
            share = min(1.0, now / self._span)
            click.echo(f"\r[{'#' * int(40 * share):<40}] {100 * share:3.0f} %", nl=False, err=True)

    def done(self) -> None:
        if self._enabled:
            click.echo("\r" + " " * 50 + "\r", nl=False, err=True)


def _facts(found: Measures, trace: Trace, took: float) -> Iterator[tuple[str, str]]:
    yield "made-up time", f"{found.hours / 24:,.1f} days, in {took:.1f} s"
    left_out = f", {trace.left_out} left out (no duration)" if trace.left_out else ""
    yield "jobs", f"{found.finished:,} of {found.jobs:,} finished{left_out}"
    yield "cost", f"${found.dollars:,.2f}"
    for kind, dollars in found.accounts.items():
        if dollars:
            yield f"  {kind}", f"${dollars:,.2f}"
    yield "node-hours", f"{found.node_hours:,.1f}, with work {100 * found.utilization:.1f} % of the time"
    waits = (found.wait_p50, found.wait_p95, found.wait_max)
    yield "wait p50 / p95 / max", " / ".join(seconds(round(wait, 1)) for wait in waits)
    yield "launches", f"{found.launches:,}"
    yield "lost to preemption", plural(found.lost_to_preemption, "task")
    yield "killed by us", plural(found.killed_by_us, "task")
    yield "decisions", f"{found.decisions:,} in {found.passes:,} passes"
    yield "promises", f"{len(found.breaches)} broken" if found.breaches else "all kept"


def _some(config: Config) -> str:
    return f"{config.settings.groups[0].group.name}.max=N"
