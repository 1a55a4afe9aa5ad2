"""``windlass replay`` repeats recorded decisions, or estimates what other settings would have cost."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from windlass import __version__
from windlass.cli.commands.whatif.simulate.trace import progress
from windlass.cli.connection.open_journal import stop
from windlass.cli.ui.instants import read_instant
from windlass.cli.ui.output import content, write, write_file
from windlass.config import ConfigError
from windlass.config.from_journal import changed_settings
from windlass.control.replay import Replay, ReplayMismatch, Unreadable, replayed
from windlass.control.settings import Settings
from windlass.core.model.reasons import plural, seconds
from windlass.journal import Journal, JournalError, open_journal
from windlass.sim.trace.charts import curves, page
from windlass.sim.trace.metrics import Sample
from windlass.sim.whatif.history import RecordedHistory
from windlass.sim.whatif.recording import recording_of
from windlass.sim.whatif.rerun import modelled

SCHEMA = "windlass.replay/v1"
SHOWN = 400
"""The number of characters of a record that are shown; the JSON has all."""
COLUMNS = ("recorded", "model as recorded", "model as changed")


@click.command(
    "replay",
    epilog="Exit status: 0 all decisions are equal, or the what-if is shown; 1 one differs, or a file is wrong.",
)
@click.argument("address", metavar="JOURNAL")
@click.option("--set", "changes", multiple=True, metavar="PATH=VALUE", help="Change a setting, such as gpu.max=8.")
@click.option(
    "--policy", "policy_file", metavar="FILE", help="A part of a configuration that overrides the recorded one."
)
@click.option(
    "--since",
    callback=read_instant,
    metavar="TIME",
    help="Only what was recorded from then on: '7d ago', 2026-03-01T14:02 or 14:02.  [default: all of it]",
)
@click.option(
    "--seed", type=int, default=0, show_default=True, help="The seed of the model; the same seed gives the same run."
)
@click.option(
    "--picture", metavar="FILE.html", help="Draw demand, capacity and cost over time, as recorded and in the model."
)
@click.option("--json", "as_json", is_flag=True, help="The answer as JSON.")
def command(
    address: str,
    changes: tuple[str, ...],
    policy_file: str | None,
    since: float | None,
    seed: int,
    picture: str | None,
    as_json: bool,
) -> None:
    """Repeat every decision in JOURNAL from the recorded observations, and compare the results byte for byte.

    With --set or --policy, it shows what other settings would have cost. The recorded work runs in a simulated cloud
    with the recorded boot times and refusals: once under the recorded settings, which shows how good the model is, and
    once under the changed ones. Only the journal is read, and it is not changed.

    \b
    Examples:
      windlass replay .windlass/journal.db
      windlass replay .windlass/journal.db --set gpu.scale_down.idle_timeout=30m --picture replay.html
      windlass replay .windlass/journal.db --since '7d ago' --set gpu.max=8
    """
    policy = content(policy_file) if policy_file is not None else None
    try:
        with open_journal(address, create=False) as journal:
            if not journal.last_seq():
                stop(f"{address}: nothing is recorded in it yet")
            if changes or policy is not None or picture:
                asked = _Asked(address, changes, policy, since, seed, quiet=as_json)
                code = _what_if(journal, asked, picture)
            else:
                code = _exactly(journal, address, since, as_json=as_json)
    except (JournalError, Unreadable) as error:
        stop(_why_not(address, str(error)))
    except ConfigError as error:
        stop("\n".join(error.mistakes))
    sys.exit(code)


def _why_not(address: str, error: str) -> str:
    if Path(address).suffix in (".yaml", ".yml"):
        return f"{address}: is a configuration; give its journal, such as .windlass/journal.db"
    return error


# -- the same decisions --------------------------------------------------------------------------------------------


def _exactly(journal: Journal, address: str, since: float | None, *, as_json: bool) -> int:
    found = replayed(journal, since=since)
    if since is not None and not found.passes and not found.unmarked:
        stop(f"{address}: nothing was recorded in it since {_when(since)}")
    if as_json:
        write(json.dumps(_data(address, found, None), indent=2) + "\n")
    else:
        is_cut = bool(found.began_at) and (since is None or journal.latest_state(since) is None)
        write("\n".join(_page(address, found, is_cut=is_cut)) + "\n")
    return 1 if found.differing or not found.passes else 0


def _data(address: str, report: Replay, what_if: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "journal": address,
        "since": report.since,
        "until": report.until,
        "passes": report.passes,
        "decisions": report.decisions,
        "differing": report.differing,
        "first": asdict(report.first) if report.first is not None else None,
        "unmarked": report.unmarked,
        "began_at": report.began_at,
        "versions": report.versions,
        "what_if": what_if,
    }


def _page(address: str, report: Replay, *, is_cut: bool) -> Iterator[str]:
    """Return the report. ``is_cut``: whether --since is before the first record of the journal."""
    if is_cut:
        yield f"It begins with the checkpoint at record {report.began_at}: earlier records are compacted."
    if report.unmarked:
        yield (
            f"{_passes(report.unmarked)} cannot be repeated: an older version, or a shadow, recorded them without "
            "all their inputs."
        )
    if not report.passes or report.since is None or report.until is None:
        yield f"{address}: it has no pass that can be repeated; only those of newer versions can."
        return
    if report.unmarked:
        yield f"Those from {_when(report.since)} on can."
    span = seconds(round(report.until - report.since))
    summary = f"{address}: {_passes(report.passes)} over {span}, {plural(report.decisions, 'decision')}"
    if report.first is None:
        yield f"{summary}, all equal"
        yield ""
        yield f"next: windlass replay {address} --set GROUP.max=N"
        return
    yield f"{summary}; {_passes(report.differing)} came out differently"
    yield ""
    yield from _mismatch(report.first)
    if report.versions and set(report.versions) != {__version__}:
        yield f"They were recorded by windlass {', '.join(report.versions)}; this is {__version__}."


def _mismatch(mismatch: ReplayMismatch) -> Iterator[str]:
    yield f"the first is pass {mismatch.number}, at {_when(mismatch.at)}, record {mismatch.seq}"
    yield f"  recorded  {_short(mismatch.recorded)}"
    yield f"  now       {_short(mismatch.again)}"


def _passes(count: int) -> str:
    return f"{count:,} {'pass' if count == 1 else 'passes'}"


def _short(text: str) -> str:
    return (text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}...") or "nothing"


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


# -- what if -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Asked:
    """The journal, the time span and the changes of a what-if."""

    address: str
    changes: tuple[str, ...]
    policy: bytes | None
    since: float | None
    seed: int
    quiet: bool

    def changed(self, settings: Settings) -> Settings:
        return changed_settings(settings, changes=self.changes, policy=self.policy, path=self.address)

    def changed_then(self) -> Callable[[Settings], Settings]:
        """Apply the changes to earlier settings, once for each. A group that did not exist then cannot be changed."""
        was: Settings | None = None
        then: Settings | None = None

        def change(settings: Settings) -> Settings:
            nonlocal was, then
            if settings is not was or then is None:
                was = then = settings
                with suppress(ConfigError):
                    then = self.changed(settings)
            return then

        return change


def _what_if(journal: Journal, asked: _Asked, picture: str | None) -> int:
    recording = recording_of(journal, asked.since)
    if recording is None:
        then = "" if asked.since is None else f" since {_when(asked.since)}"
        stop(f"{asked.address}: too little is recorded in it{then} for a what-if: at most one instant")
    changed = asked.changed(recording.settings)
    decided = replayed(journal, settings=asked.changed_then(), since=asked.since)
    found: list[tuple[RecordedHistory, list[Sample]]] = [(recording.happened, list(recording.samples))]
    for settings in (recording.settings, changed) if changed != recording.settings else (recording.settings,):
        with progress(enabled=not asked.quiet) as on_progress:
            happened, samples = modelled(recording, settings, seed=asked.seed, on_progress=on_progress)
        found.append((happened, list(samples)))
    assumptions = recording.all_assumptions(changed)
    columns = dict(zip(COLUMNS, found, strict=False))
    table = list(_table({name: one for name, (one, _) in columns.items()}))
    if picture:
        parts = [part for name, (_, samples) in columns.items() for part in (f"<h1>{name}</h1>", *curves(samples))]
        facts = [(row[0], " | ".join(row[1:])) for row in _rows({name: one for name, (one, _) in columns.items()})]
        write_file(picture, page(f"{asked.address}: {' | '.join(columns)}", facts, parts))
    if asked.quiet:
        names = ("recorded", "model_as_recorded", "model_as_changed")
        what_if = {
            "changes": list(asked.changes),
            "seed": asked.seed,
            **dict.fromkeys(names),
            **{name: one.to_dict() for name, (one, _) in zip(names, found, strict=False)},
            "assumptions": list(assumptions),
        }
        write(json.dumps(_data(asked.address, decided, what_if), indent=2) + "\n")
        return 0
    lines = [*table, "", *_otherwise(decided, same=changed == recording.settings), "", "Assumed in the model:"]
    lines += [f"  - {one}" for one in assumptions]
    write("\n".join([*lines, *([f"picture: {picture}"] if picture else [])]) + "\n")
    return 0


def _otherwise(decided: Replay, *, same: bool) -> Iterator[str]:
    """Describe the first decision that the changed settings would have made differently from the same observations."""
    if same:
        yield "The settings are the recorded ones."
    elif not decided.passes:
        yield "The first different decision is unknown: an older version wrote the journal."
    elif decided.first is None:
        yield f"From the same observations, it would have decided the same in each of {_passes(decided.passes)}."
    else:
        share = f"{decided.differing:,} of {_passes(decided.passes)}"
        yield f"From the same observations, it would have decided differently in {share};"
        yield from _mismatch(decided.first)


Row = tuple[str, ...]


def _rows(columns: dict[str, RecordedHistory]) -> Iterator[Row]:
    def row(name: str, shown: Callable[[RecordedHistory], str]) -> Row:
        return (name, *(shown(one) for one in columns.values()))

    digits = 2 if max(one.dollars for one in columns.values()) >= 1 else 4
    yield row("cost", lambda one: f"${one.dollars:,.{digits}f}")
    for kind in next(iter(columns.values())).accounts:
        if any(one.accounts[kind] for one in columns.values()):
            yield (f"  {kind}", *(f"${one.accounts[kind]:,.{digits}f}" for one in columns.values()))
    yield row("node-hours", lambda one: f"{one.node_hours:,.1f}")
    yield row("with work", lambda one: f"{100 * one.utilization:.1f} %")
    yield row("wait p50", lambda one: seconds(round(one.wait_p50, 1)))
    yield row("wait p95", lambda one: seconds(round(one.wait_p95, 1)))
    yield row("wait max", lambda one: seconds(round(one.wait_max, 1)))
    yield row("tasks", lambda one: f"{one.tasks:,}")
    yield row("  still waiting", lambda one: f"{one.waiting:,}")
    yield row("launches", lambda one: f"{one.launches:,}")
    yield row("  refused", lambda one: f"{one.refused:,}")
    yield row("stops", lambda one: f"{one.stops:,}")


def _table(columns: dict[str, RecordedHistory]) -> Iterator[str]:
    hours = next(iter(columns.values())).hours
    rows: list[Row] = [(f"in {seconds(round(3600 * hours))}", *columns), *_rows(columns)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        yield "   ".join(cells)
