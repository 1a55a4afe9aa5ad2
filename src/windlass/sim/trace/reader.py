"""This module reads job traces from CSV files as jobs for the simulated workload.

Columns: ``job_id, submit_s, duration_s, tasks`` (per job), ``cpu, mem_gib, gpu`` (per task), ``gpu_model`` (accepted
models, separated by ``|``; empty: any), ``gang`` (1: its tasks start together). Other columns are ignored. A job
without a duration never ended; it is left out and counted.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from math import isfinite, nan
from pathlib import Path

from windlass.core.model.conditions import Condition
from windlass.core.model.reasons import plural
from windlass.core.model.snapshot import Amounts, Bundle, Demand, Gang, amounts
from windlass.sim.csv_files import csv_rows
from windlass.sim.workload.jobs import Job

MODEL = "gpu-model"
"""The label of a group that names its accelerator."""
COLUMNS = ("job_id", "submit_s", "duration_s", "tasks", "cpu", "mem_gib", "gpu", "gpu_model", "gang")


class TraceError(ValueError):
    """The file is not a trace; the message has the line and the problem."""


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs in order of arrival, the first at 0."""

    jobs: tuple[Job, ...]
    left_out: int
    """Jobs without a duration."""
    repeated: int = 0
    """Rows whose job id stood in an earlier row: each is a job of its own, under the id with a number."""

    @property
    def warning(self) -> str:
        """A warning about the file; empty: none."""
        if not self.repeated:
            return ""
        return f"{plural(self.repeated, 'job id')} stood there before; each such row is a job of its own (ID-2, ID-3)"

    @property
    def span(self) -> float:
        """Seconds from the first arrival to the last end, if every job started at once."""
        return max((job.arrives + job.duration for job in self.jobs), default=0.0)


def read_trace(file: Path, limit: int | None = None) -> Trace:
    """Return the jobs of a file (``.csv`` or ``.csv.gz``); raise ``TraceError`` if it is not a trace."""
    reader = csv_rows(file, TraceError)
    missing = [name for name in COLUMNS[:7] if name not in (reader.fieldnames or ())]
    if missing:
        raise TraceError(f"{file}: is not a trace: it has no column {', '.join(missing)}")
    jobs, left_out = [], 0
    shapes: dict[tuple[str, ...], tuple[Amounts, tuple[Condition, ...]]] = {}
    repeated: dict[str, int] = {}
    for job in _rows(file, reader, shapes, repeated):
        if job is None:
            left_out += 1
        else:
            jobs.append(job)
        if limit is not None and len(jobs) >= limit:
            break
    jobs.sort(key=lambda one: (one.arrives, one.id))
    start = jobs[0].arrives if jobs else 0.0
    return Trace(tuple(_earlier(job, start) for job in jobs), left_out, sum(repeated.values()))


def _earlier(job: Job, start: float) -> Job:
    return job if not start else Job(job.demand, job.arrives - start, job.duration, job.spread)


def _rows(
    file: Path,
    reader: csv.DictReader[str],
    shapes: dict[tuple[str, ...], tuple[Amounts, tuple[Condition, ...]]],
    repeated: dict[str, int],
) -> Iterator[Job | None]:
    """Yield the job of each row; None: it never ended. ``repeated`` counts the rows whose id was taken, by id."""
    taken = set[str]()
    for row in reader:
        name = row["job_id"]
        if name in taken:
            repeated[name] = repeated.get(name, 0) + 1
            numbers = count(repeated[name] + 1)
            row["job_id"] = next(free for number in numbers if (free := f"{name}-{number}") not in taken)
        taken.add(row["job_id"])
        try:
            yield _job(row, shapes)
        except (ValueError, TypeError, KeyError) as error:
            raise TraceError(f"{file}, line {reader.line_num}: {error}") from None


def _job(row: Mapping[str, str], shapes: dict[tuple[str, ...], tuple[Amounts, tuple[Condition, ...]]]) -> Job | None:
    if not row["duration_s"]:
        return None
    key = (row["cpu"], row["mem_gib"], row["gpu"], row.get("gpu_model") or "")
    shape = shapes.get(key)
    if shape is None:
        shape = shapes[key] = _shape(*key)
    needs, where = shape
    tasks, duration = int(_number("tasks", row["tasks"])), _number("duration_s", row["duration_s"])
    if tasks < 1 or duration < 0:
        raise ValueError(f"a job must have at least one task and a duration, has {tasks} and {duration:g} s")
    gang = Gang.ANY if (row.get("gang") or "0") == "1" and tasks > 1 else None
    demand = Demand(f"job-{row['job_id']}", (Bundle(needs, tasks),), gang, where)
    return Job(demand, _number("submit_s", row["submit_s"]), max(1.0, duration))


def _number(column: str, text: str | None) -> float:
    try:
        value = nan if text is None else float(text)
    except ValueError:
        value = nan
    if not isfinite(value):
        raise ValueError(f"{column} must be a number, is {'missing' if text is None else repr(text)}")
    return value


def _shape(cpu: str, memory: str, gpu: str, models: str) -> tuple[Amounts, tuple[Condition, ...]]:
    needs = {
        "cpu": round(_number("cpu", cpu) * 1000),
        "memory": round(_number("mem_gib", memory) * 2**30),
        "gpu": round(_number("gpu", gpu) * 1000),
    }
    if any(amount < 0 for amount in needs.values()):
        raise ValueError(f"needs must not be negative: cpu {cpu}, mem_gib {memory}, gpu {gpu}")
    if needs["gpu"] > 1000 and needs["gpu"] % 1000:
        raise ValueError(f"gpu {gpu}: above 1 it must be a whole number")
    where = (Condition(MODEL, "in", tuple(models.split("|"))),) if models else ()
    return amounts({name: amount for name, amount in needs.items() if amount}), where
