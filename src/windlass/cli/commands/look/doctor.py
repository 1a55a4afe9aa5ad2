"""``windlass doctor`` checks everything that a cluster needs; each problem has a remedy."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from rich.console import RenderableType
from rich.text import Text

from windlass._extras import install_command
from windlass.cli.connection.config_option import CONFIG_OPTION, load
from windlass.cli.connection.observe_once import LiveView, known, seen
from windlass.cli.connection.open_journal import config_file, is_missing, why_closed
from windlass.cli.ui.checklist import Check, note, ok, problem
from windlass.cli.ui.output import write
from windlass.cli.ui.pages import grid, next_steps, printed, span
from windlass.config import Config, ConfigError
from windlass.config.build import build_components, incompatibilities
from windlass.config.warnings import config_warnings
from windlass.control.record.controller_state import SETTINGS, ControllerState
from windlass.control.report.events import problem_name
from windlass.control.report.headline import NEVER
from windlass.control.report.leader import leader_of
from windlass.control.state.fleet import SliceRecord
from windlass.core.model.lifecycle import COUNTED, IN_FLIGHT, OFFERING, RECALLABLE, State
from windlass.core.model.quantities import format_money
from windlass.core.model.reasons import plural, seconds
from windlass.journal import Journal, JournalError, Lease, open_journal
from windlass.providers.protocol import DiagnosedProvider, Offering, ProviderError
from windlass.workloads.protocol import Diagnosed, Diagnosis, WorkloadError

SCHEMA: Final = "windlass.doctor/v1"
LEAST_FREE: Final = 500 * 2**20
"""Free bytes below which the disk is a problem; a busy journal grows by some tens of megabytes a day."""
NAMED: Final = 3
"""The number of machines that one line names."""
MACHINE_TYPE: Final = "instance_type"
"""The key of a group's settings that names a machine type."""
CLOCK_SLACK: Final = 2.0
"""Seconds by which clocks may differ without a message."""


@click.command("doctor", epilog="Exit status: 0 no problems, 1 there is a problem.")
@click.argument("cloud", type=click.Choice(["aws"]), required=False)
@CONFIG_OPTION
@click.option("--policy", is_flag=True, help="With aws: print the minimal IAM policy, and check nothing.")
@click.option("--region", default="us-east-1", metavar="REGION", show_default=True, help="With aws: the region.")
@click.option("--profile", default="", metavar="NAME", help="With aws: a profile of ~/.aws/config.")
@click.option(
    "--endpoint-url", default="", metavar="URL", help="With aws: the URL of another EC2 API, such as a fake one."
)
@click.option("--json", "as_json", is_flag=True, help=f"The same as JSON, for programs: {SCHEMA}.")
def command(
    cloud: str | None,
    config_file: str,
    policy: bool,
    region: str,
    profile: str,
    endpoint_url: str,
    as_json: bool,
) -> None:
    """Check the configuration, the journal, the leader, every provider and the workload, and look for leaked machines.

    It changes nothing, so it can run next to a controller. With aws, it checks an AWS account instead: credentials,
    permissions and quota. This needs no configuration.

    \b
    Examples:
      windlass doctor || echo something is wrong
      windlass doctor aws --region eu-central-1
      windlass doctor aws --policy > policy.json
    """
    given = click.get_current_context().get_parameter_source
    for name in ("policy", "region", "profile", "endpoint_url"):
        if cloud is None and given(name) is ParameterSource.COMMANDLINE:
            option = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{option} belongs to a cloud: windlass doctor aws {option}")
    if policy:
        from windlass.providers.aws.policy import least_policy

        write(json.dumps(least_policy(), indent=2) + "\n")
        return
    if cloud is None:
        config = load(config_file)
        checks = list(_checks(config))
        _print(checks, as_json, _next(config, checks))
    else:
        steps = (f"windlass doctor {cloud} --policy", f"windlass offers --provider {cloud}")
        _print(_account(region, profile, endpoint_url), as_json, steps)


def _account(region: str, profile: str, endpoint_url: str) -> list[Check]:
    """Return the checks of an AWS account."""
    import asyncio
    from importlib.util import find_spec

    if find_spec("boto3") is None:
        return [problem("boto3", "is not installed", install_command("aws"))]
    from windlass.providers.aws.account import account_checks
    from windlass.providers.aws.settings_check import is_region

    if not is_region(region):
        return [problem("region", f"{region[:80]!r} is not a region of AWS", "give one such as --region eu-west-1")]

    async def found() -> list[Check]:
        return [
            _account_check(one.subject, one.text, one.remedy, one.is_known)
            async for one in account_checks(region, profile, endpoint_url)
        ]

    return asyncio.run(found())


def _account_check(about: str, text: str, remedy: str, is_known: bool) -> Check:
    if not is_known:
        return note(about, text, "a launch beyond the quota is refused by EC2, and windlass why shows it")
    return problem(about, text, remedy) if remedy else ok(about, text)


def _next(config: Config, checks: list[Check]) -> tuple[str, ...]:
    """Return the next commands. All that read the journal fail while it cannot be read."""
    if not any(one.about == "journal" and one.verdict == "problem" for one in checks):
        return "windlass status", "windlass events"
    without_journal = config.journal.location == ":memory:" or is_missing(config)
    return ("windlass plan --live",) if without_journal else ("windlass doctor",)


def _print(checks: list[Check], as_json: bool, steps: tuple[str, ...]) -> None:
    bad = sum(one.verdict == "problem" for one in checks)
    if as_json:
        write(json.dumps(_document(checks), indent=2) + "\n")
    else:
        write(printed(_page(checks, bad, steps)))
    sys.exit(1 if bad else 0)


def checked(config: Config, file: str) -> dict[str, Any]:
    """Return the document of ``windlass doctor --json``; the server uses it as well."""
    with click.Context(command, info_name="doctor") as context:
        context.params["config_file"] = file
        return _document(list(_checks(config)))


def _document(checks: list[Check]) -> dict[str, Any]:
    bad = any(one.verdict == "problem" for one in checks)
    return {"schema": SCHEMA, "ok": not bad, "checks": [one.to_dict() for one in checks]}


def _checks(config: Config) -> Iterator[Check]:
    wrong = incompatibilities(config)
    for text in wrong:
        yield problem("configuration", text, f"change it in {config_file()}, then: windlass config check")
    if not wrong:
        groups = plural(len(config.settings.groups), "group")
        yield ok("configuration", f"{config_file()} is valid: {groups}, {plural(len(config.providers), 'provider')}")
    yield from _disk(config)
    before: ControllerState | None = None
    led = False
    try:
        with open_journal(config.journal.location, create=False) as journal:
            led = leader_of(journal, time.time()).alive
            yield from _journal(journal)
            yield from _leader(journal)
            before = known(config)
            running = before.settings.get(SETTINGS)
            if running is not None and running.of_file != config.settings:
                text = "the controller uses settings that differ from the file"
                yield note("settings", text, "its log says why the file was refused; correct it")
    except JournalError as error:
        yield problem("journal", *_closed(config, error))
        led = not is_missing(config)  # a controller may run, and its machines are not to be ended
    if not wrong:
        try:
            yield from _sources(config, before, led)
        except ConfigError as error:
            for mistake in error.mistakes:
                yield problem("configuration", mistake, f"correct it in {config_file()}")
    if before is not None:
        yield from _slices(before)
    for text in config_warnings(config):
        yield note("configuration", text)


# -- the journal and the leader ------------------------------------------------------------------------------------


def _disk(config: Config) -> Iterator[Check]:
    location = config.journal.location
    if location == ":memory:" or "://" in location:
        return
    place = next((one for one in (Path(location), *Path(location).parents) if os.access(one, os.F_OK)), Path("/"))
    free = shutil.disk_usage(place).free
    text = f"{_size(free)} free where the journal is"
    if free < LEAST_FREE:
        yield problem("disk", text, f"free some space: the controller needs at least {_size(LEAST_FREE)} to work")
    else:
        yield ok("disk", text)


def _journal(journal: Journal) -> Iterator[Check]:
    health, now = journal.health(), time.time()
    for text in health.problems:
        yield problem(
            "journal",
            text,
            "restore it from a backup; or end its machines at the provider, and move it away",
        )
    if health.ok:
        yield ok("journal", f"{health.location}: {plural(health.records, 'record')}, {_size(health.size)}")
    newest = next(journal.read(newest_first=True, limit=1), None)
    lease = journal.lease()
    ahead = max(0.0 if newest is None else newest.at - now, _clock_ahead(lease, now))
    if ahead > CLOCK_SLACK:
        whose = "of the database" if journal.own_clock else "of the controller"
        text = f"the clock {whose} or of this computer is wrong: a record is {span(ahead)} in the future"
        yield problem("clock", text, "set both clocks by NTP")
    else:
        yield ok("clock", "no record of the journal is in the future")


def _clock_ahead(lease: Lease | None, now: float) -> float:
    """Return how far the clock of the lease is ahead of ours at least. A lease is never longer than its ttl."""
    return 0.0 if lease is None else lease.expires_at - lease.ttl - now


def _leader(journal: Journal) -> Iterator[Check]:
    now = time.time()
    leader = leader_of(journal, now)
    if leader.alive:
        yield ok("leader", f"{leader.holder} leads")
        return
    start = f"start one: windlass run {config_file()}"
    if leader.seen_at is None:
        yield note("leader", "no controller has run yet", start)
    elif leader.holder is None:
        yield note("leader", f"no controller runs; the last one stopped {span(now - leader.seen_at)} ago", start)
    else:
        text = f"{leader.holder} lost its lease without releasing it; last seen {span(now - leader.seen_at)} ago"
        yield problem("leader", text, f"find out why it died, and {start}")


def _closed(config: Config, error: JournalError) -> tuple[str, str]:
    """Return the problem of a journal that cannot be opened, and its remedy."""
    if is_missing(config):
        return (
            f"there is no journal at {config.journal.location} yet",
            f"start a controller: windlass run {config_file()}",
        )
    return why_closed(config, error), f"check journal in {config_file()}"


# -- observations --------------------------------------------------------------------------------------------------


def _unattended(sight: LiveView) -> Iterator[Check]:
    """Find machines that cost money while no controller runs."""
    running = sorted(one for many in sight.observation.instances.values() if many for one in many)
    if running:
        records = sight.controller_state.fleet.slices
        cost = sum(records[one].price for one in running if one in records)
        costs = f" and cost {format_money(cost)}/h" if cost else ""
        verb = "runs" if len(running) == 1 else "run"
        costs = costs.replace(" cost ", " costs ") if len(running) == 1 else costs
        text = f"{plural(len(running), 'machine')} {verb} without a controller{costs}: {', '.join(running[:NAMED])}"
        yield problem("machines", text, f"start one: windlass run {config_file()}; or end them: windlass down")


def _hosts(sight: LiveView) -> Iterator[Check]:
    """Find hosts that the workload reports a problem of."""
    work = sight.observation.work
    for node in sorted(work.node.values(), key=lambda one: one.id) if work is not None else ():
        if node.trouble:
            remedy = f"its running tasks go on; if it does not recover: windlass drain {node.slice_id}"
            yield problem("host", f"{node.id}: {node.trouble}", remedy)


def _never(sight: LiveView) -> Iterator[Check]:
    """Find jobs that no group can ever hold."""
    if sight.observation.work is None:
        return
    _, answer = sight.planned()
    for one in answer.waiting:
        if one.reason.code in NEVER or (one.groups and all(why.code in NEVER for why in one.groups.values())):
            text = f"{one.demand} ({plural(one.count, 'task')}) can never run: {one.reason.why}"
            yield problem("jobs", text, f"windlass why {one.demand}; then change the groups, or cancel it")


def _sources(config: Config, before: ControllerState | None, led: bool) -> Iterator[Check]:
    sight = seen(config, remembered=before is not None)
    if not led:
        yield from _unattended(sight)
    observation, limit = sight.observation, seconds(config.settings.policy.observe_timeout)
    for name, many in observation.instances.items():
        where, text = f"provider {name}", observation.problems.get(f"provider {name}")
        if many is None or text:
            yield problem(where, text or f"gave no answer within {limit}", _source_remedy(config, name, sight))
        else:
            yield ok(where, f"lists {plural(len(many), 'machine')} of this cluster")
            yield from _diagnosed_provider(config, name)
            yield from _offered(config, name)
    if observation.work is None or "workload" in observation.problems:
        text = observation.problems.get("workload", f"gave no answer within {limit}")
        yield problem("workload", text, f"check workload in {config_file()}; without it nothing is planned")
    else:
        tasks = sum(one.count for one in observation.work.demand.values())
        yield ok("workload", f"{plural(len(observation.work.node), 'host')} joined, {plural(tasks, 'task')} waiting")
        yield from _hosts(sight)
        yield from _never(sight)
        yield from _diagnosed(config)
    for mistake in observation.mistakes:
        yield note("workload", f"ignored: {mistake}", "correct it where it was submitted")
    if before is not None:
        yield from _leaks(config, sight, before)


def _diagnosed(config: Config) -> Iterator[Check]:
    """Return the checks that the workload makes itself."""

    async def asked() -> Sequence[Diagnosis]:
        components = build_components(config, read_only=True)
        try:
            return await components.workload.diagnose() if isinstance(components.workload, Diagnosed) else ()
        finally:
            await components.close()

    try:
        for one in asyncio.run(asked()):
            yield problem("workload", one.text, one.remedy) if one.remedy else ok("workload", one.text)
    except WorkloadError as error:
        yield problem("workload", str(error), f"check workload in {config_file()}")


def _diagnosed_provider(config: Config, name: str) -> Iterator[Check]:
    """Return the checks that a provider makes itself."""

    async def asked() -> Sequence[str]:
        components = build_components(config, read_only=True)
        try:
            provider = components.providers[name]
            return await provider.diagnose() if isinstance(provider, DiagnosedProvider) else ()
        finally:
            await components.close()

    try:
        for text in asyncio.run(asked()):
            yield problem(f"provider {name}", text, "until then it is not used; other machines still are")
    except ProviderError as error:
        yield problem(f"provider {name}", str(error), f"check providers.{name} in {config_file()}")


def _offered(config: Config, name: str) -> Iterator[Check]:
    """Compare the price and the resources of groups that name a machine type with those of their provider."""

    async def asked() -> Sequence[Offering]:
        components = build_components(config, read_only=True)
        try:
            async with asyncio.timeout(config.settings.policy.observe_timeout):
                return await components.providers[name].offerings()
        finally:
            await components.close()

    groups = [one.group for one in config.settings.groups if one.provider == name and one.settings.get(MACHINE_TYPE)]
    settings = {one.group.name: one.settings for one in config.settings.groups}
    if not groups:
        return
    try:
        offerings = asyncio.run(asked())
    except (ProviderError, TimeoutError) as error:
        yield note(f"provider {name}", f"its machine types cannot be checked: {str(error) or 'no answer'}")
        return
    for group in groups:
        where, kind = f"groups.{group.name}", str(settings[group.name][MACHINE_TYPE])
        found = [one for one in offerings if one.name == kind]
        if offerings and not found:
            yield note(where, f"{name} does not list the machine type {kind}", "windlass offers lists the types")
        same = [one for one in found if one.preemptible == group.preemptible] or found
        if not same:
            continue
        has = dict(same[0].resources)
        for resource, amount in group.resources:
            if resource in has and amount > has[resource]:
                text = f"has more {resource} than a {kind}: machines would start, but the tasks would not fit"
                yield note(where, text, f"lower resources.{resource} in {config_file()}")
        price = min((one.price for one in same if one.price is not None), default=None)
        if price is not None and group.price is not None and abs(price - group.price) * 10 > price:
            text = f"price is {format_money(group.price)}/h, and {name} has {kind} for {format_money(price)}/h"
            yield note(where, text, f"correct groups.{group.name}.price in {config_file()}, or leave it out")


def _source_remedy(config: Config, name: str, sight: LiveView) -> str:
    kind = config.providers[name].type
    if name in sight.denied:
        return f"give this user credentials for {name} ({kind}), and run windlass doctor again"
    return f"check providers.{name} ({kind}) in {config_file()}; until it answers nothing is released"


def _leaks(config: Config, sight: LiveView, before: ControllerState) -> Iterator[Check]:
    """Find instances without a record, and records without an instance. Both must hold before and after the look: a
    controller that runs launches and ends meanwhile."""
    after, listed, found = sight.controller_state.fleet, set[str](), False
    for name, many in sight.observation.instances.items():
        ours = set(many or ())
        listed |= ours
        for slice_id in sorted(ours - after.slices.keys() - after.gone.keys()):
            found = True
            text = f"{name} lists {slice_id} as a machine of this cluster, but the journal has no record of it"
            yield problem("leaked", text, "a controller adopts it at its next pass: windlass run")
    missing = [
        one
        for one in after.slices.values()
        if one.id in before.fleet.slices
        and one.id not in listed
        and sight.observation.instances.get(one.provider) is not None
        and _should_show(before.fleet.slices[one.id])
        and _should_show(one)
    ]
    for one in sorted(missing, key=lambda one: one.id):
        found = True
        lost = f"a controller counts it as lost after {seconds(config.settings.policy.vanish_timeout)}"
        text = f"{one.id} is {one.state} in the journal, but {one.provider} does not list it"
        yield problem("missing", text, f"{lost}: windlass why {one.id}")
    if not found:
        yield ok("leaks", "every machine has a record, and every record has its machine")


def _should_show(record: SliceRecord) -> bool:
    return record.seen and record.state in OFFERING | RECALLABLE


def _slices(controller_state: ControllerState) -> Iterator[Check]:
    held = [one for one in controller_state.fleet.slices.values() if one.quarantine]
    stuck = [one for one in controller_state.fleet.slices.values() if one.state == State.TERMINATE_FAILED]
    for one in held:
        text = f"{one.id} is quarantined as {one.state}: {one.quarantine}"
        yield problem("machine", text, f"if nothing runs there, end it at {one.provider}; windlass why {one.id}")
    for one in stuck:
        text = f"{one.id} cannot be ended: {one.reason.why}"
        remedy = f"Windlass keeps trying, and the machine costs money; end it at {one.provider} by hand"
        yield problem("machine", text, remedy)
    calls = {name: text for name, text in controller_state.observed.problems.items() if name.startswith("slice ")}
    for name, text in sorted(calls.items()):
        yield problem("calls", f"{problem_name(name)}: {text}", f"windlass why {name.removeprefix('slice ')}")
    if not held and not stuck and not calls:
        live = [one for one in controller_state.fleet.slices.values() if one.state in COUNTED]
        coming = sum(one.state in IN_FLIGHT for one in live)
        yield ok("machines", f"{plural(len(live), 'machine')}, {coming} of them starting; none is stuck")
    for subject, by in sorted(controller_state.fleet.frozen.items()):
        what = "everything" if subject == "*" else subject
        yield note("frozen", f"{what} is frozen by {by}", "windlass resume" + ("" if subject == "*" else f" {subject}"))


# -- for people ----------------------------------------------------------------------------------------------------

_STYLES: Final = {"ok": "green", "problem": "bold red", "note": "yellow"}


def _page(checks: list[Check], bad: int, steps: tuple[str, ...]) -> Iterator[RenderableType]:
    table = grid("-", "-", "fold")
    for one in checks:
        remedy = f"\n-> {one.remedy}" if one.remedy else ""
        table.add_row(Text(one.verdict, style=_STYLES[one.verdict]), one.about, f"{one.text}{remedy}")
    yield table
    yield Text(f"\n{plural(bad, 'problem')}" if bad else "\nno problems", style="bold red" if bad else "bold green")
    yield next_steps(*steps)


def _size(amount: int) -> str:
    for unit, power in (("GB", 30), ("MB", 20), ("kB", 10)):
        if amount >= 2**power:
            return f"{amount / 2**power:.1f} {unit}"
    return f"{amount} bytes"
