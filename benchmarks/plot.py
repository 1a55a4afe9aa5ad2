"""Draws pictures of the stored results for ``docs/images``."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .karpenter_mix import MEASURED
from .parts import WHO, by_part
from .spot import FIRM, SPOT

BLUE, ORANGE, GREY = "#2563eb", "#ea580c", "#6b7280"
COLOURS = {"best-fit": BLUE, "cheapest": ORANGE, "fewest": ORANGE}


def draw(results: dict[str, dict[str, Any]], directory: Path) -> list[Path]:
    """One picture for each result that has rows; the files that were written."""
    import_module("matplotlib").use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawer in _drawers().items():
        if results.get(name, {}).get("rows"):
            path = directory / f"benchmark-{name.replace('_', '-')}.png"
            _save(drawer(results[name]["rows"]), path)
            written.append(path)
    return written


def has_picture(name: str) -> bool:
    """Whether a picture is drawn of a benchmark."""
    return name in _drawers()


def _drawers() -> dict[str, Callable[[list[dict[str, Any]]], Any]]:
    return {
        "growth": _growth,
        "karpenter_mix": _karpenter_mix,
        "cost_bound": _cost_bound,
        "against_ray": _against_ray,
        "loop": _loop,
        "simulating": _simulating,
        "traces": _traces,
        "parts": _parts,
        "spot": _spot,
        "pool": _pool,
    }


def _save(figure: Any, path: Path) -> None:
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color="#e5e7eb", linewidth=0.6)
        axes.set_axisbelow(True)
    figure.tight_layout()
    # Without the name of the program that drew it, equal pictures are equal files.
    figure.savefig(path, dpi=110, metadata={"Software": None})
    import_module("matplotlib.pyplot").close(figure)


def _figure(columns: int = 1, width: float = 9, height: float = 3.6) -> Any:
    return import_module("matplotlib.pyplot").subplots(1, columns, figsize=(width, height), squeeze=False)


def _growth(rows: list[dict[str, Any]]) -> Any:
    figure, ((left, right),) = _figure(2)
    for axes, axis in ((left, "demands"), (right, "nodes")):
        for choose in dict.fromkeys(row["choose"] for row in rows):
            some = [row for row in rows if row["axis"] == axis and row["choose"] == choose]
            x = [row[axis] for row in some]
            axes.plot(x, [row["seconds"] for row in some], "o-", color=COLOURS[choose], label=f"plan, {choose}")
            if axis == "demands":
                whole = [row["with_dict_seconds"] for row in some]
                axes.plot(x, whole, "o:", color=COLOURS[choose], alpha=0.5, label=f"with to_dict, {choose}")
        axes.set(xscale="log", xlabel=axis, ylabel="CPU seconds", ylim=(0, None))
        axes.legend(frameon=False, fontsize=8)
    left.set_title("Demands in 100 shapes", fontsize=10)
    right.set_title("Half-free nodes under 1,000,000 demands", fontsize=10)
    return figure


def _karpenter_mix(rows: list[dict[str, Any]]) -> Any:
    figure, ((axes,),) = _figure(width=7)
    largest = [row for row in rows if row["pods"] == max(one["pods"] for one in rows)]
    names = [*(f"Windlass\n{row['choose']}" for row in largest), "Karpenter 1.15\n(its own pods)"]
    values = [*(row["pods_per_second"] for row in largest), MEASURED]
    bars = axes.bar(names, values, color=[*(COLOURS[row["choose"]] for row in largest), GREY], width=0.6)
    axes.bar_label(bars, [f"{value:,.0f}" for value in values], fontsize=9)
    axes.set(
        ylabel="pods per second", title=f"{largest[0]['pods']:,} pods of five kinds, {largest[0]['groups']} groups"
    )
    return figure


def _cost_bound(rows: list[dict[str, Any]]) -> Any:
    files = list(dict.fromkeys(row["pods"] for row in rows))
    figure, (axes_of,) = _figure(len(files), width=11, height=3.4)
    for axes, name in zip(axes_of, files, strict=True):
        some = [row for row in rows if row["pods"] == name and "configuration LP" not in row["who"]][::-1]
        colours = [BLUE if row["who"].startswith("Windlass") else GREY for row in some]
        bars = axes.barh([row["who"].split(" (")[0] for row in some], [row["ratio"] for row in some], color=colours)
        axes.bar_label(bars, [f" {row['ratio']:.3f}" for row in some], fontsize=8)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlim(0.9, max(row["ratio"] for row in some) * 1.08)
        axes.tick_params(labelsize=8)
        axes.set_xlabel("cost / lower bound", fontsize=9)
        axes.set_title(name.removesuffix(".csv"), fontsize=10)
    return figure


def _against_ray(rows: list[dict[str, Any]]) -> Any:
    grid = [
        row for row in rows if (row["input"]["shapes"], row["input"]["types"], row["input"]["gangs"]) == (10, 5, "none")
    ]
    figure, ((left, right),) = _figure(2, width=10)
    for axes, fill in ((left, "half"), (right, "full")):
        for style, nodes in zip(("o:", "o--", "o-"), sorted({row["input"]["nodes"] for row in grid}), strict=False):
            some = sorted(
                (row for row in grid if row["input"]["nodes"] == nodes and row["input"]["fill"] == fill),
                key=lambda row: row["input"]["demands"],
            )
            ended = [row for row in some if row["ray"]]
            axes.plot(
                [row["input"]["demands"] for row in ended],
                [row["ray"]["seconds"] for row in ended],
                style,
                color=GREY,
                label=f"Ray, {nodes:,} nodes",
            )
            for way in ("best-fit", "fewest"):
                axes.plot(
                    [row["input"]["demands"] for row in some],
                    [row["windlass"][way]["seconds"] for row in some],
                    style,
                    color=COLOURS[way],
                    label=f"Windlass {way}, {nodes:,}",
                )
        axes.axhline(grid[0]["limit"], color="black", linewidth=0.6)
        axes.set(xscale="log", yscale="log", xlabel="demands", ylabel="CPU seconds")
        axes.set_title(f"{fill}{'-free' if fill == 'half' else ''} nodes; Ray ends at the line", fontsize=10)
    right.legend(frameon=False, fontsize=7, bbox_to_anchor=(1, 1), loc="upper left")
    return figure


def _loop(rows: list[dict[str, Any]]) -> Any:
    figure, ((axes,),) = _figure(1)
    places = range(len(rows))
    for shift, (name, colour) in enumerate((("p50", BLUE), ("p99", ORANGE), ("longest", GREY))):
        bars = axes.bar([place + 0.25 * shift for place in places], [1000 * row[name] for row in rows], 0.22)
        for bar in bars:
            bar.set_color(colour)
        bars.set_label(name)
    axes.set_xticks([place + 0.25 for place in places], [f"{row['slices']:,} slices" for row in rows])
    axes.set(ylabel="ms for one pass")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _simulating(rows: list[dict[str, Any]]) -> Any:
    figure, ((axes,),) = _figure(width=7, height=2.2)
    bars = axes.barh([row["what"] for row in rows], [row["seconds"] for row in rows], color=BLUE)
    axes.bar_label(bars, [f" {row['days']:,.0f} days, {row['passes']:,} passes" for row in rows], fontsize=8)
    axes.set(xscale="log", xlabel="CPU seconds of one core")
    axes.set_xlim(1, max(row["seconds"] for row in rows) * 20)
    return figure


def _traces(rows: list[dict[str, Any]]) -> Any:
    """Bars, not a frontier: the waits of nearly all policies are one boot, and lie on one line."""
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    figure, (axes_of,) = _figure(len(traces), width=12, height=4.2)
    for axes, trace in zip(axes_of, traces, strict=True):
        some = sorted((row for row in rows if row["trace"] == trace), key=lambda row: -float(row["ratio"]))
        colours = [BLUE if row["who"].startswith("Windlass") else GREY for row in some]
        bars = axes.barh([row["who"] for row in some], [row["ratio"] for row in some], color=colours)
        axes.bar_label(bars, [f" {row['ratio']:.3f}, p95 {row['wait_p95']:.0f} s" for row in some], fontsize=8)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log")
        axes.set_xlim(0.9, max(row["ratio"] for row in some) * 4)
        axes.tick_params(labelsize=8)
        axes.set_xlabel("cost / offline bound; wait of a job, 95th percentile", fontsize=9)
        axes.set_title(f"{trace}: {some[0]['jobs']:,} jobs", fontsize=10)
    return figure


def _pool(rows: list[dict[str, Any]]) -> Any:
    figure, ((axes,),) = _figure(width=7, height=2.6)
    colours = [BLUE if row["who"] == "Windlass" else GREY for row in rows]
    axes.barh([row["who"] for row in rows], [row["seconds"] for row in rows], color=colours)
    axes.set(xscale="log", xlabel=f"seconds for {rows[0]['tasks']:,} tasks that do nothing")
    axes.invert_yaxis()
    return figure


def _parts(rows: list[dict[str, Any]]) -> Any:
    """For each part the cost of each policy, as a multiple of the offline bound."""
    figure, ((axes,),) = _figure(1, width=11)
    parts = by_part(rows)
    width = 0.8 / len(WHO)
    for number, (who, colour) in enumerate(zip(WHO, (GREY, BLUE, "#93c5fd", ORANGE), strict=True)):
        places = [index + number * width for index in range(len(parts))]
        axes.bar(places, [part[who]["ratio"] for part in parts.values()], width, color=colour, label=who)
    axes.set_xticks([index + 0.4 - width / 2 for index in range(len(parts))], list(parts), fontsize=8)
    axes.set(ylabel="cost / offline bound")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _spot(rows: list[dict[str, Any]]) -> Any:
    """Dollars with spot machines, as a share of those without, for jobs of each length."""
    figure, ((axes,),) = _figure(1, width=7)
    lengths = list(dict.fromkeys(row["longest"] for row in rows))
    firm, spot = ([row for row in rows if row["who"] == who] for who in (FIRM, SPOT))
    shares = [100 * one["dollars"] / other["dollars"] for one, other in zip(spot, firm, strict=True)]
    bars = axes.bar([f"at most {length}" for length in lengths], shares, color=BLUE, width=0.5)
    lost = [
        f"{share:.0f} %\n{100 * row['lost']:.1f} % of the work lost" for share, row in zip(shares, spot, strict=True)
    ]
    axes.bar_label(bars, lost, fontsize=8)
    axes.axhline(100, color="black", linewidth=0.8)
    axes.set(ylabel="% of the cost on demand", ylim=(0, 1.25 * max(100, *shares)))
    axes.set_title("Spot and on demand, by the length of jobs", fontsize=10)
    return figure
