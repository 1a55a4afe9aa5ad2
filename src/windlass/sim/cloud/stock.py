"""A StockRecording says how many spot machines were available in a zone over time.

A recording is a list of intervals with the number of machines available at once. The simulated stock of a zone follows
it: a launch beyond it is refused for lack of capacity, and when it falls, surplus machines are preempted. A recording
that is over starts again, so it serves a trace of any length.

Files have the columns ``zone, start_s, length_s, available``. All other columns distinguish recordings.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from windlass.scenario.reader import plainly
from windlass.sim.csv_files import csv_rows

from .machines import MachineKind

COLUMNS = ("zone", "start_s", "length_s", "available")


class StockError(ValueError):
    """The file has no such recordings; the message says what is wrong."""


@dataclass(frozen=True, slots=True)
class StockRecording:
    """The number of available machines in a zone, from each start on."""

    zone: str
    starts: tuple[float, ...]
    """Seconds, the first 0, in order."""
    available: tuple[int, ...]
    span: float
    """Seconds until it repeats."""

    def at(self, seconds: float) -> int:
        """Return the available machines at a time, in seconds from the start."""
        return self.available[bisect_right(self.starts, seconds % self.span) - 1]

    def next_change(self, seconds: float) -> float:
        """Return the next time at which an interval begins."""
        round_began = seconds - seconds % self.span
        index = bisect_right(self.starts, seconds - round_began)
        return round_began + (self.starts[index] if index < len(self.starts) else self.span)


def stocked(kind: MachineKind, recordings: Iterable[StockRecording], zone: str | None = None) -> MachineKind:
    """Return a kind with its zones: the group's zone or all of them; a preemptible kind has the zones of the
    recordings.
    """
    if not kind.offering.preemptible or not (stock := {one.zone: one.at(0) for one in recordings}):
        return kind if zone is None else replace(kind, offering=replace(kind.offering, zones=(zone,)))
    if zone is not None and zone not in stock:
        recorded = ", ".join(sorted(stock))
        raise StockError(
            f"{kind.offering.name} is bought in {zone}, of which there is no recording; there is {recorded}"
        )
    zones = tuple(sorted(stock)) if zone is None else (zone,)
    return replace(kind, offering=replace(kind.offering, zones=zones), stock={name: stock[name] for name in zones})


def read_recordings(file: Path, only: Mapping[str, str] | None = None) -> tuple[StockRecording, ...]:
    """Return the recordings of a file (``.csv`` or ``.csv.gz``), one per zone, from the rows whose columns have these
    values.
    """
    reader = csv_rows(file, StockError)
    names, only = tuple(reader.fieldnames or ()), dict(only or {})
    if missing := [name for name in (*COLUMNS, *only) if name not in names]:
        raise StockError(
            f"{file}: has no column {', '.join(missing)}; it has {plainly(', '.join(names))[:200] or 'none'}"
        )
    apart = [name for name in names if name not in COLUMNS[1:]]
    rows: dict[tuple[str, ...], list[tuple[float, float, int]]] = {}
    for row in reader:
        if all(row[name] == value for name, value in only.items()):
            try:
                interval = (float(row["start_s"]), float(row["length_s"]), int(row["available"]))
            except (TypeError, ValueError) as error:
                raise StockError(f"{file}, line {reader.line_num}: {error}") from None
            if interval[1] <= 0 or interval[2] < 0:
                raise StockError(f"{file}, line {reader.line_num}: length_s must be above 0, and available at least 0")
            rows.setdefault(tuple(row[name] for name in apart), []).append(interval)
    if not rows:
        raise StockError(f"{file}: no row has {', '.join(f'{name}={value}' for name, value in only.items()) or 'it'}")
    _one_a_zone(file, apart, list(rows))
    if not any(available for intervals in rows.values() for _, _, available in intervals):
        raise StockError(f"{file}: available is 0 in every row")
    return tuple(_recording(file, one[apart.index("zone")], sorted(rows[one])) for one in sorted(rows))


def _one_a_zone(file: Path, apart: list[str], found: list[tuple[str, ...]]) -> None:
    """Check that each zone has one recording: where a file has several, a column must select one."""
    by_zone: dict[str, list[tuple[str, ...]]] = {}
    for one in found:
        by_zone.setdefault(one[apart.index("zone")], []).append(one)
    for zone, several in sorted(by_zone.items()):
        if len(several) > 1:
            differ = [index for index in range(len(apart)) if len({one[index] for one in several}) > 1]
            column, values = apart[differ[0]], sorted({one[differ[0]] for one in several})
            raise StockError(
                f"{file}: {len(several)} recordings of {zone}; choose one, as with {column}={values[0]} "
                f"(there is {', '.join(values)})"
            )


def _recording(file: Path, zone: str, intervals: list[tuple[float, float, int]]) -> StockRecording:
    first, end = intervals[0][0], intervals[0][0]
    for start, length, _ in intervals:
        if abs(start - end) > 1:
            raise StockError(f"{file}: {zone} has a gap or an overlap at {min(start, end):g} s")
        end = start + length
    starts = tuple(start - first for start, _, _ in intervals)
    return StockRecording(zone, starts, tuple(available for _, _, available in intervals), end - first)
