"""Reads the files of real pods and real prices that the cost of a plan is measured with.

They are not part of the package. ``WINDLASS_DATA`` names their directory; without it, ``shared/data`` next to the
repository is tried.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from windlass.core.model.conditions import parse_condition
from windlass.core.model.quantities import parse_money
from windlass.core.model.snapshot import Bundle, Choose, Cluster, Demand, Group, Snapshot, amounts

POD_FILES = ("pods_openb_default.csv", "pods_openb_gpuspec33.csv")
NOT_NVIDIA = ("TPU", "Inferentia", "Trainium")
MIB = 2**20
MOST = 1_000_000
"""Slices of each group: no limit."""


@dataclass(frozen=True)
class MachineType:
    """A row of the catalogue."""

    name: str
    cpu: int
    """Thousandths."""
    memory: int
    """MiB."""
    gpus: int
    model: str
    price: int
    """Nanodollars per hour."""
    spot_price: int | None = None
    """The same for a spot machine; None: it is not sold as one."""


@dataclass(frozen=True)
class Pods:
    """Equal pods."""

    cpu: int
    memory: int
    gpu: int
    """Thousandths; below 1000 a share of one device."""
    models: tuple[str, ...]
    count: int

    def may_run_on(self, kind: MachineType) -> bool:
        """One of them alone on an empty machine."""
        fits = self.cpu <= kind.cpu and self.memory <= kind.memory and self.gpu <= kind.gpus * 1000
        return fits and (not self.models or kind.model in self.models)


@dataclass(frozen=True)
class Bound:
    """What no set of machines that holds all the pods can undercut, and the best set known, in dollars per hour."""

    lower: float
    best_known: float


def directory() -> Path:
    named = os.environ.get("WINDLASS_DATA")
    return Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"


def missing(files: Sequence[str] = ("bounds.csv", *POD_FILES)) -> str | None:
    """Why there is nothing to measure with, in a sentence; None when the catalogue and the files are there."""
    where = directory()
    absent = [name for name in ("node_catalogue.csv", *files) if not (where / name).is_file()]
    if not absent:
        return None
    return f"no {', '.join(absent)} in {where.name}: set WINDLASS_DATA to the directory that holds the shared data"


def catalogue() -> tuple[MachineType, ...]:
    """Every amd64 single-host type with CPUs only or with a whole number of NVIDIA GPUs."""
    found = []
    for row in _rows("node_catalogue.csv"):
        devices = float(row["acc_count"] or 0)
        other = row["acc_model"].startswith(NOT_NVIDIA)
        if row["arch"] != "amd64" or row["hosts"] != "1" or other or devices % 1:
            continue
        found.append(
            MachineType(
                name=f"{row['cloud']}-{row['name']}",
                cpu=round(float(row["vcpu"]) * 1000),
                memory=round(float(row["mem_gib"]) * 1024),
                gpus=int(devices),
                model=row["openb_model"] or row["acc_model"],
                price=parse_money(row["od_usd_h"]),
                spot_price=parse_money(row["spot_usd_h"]) if row["spot_usd_h"] else None,
            )
        )
    return tuple(found)


def pods(name: str, kinds: tuple[MachineType, ...]) -> tuple[tuple[Pods, ...], int]:
    """The pods of a file, as they come, and how many were left out because no type has what
    they need."""
    found, left_out = [], 0
    for row in _rows(name):
        devices, share = int(row["num_gpu"]), int(row["gpu_milli"])
        one = Pods(
            cpu=int(row["cpu_milli"]),
            memory=int(row["memory_mib"]),
            gpu=devices * (share if devices == 1 else 1000),
            models=tuple(model for model in row["gpu_spec"].split("|") if model),
            count=int(row["count"]),
        )
        if any(one.may_run_on(kind) for kind in kinds):
            found.append(one)
        else:
            left_out += one.count
    return tuple(found), left_out


def bounds() -> dict[str, Bound]:
    """By the name of the pods' file."""
    return {
        row["pods"]: Bound(float(row["lower_bound_usd_h"]), float(row["best_known_usd_h"]))
        for row in _rows("bounds.csv")
    }


def as_snapshot(work: tuple[Pods, ...], kinds: tuple[MachineType, ...], choose: Choose, effort: int = 1) -> Snapshot:
    """What ``plan`` takes."""
    groups = tuple(
        Group(
            kind.name,
            _amounts(kind.cpu, kind.memory, kind.gpus * 1000),
            max=MOST,
            labels={"gpu-model": kind.model} if kind.model else {},
            price=kind.price,
        )
        for kind in kinds
    )
    demands = tuple(
        Demand(
            f"pods-{index:03}",
            (Bundle(_amounts(one.cpu, one.memory, one.gpu), one.count),),
            where=(parse_condition(f"gpu-model in ({', '.join(one.models)})"),) if one.models else (),
        )
        for index, one in enumerate(work)
    )
    return Snapshot(groups, demands=demands, cluster=Cluster(choose=choose, effort=effort))


def _amounts(cpu: int, memory: int, gpu: int) -> tuple[tuple[str, int], ...]:
    given = {"cpu": cpu, "memory": memory * MIB, "gpu": gpu}
    return amounts({name: amount for name, amount in given.items() if amount})


def _rows(name: str) -> list[dict[str, str]]:
    with (directory() / name).open(newline="") as file:
        return list(csv.DictReader(file))
