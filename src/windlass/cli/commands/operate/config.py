"""``windlass config`` checks a configuration, lists every setting, and imports files of Ray and Iris."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from urllib.parse import urlsplit

import click

from windlass.cli.ui.mistakes import refuse, warn
from windlass.cli.ui.output import content, write
from windlass.config import Config, ConfigError, read_config
from windlass.config.build import refuse_incompatible
from windlass.config.warnings import config_warnings
from windlass.core.model.quantities import format_money, format_needs
from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Group
from windlass.scenario.durations import format_duration
from windlass.workloads.registry import WORKLOAD_TYPES

MOST_GROUPS = 20
"""The number of groups in the summary, so that it fits on a screen."""

WIDTH = 100


@click.group("config")
def command() -> None:
    """Check, explain or import a configuration."""


@command.command("check", epilog="Exit status: 0 no mistakes, 1 there are mistakes.")
@click.argument("file", metavar="[FILE]", default="windlass.yaml", envvar="WINDLASS_CONFIG")
def check(file: str) -> None:
    """Check the configuration in FILE (windlass.yaml, or WINDLASS_CONFIG) and summarise it.

    FILE is YAML or JSON; - is standard input. Paths in it are not opened. All mistakes are reported at once, each
    with its path.
    """
    text = content(file)
    try:
        config = read_config(text, path="windlass.yaml" if file == "-" else file)
        refuse_incompatible(config)
    except ConfigError as error:
        refuse(error, file, text)
    write("\n".join(_summary(config, file)) + "\n")
    warn(config_warnings(config))


@command.command("schema", epilog="Exit status: 0 printed.")
def schema() -> None:
    """Print a JSON Schema of the configuration, for editors that complete and check the file.

    \b
    Example:
      windlass config schema > windlass.schema.json
    """
    import json

    from windlass.config.json_schema import config_schema

    write(json.dumps(config_schema(), indent=2) + "\n")


@command.command("reference", epilog="Exit status: 0 printed.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON, for programs: windlass.config-reference/v1.")
def reference(as_json: bool) -> None:
    """List every setting with its default and its meaning.

    \b
    Examples:
      windlass config reference | less
      windlass config reference --json | jq -r '.settings[].path'
    """
    from windlass.config.reference import pages, settings

    if as_json:
        import json

        write(json.dumps({"schema": "windlass.config-reference/v1", "settings": settings()}, indent=2) + "\n")
        return
    lines = []
    for page in pages():
        title = page.where or "top level"
        lines += ["", title + f" (type: {page.type})" * bool(page.type)]
        for name, key in page.form.keys.items():
            unit = f" ({key.unit})" if key.unit else ""
            lines.append(f"  {name}{unit}  [{key.default.replace('`', '')}]")
            lines += wrap(key.meaning.replace("`", ""), WIDTH, initial_indent="      ", subsequent_indent="      ")
    write("\n".join(lines[1:]) + "\n")


@command.command("import", epilog="Exit status: 0 written to standard output, 1 the file is wrong.")
@click.argument("file", metavar="FILE")
@click.option(
    "--from",
    "kind",
    type=click.Choice(["ray", "kuberay", "iris"]),
    help="The format of FILE.  [default: detected by its keys]",
)
def import_(file: str, kind: str | None) -> None:
    """Convert a Ray cluster file, a RayCluster or an Iris file with scale_groups, and print a configuration.

    Settings that could not be imported are listed in its comments and on standard error.

    \b
    Example:
      windlass config import cluster.yaml > windlass.yaml
      windlass config check windlass.yaml
    """
    from windlass.config.importers.base import import_config

    text = content(file)
    try:
        imported = import_config(text, kind=kind)
    except ConfigError as error:
        refuse(error, file, text)
    for note in imported.notes:
        click.echo(note, err=True)
    write(imported.text)


# -- the summary -----------------------------------------------------------------------------------------------------


def _summary(config: Config, file: str) -> Iterator[str]:
    from windlass.core.planner import plan

    groups, providers = plural(len(config.settings.groups), "group"), plural(len(config.providers), "provider")
    yield f"{file}: {groups}, {providers}, no mistakes"
    yield ""
    answer = plan(config.empty_snapshot())
    limits = [
        ("at least", _least(config, answer.launch, answer.hourly_cost.planned)),
        ("at most", _most(config)),
        *_families(config),
    ]
    if config.settings.groups:
        yield from _groups(config)
        yield ""
    else:  # a file without groups is valid only for a workload that defines them
        limits = [("groups", f"defined in {config.workload.type}; windlass status lists them while a controller runs")]
    yield from _aligned(
        [
            *limits,
            ("ceilings", _ceilings(config)),
            ("chosen by", answer.strategy),
            ("workload", f"{config.workload.type}{_settings_text(config.workload.settings)}"),
            ("providers", ", ".join(f"{name} ({one.type})" for name, one in config.providers.items())),
            ("journal", _without_password(config.journal.location)),
            ("leader", f"{config.leader.holder}, lease {config.leader.lease:g} s"),
        ]
    )
    notes = list(_notes(config, sum(answer.launch.values())))
    if notes:
        yield ""
        yield from notes


def _groups(config: Config) -> Iterator[str]:
    rows = [("group", "machine", "hosts", "min", "max", "spare", "price", "provider")]
    for one in config.settings.groups[:MOST_GROUPS]:
        group = one.group
        price = "-" if group.price is None else f"{format_money(group.price)}/h"
        counts = (str(group.hosts), str(group.min), str(group.max), str(group.spare))
        rows.append((group.name, format_needs(group.resources), *counts, price, one.provider))
    yield from _aligned(rows)
    if len(config.settings.groups) > MOST_GROUPS:
        yield f"  and {len(config.settings.groups) - MOST_GROUPS} more"


def _aligned(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _least(config: Config, launch: Mapping[str, int], cost: int) -> str:
    bought = ", ".join(f"{count} {name}" for name, count in launch.items())
    unpriced = sum(one.group.name in launch for one in config.settings.groups if one.group.price is None)
    return f"{bought}: {_cost(cost, unpriced, len(launch))}" if bought else "nothing"


def _cost(cost: int, unpriced: int, of: int) -> str:
    """Format dollars per hour, and the number of groups without a price."""
    if unpriced == of:
        return "cost unknown, no group has a price"
    return f"{format_money(cost)}/h" + f", and {plural(unpriced, 'group')} without a price" * bool(unpriced)


def _most(config: Config) -> str:
    slices = sum(_counts_at_most(config, lambda _: 1))
    nodes = sum(_counts_at_most(config, lambda group: group.hosts))
    cost = sum(_counts_at_most(config, lambda group: group.price or 0))
    if config.settings.cluster.max_nodes is not None:
        nodes = min(nodes, config.settings.cluster.max_nodes)
    if config.settings.cluster.max_hourly_cost is not None:
        cost = min(cost, config.settings.cluster.max_hourly_cost)
    unpriced = sum(one.group.price is None for one in config.settings.groups)
    return f"{plural(slices, 'machine')}{_hosts(slices, nodes)}: {_cost(cost, unpriced, len(config.settings.groups))}"


def _counts_at_most(config: Config, worth: Callable[[Group], int]) -> Iterator[int]:
    """Return the largest number of machines of each group, with families at their max, the most expensive first."""
    left = {family.name: family.max for family in config.settings.cluster.families}
    for group in sorted((one.group for one in config.settings.groups), key=worth, reverse=True):
        count = min(group.max, left.get(group.family, group.max))
        if group.family in left:
            left[group.family] -= count
        yield count * worth(group)


def _families(config: Config) -> Iterator[tuple[str, str]]:
    for family in config.settings.cluster.families:
        count = sum(one.group.family == family.name for one in config.settings.groups)
        limits = f"at least {family.min}, " * bool(family.min) + f"at most {family.max}"
        spare = f", {family.spare} spare" * bool(family.spare)
        yield f"family {family.name}", f"{plural(count, 'group')} together: {limits}{spare}"


def _hosts(machines: int, hosts: int) -> str:
    """Format the number of hosts, if a machine has several."""
    return "" if hosts == machines else f", {plural(hosts, 'host')}"


def _ceilings(config: Config) -> str:
    cluster, found = config.settings.cluster, []
    if cluster.max_nodes is not None:
        found.append(plural(cluster.max_nodes, "host"))
    if cluster.max_hourly_cost is not None:
        found.append(f"{format_money(cluster.max_hourly_cost)}/h")
    if cluster.max_launching is not None:
        found.append(f"{plural(cluster.max_launching, 'machine')} starting")
    return ", ".join(found) or "none over all groups"


def _settings_text(settings: Mapping[str, object]) -> str:
    """Format the settings that have a value, as ``scheduler tcp://..., tls.cert cert.pem``."""
    inner = {
        f"{key}.{name}": one
        for key, part in settings.items()
        if isinstance(part, Mapping)
        for name, one in part.items()
    }
    plain = {key: value for key, value in settings.items() if not isinstance(value, Mapping)}
    text = ", ".join(f"{key} {_value_text(value)}" for key, value in {**plain, **inner}.items() if value is not None)
    return f" ({text})" if text else ""


def _value_text(value: object) -> str:
    """Format a value: a duration, which is read as a float, as in the file."""
    return format_duration(value) if isinstance(value, float) else str(value)


def _without_password(location: str) -> str:
    """Return a URL without its password, because a summary may end up in logs."""
    if "://" not in location:
        return location
    try:
        parts = urlsplit(location)
        host = parts.hostname or ""
    except ValueError:
        return location.partition("://")[0] + "://..."
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{host}{parts.path}"


def _notes(config: Config, bought: int) -> Iterator[str]:
    wanted = sum(max(one.group.min, one.group.spare) for one in config.settings.groups)
    if bought < wanted:
        yield f"note: min and spare ask for {plural(wanted, 'machine')}; the limits allow {bought} at first"
    for one in config.settings.groups:
        if not one.group.resources:
            yield f"note: groups.{one.group.name}.resources is empty: nothing fits there"
    used = {one.provider for one in config.settings.groups}
    defines_groups = WORKLOAD_TYPES[config.workload.type].groups_optional
    for name in config.providers:
        if name not in used and not defines_groups:
            yield f"note: providers.{name} has no group"
    file = config.workload.settings.get("demands")
    if isinstance(file, str) and not Path(file).is_file():
        yield f"note: workload.demands does not exist yet: {file}"
