"""``windlass plan``: read one scenario, print the plan."""

from __future__ import annotations

import gc
import sys

import click

from windlass.scenario import ScenarioError, read_scenario

from .output import content, write


@click.command(
    "plan", epilog="Exit status: 0 planned, 1 the file is wrong; with --detailed-exitcode: 2 there is something to do."
)
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="The whole answer as JSON, for programs.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 0 if there is nothing to do, with 2 if there is.")
def command(file: str, as_json: bool, detailed_exitcode: bool) -> None:
    """Show what would be done about the scenario in FILE, and why.

    FILE is YAML or JSON, and - is standard input. Nothing is changed and nothing is asked: no cluster, no account and
    no network are needed.

    \b
    Examples:
      windlass plan cluster.yaml
      windlass plan cluster.yaml --json | jq .launch
      generate-scenario | windlass plan -
      windlass plan cluster.yaml --detailed-exitcode > /dev/null || echo changes
    """
    gc.disable()  # a short life with little garbage: collecting costs more than it frees
    try:
        snapshot = read_scenario(content(file))
    except ScenarioError as error:
        for mistake in error.mistakes:
            click.echo(mistake, err=True)
        sys.exit(1)

    from windlass.core.planner import plan

    answer = plan(snapshot)
    if as_json:
        import json

        write(json.dumps(answer.to_dict(), indent=2) + "\n")
    else:
        from .render import page

        write(page(answer, snapshot, file))
    if detailed_exitcode and answer.changes:
        sys.exit(2)
