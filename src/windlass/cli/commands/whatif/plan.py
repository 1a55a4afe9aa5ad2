"""``windlass plan`` reads a scenario, or observes a live cluster, and prints the plan."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from windlass._extras import install_command
from windlass._gc_pause import uncollected
from windlass.cli.ui.mistakes import refuse, warn
from windlass.cli.ui.output import content, write
from windlass.core.model.plan import Plan
from windlass.core.model.snapshot import Snapshot
from windlass.scenario.parser import plain_data
from windlass.scenario.reader import FileError
from windlass.scenario.scenario import read_plain
from windlass.scenario.warnings import snapshot_warnings

CONFIG = "windlass.yaml"
KUBERNETES = re.compile(rb"""\s*(---)?\s*(\{\s*["'])?(apiVersion|items|kind|metadata)["']?\s*:""")
"""The beginning of a file of Kubernetes objects, in JSON or YAML. No scenario or configuration begins like this."""
ONLY_CONFIGURED = ("providers", "workload", "journal", "policy", "leader")
"""Keys that a configuration has and a scenario does not have."""


@click.command(
    "plan", epilog="Exit status: 0 planned, 1 the file is wrong; with --detailed-exitcode: 2 the plan has changes."
)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--live", is_flag=True, help="Observe the cluster of a configuration instead of reading FILE.")
@click.option(
    "-c",
    "--config",
    "config_file",
    metavar="FILE",
    default=CONFIG,
    envvar="WINDLASS_CONFIG",
    show_default=True,
    show_envvar=True,
    help="With --live: the configuration of the cluster.",
)
@click.option("--json", "as_json", is_flag=True, help="The whole answer as JSON, for programs.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with status 2 if the plan has changes.")
@click.option(
    "--url",
    metavar="URL",
    envvar="WINDLASS_URL",
    show_envvar=True,
    help="With --live: ask the server at this address instead.",
)
@click.option("--token", metavar="TOKEN", envvar="WINDLASS_TOKEN", show_envvar=True, help="The token for --url.")
def command(
    file: str | None,
    live: bool,
    config_file: str,
    as_json: bool,
    detailed_exitcode: bool,
    url: str | None,
    token: str | None,
) -> None:
    """Show what Windlass would do for the cluster in FILE, or for a live cluster, and why.

    FILE is a scenario or a configuration, in YAML or JSON; - is standard input. This needs no cluster, no account and
    no network, and changes nothing. FILE may also contain the objects of a Kubernetes cluster, saved with kubectl: then
    the plan is for the time at which the file was written.

    With --live, it observes the providers and the workload of a configuration, and reads the journal. It changes
    nothing, so it can run next to a controller, or before the first one. With --url, it shows the last plan of the
    controller at that address.

    \b
    Examples:
      windlass plan cluster.yaml
      windlass plan cluster.yaml --json | jq .launch
      generate-scenario | windlass plan -
      kubectl get pods,nodes,nodeprovisioners,nodeclaims -A -o json > now.json; windlass plan now.json
      windlass plan cluster.yaml --detailed-exitcode > /dev/null || echo changes
      windlass plan --live
      windlass plan --live --url http://127.0.0.1:7878 --token wlv_...
    """
    if live == (file is not None):
        raise click.UsageError("give FILE (a scenario or a configuration), or --live to plan for a running cluster")
    given = click.get_current_context().get_parameter_source
    for name, option in (("url", "--url"), ("config_file", "--config")):
        if not live and given(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{option} belongs to --live: windlass plan --live {option} ...")
    if live and url is not None:
        _remotely(url, token, as_json, detailed_exitcode)
        return
    with uncollected():
        snapshot, answer = _live(config_file) if file is None else _planned(file)
        _print(answer, snapshot, _source(file, config_file), as_json)
    if detailed_exitcode and answer.changes:
        sys.exit(2)


def _print(answer: Plan, snapshot: Snapshot, source: str, as_json: bool) -> None:
    if as_json:
        _print_json(answer.to_dict())
    else:
        from windlass.cli.ui.plan_page import page

        write(page(answer, snapshot, source))


def _print_json(document: Mapping[str, Any]) -> None:
    import json

    write(json.dumps(document, indent=2) + "\n")


def _remotely(url: str, token: str | None, as_json: bool, detailed_exitcode: bool) -> None:
    """Print the last plan of a remote controller."""
    from windlass.cli.connection.remote import remote_of
    from windlass.cli.connection.remote_plan import plan_in, snapshot_in

    remote = remote_of(url, token)
    assert remote is not None
    document = remote.get("/plan")
    answer = plan_in(document)
    if as_json:
        _print_json(document)
    else:
        _print(answer, snapshot_in(remote.get("/status")), "--live", as_json)
    if detailed_exitcode and answer.changes:
        sys.exit(2)


def _source(file: str | None, config_file: str) -> str:
    """Return the arguments of ``windlass plan`` that repeat this command."""
    if file is not None:
        return file
    return "--live" if config_file == CONFIG else f"--live -c {config_file}"


def _planned(file: str) -> tuple[Snapshot, Plan]:
    snapshot = _read(file)

    from windlass.core.planner import plan

    return snapshot, plan(snapshot)


def _read(file: str) -> Snapshot:
    text = content(file)
    if KUBERNETES.match(text[:500]):
        return _saved(file, text)
    try:
        data = plain_data(text)
        if isinstance(data, Mapping) and any(key in data for key in ONLY_CONFIGURED):
            from windlass.config.planned_file import read_configured_plan

            snapshot = read_configured_plan(data, path=CONFIG if file == "-" else file)
        else:
            snapshot = read_plain(data)
    except FileError as error:
        refuse(error, file, text)
    warn(snapshot_warnings(snapshot))
    return snapshot


def _saved(file: str, data: bytes) -> Snapshot:
    """Return the snapshot of a cluster that kubectl saved, as of the time of the file."""
    try:
        from windlass.cli.connection.saved_cluster import saved_snapshot
        from windlass.kubernetes_api.saved_objects import NotSavedObjects
    except ModuleNotFoundError:
        click.echo(
            f"{file}: to read Kubernetes objects, install the extra first: {install_command('kubernetes')}", err=True
        )
        sys.exit(1)
    try:
        snapshot, mistakes = saved_snapshot(data, time.time() if file == "-" else Path(file).stat().st_mtime)
    except NotSavedObjects as error:
        click.echo(f"{file}: {error}", err=True)
        sys.exit(1)
    for mistake in mistakes:
        click.echo(f"ignored: {mistake}", err=True)
    return snapshot


def _live(config_file: str) -> tuple[Snapshot, Plan]:
    """Return the snapshot of a live cluster and the plan for it. A provider that fails is reported; without a workload
    nothing is planned."""
    from windlass.cli.connection.config_option import load
    from windlass.cli.connection.observe_once import seen
    from windlass.config import ConfigError
    from windlass.journal import JournalError

    config = load(config_file)
    try:
        sight = seen(config)
    except ConfigError as error:
        for mistake in error.mistakes:
            click.echo(mistake, err=True)
        sys.exit(1)
    except JournalError as error:
        click.echo(str(error), err=True)
        sys.exit(1)
    for name, problem in sorted(sight.observation.problems.items()):
        more = "" if name == "workload" else "; nothing is released while it is unknown"
        click.echo(f"{name} has a problem: {problem}{more}", err=True)
    for mistake in sight.observation.mistakes:
        click.echo(f"ignored: {mistake}", err=True)
    if sight.observation.work is None:
        click.echo(
            "the workload does not answer, so nothing can be planned; windlass doctor checks everything", err=True
        )
        sys.exit(1)
    return sight.planned()
