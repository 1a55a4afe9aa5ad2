"""``windlass simulate`` runs the production loop in a simulated cluster with faults, and checks every invariant."""

from __future__ import annotations

import json
import os
import sys
import time

import click

from windlass.cli.ui.output import content, exists, write
from windlass.core.model.reasons import plural
from windlass.scenario.parser import plain_data
from windlass.scenario.reader import FileKind, ScenarioError
from windlass.sim.faults.catalogue import Fault
from windlass.sim.faults.presets import FAULT_SETS, BadFaultSet, fault_set_from
from windlass.sim.fuzz.swarm import SwarmTask, Tally, outcomes, reproduction


class _Simulations(click.Group):
    """Runs a trace for ``simulate CONFIG ...``; the other subcommands have names."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "trace":
            from .trace import command as trace

            return trace
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.commands:
            return "trace", self.get_command(ctx, "trace"), args
        return super().resolve_command(ctx, args)


@click.group("simulate", cls=_Simulations)
def command() -> None:
    """Run the production controller in a simulated cluster, on a virtual clock.

    \b
      windlass simulate CONFIG --trace FILE   the jobs of a trace: cost, waiting times, a chart
      windlass simulate swarm                 random clusters with faults; every invariant is checked after every step
    """


FAULT_FILE = FileKind("faults", ScenarioError, "write a list of faults, each as - kind: ...")
PROGRESS_EVERY = 30.0
"""Seconds between two progress lines of a swarm without a terminal."""


def read_fault_set(_context: click.Context, _option: click.Parameter, text: str | None) -> tuple[Fault, ...] | None:
    """The type of ``--faults``: the name of a fault set, or a file."""
    if text is None:
        return None
    if text in FAULT_SETS:
        return FAULT_SETS[text]
    if not exists(text):
        raise click.BadParameter(f"{text} is neither a file nor one of {', '.join(FAULT_SETS)}")
    try:
        return fault_set_from(plain_data(content(text), FAULT_FILE))
    except (BadFaultSet, ScenarioError) as error:
        raise click.BadParameter(f"{text}: {error}") from None


@command.command(epilog="Exit status: 0 every invariant held, 1 one was violated.")
@click.option(
    "--seeds", type=click.IntRange(min=1), default=100, show_default=True, help="The number of simulated clusters."
)
@click.option("--first", type=click.IntRange(min=0), default=0, show_default=True, help="The first seed.")
@click.option(
    "--hours", type=click.FloatRange(min=0.1), default=2.0, show_default=True, help="Simulated hours with faults."
)
@click.option("--jobs", type=click.IntRange(min=1), help="The number of processes.  [default: one for each core]")
@click.option(
    "--storm",
    "fault_set",
    callback=read_fault_set,
    metavar="NAME|FILE",
    help="The fault set.  [default: a random selection]",
)
@click.option("--shrink/--no-shrink", default=True, help="Shrink the first simulation that violates an invariant.")
@click.option("--json", "as_json", is_flag=True, help="The result as JSON.")
def swarm(
    seeds: int,
    first: int,
    hours: float,
    jobs: int | None,
    fault_set: tuple[Fault, ...] | None,
    shrink: bool,
    as_json: bool,
) -> None:
    """Run many random clusters, each from its seed, and check every invariant after every step.

    A cluster has random groups, limits, prices, rules and work, and a random selection of faults. The same seed gives
    the same simulation. A violated invariant is reported with its seed and as a test that reproduces it.
    """
    tasks = [SwarmTask(seed, hours, fault_set) for seed in range(first, first + seeds)]
    tally = Tally()
    interrupted, printed_at = False, time.monotonic()
    try:
        for outcome in outcomes(tasks, jobs or os.cpu_count() or 1):
            tally.add(outcome)
            if outcome.sentences and not as_json:
                write(f"seed {outcome.seed}: {outcome.sentences[0]}\n")
            if sys.stderr.isatty():
                click.echo(f"\r{tally.seeds} of {seeds}", nl=False, err=True)
            elif time.monotonic() - printed_at >= PROGRESS_EVERY:
                printed_at = time.monotonic()
                click.echo(f"{tally.seeds} of {seeds} clusters, {tally.hours:,.0f} simulated hours", err=True)
    except KeyboardInterrupt:
        interrupted = True
    if sys.stderr.isatty():
        click.echo("\r", nl=False, err=True)
    write(json.dumps(tally.to_dict(), indent=2) + "\n" if as_json else _page(tally))
    if interrupted:
        click.echo(f"interrupted after {tally.seeds} of {plural(seeds, 'cluster')}", err=True)
        sys.exit(130)
    if tally.broken:
        broken = [one for one in tally.broken if one.run is not None]
        if shrink and broken and not as_json:
            smallest = min(broken, key=lambda one: one.run.passes if one.run else 0)
            write("\n" + reproduction(SwarmTask(smallest.seed, hours, fault_set)))
        sys.exit(1)


def _page(tally: Tally) -> str:
    struck = sum(tally.faults.values())
    lines = [
        f"{plural(tally.seeds, 'cluster')}, {tally.hours:,.0f} simulated hours, {tally.passes:,} passes of the loop",
        f"{tally.actions:,} changes of machines, {tally.finished:,} jobs finished",
        f"{struck:,} faults of {plural(len(tally.faults), 'kind')}",
        "every invariant held" if not tally.broken else f"{plural(len(tally.broken), 'cluster')} violated an invariant",
    ]
    return "\n".join(lines) + "\n"
