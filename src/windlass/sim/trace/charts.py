"""This module draws charts of simulated runs, as one self-contained HTML file with SVG curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from .metrics import CAPACITY, Sample

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 960, 220, 64, 16, 28, 28
COLOURS = {
    "busy": "#2563eb",
    "idle": "#93c5fd",
    "booting": "#fbbf24",
    "leaving": "#d1d5db",
    "waiting": "#dc2626",
    "running": "#16a34a",
    "cost": "#7c3aed",
}
STYLE = """
body { font: 14px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1000px; color: #111827; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .15rem .8rem; text-align: right; }
td:first-child, th:first-child { text-align: left; } tr:nth-child(even) { background: #f9fafb; }
svg { display: block; margin: .5rem 0 1.2rem; } .key { font-size: 12px; fill: #374151; }
.axis { stroke: #d1d5db; } .tick { font-size: 11px; fill: #6b7280; } h2 { font-size: 1rem; margin: 1.2rem 0 0; }
"""


@dataclass(frozen=True, slots=True)
class Point:
    """Cost and wait of one policy."""

    name: str
    dollars: float
    wait: float
    ours: bool = False


def page(title: str, facts: Sequence[tuple[str, str]], parts: Iterable[str]) -> str:
    """Return a complete HTML file."""
    rows = "".join(f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in facts)
    body = f"<h1>{escape(title)}</h1><table>{rows}</table>{''.join(parts)}"
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def curves(samples: Sequence[Sample]) -> Iterable[str]:
    """Return charts of demand, capacity by state, and cost over time."""
    hours = [sample.at / 3600 for sample in samples]
    tasks = {"running": [s.running for s in samples], "waiting": [s.waiting for s in samples]}
    yield "<h2>Demand: tasks</h2>" + _stacked(hours, tasks)
    nodes = {kind: [s.capacity.get(kind, 0) for s in samples] for kind in CAPACITY}
    yield "<h2>Capacity: nodes by what they do</h2>" + _stacked(hours, nodes)
    yield "<h2>Cost: dollars per hour</h2>" + _stacked(hours, {"cost": [s.cost for s in samples]})


def _stacked(hours: Sequence[float], layers: Mapping[str, Sequence[float]]) -> str:
    """Return stacked layers as step curves: each value holds until the next point."""
    if not hours:
        return "<p>nothing happened</p>"
    totals = [sum(values) for values in zip(*layers.values(), strict=True)]
    top, end = max(float(max(totals)), 1e-9), max(hours[-1], 1e-9)

    def x(hour: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * hour / end

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts, below = [], [0.0] * len(hours)
    for name, values in layers.items():
        above = [low + value for low, value in zip(below, values, strict=True)]
        outline = [*_steps(hours, above, x, y), *reversed(_steps(hours, below, x, y))]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in outline)
        parts.append(f'<polygon points="{points}" fill="{COLOURS[name]}"/>')
        below = above
    return _framed(parts, [(name, COLOURS[name]) for name in layers], _ticks(end), _ticks(top), x, y, "h")


Scale = Callable[[float], float]


def _steps(hours: Sequence[float], values: Sequence[float], x: Scale, y: Scale) -> list[tuple[float, float]]:
    found = []
    for index, value in enumerate(values):
        found.append((x(hours[index]), y(value)))
        if index + 1 < len(hours):
            found.append((x(hours[index + 1]), y(value)))
    return found


def frontier(points: Sequence[Point]) -> str:
    """Return a chart of cost against the p95 wait; nearer to the lower left is better."""
    most, longest = max(p.dollars for p in points) * 1.1 or 1.0, max(max(p.wait for p in points) * 1.1, 1.0)

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * value / most

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / longest

    parts = []
    for point in points:
        colour = COLOURS["busy"] if point.ours else "#6b7280"
        parts.append(f'<circle cx="{x(point.dollars):.1f}" cy="{y(point.wait):.1f}" r="5" fill="{colour}"/>')
        parts.append(
            f'<text class="key" x="{x(point.dollars) + 8:.1f}" y="{y(point.wait) - 6:.1f}">{escape(point.name)}</text>'
        )
    return "<h2>Cost (dollars) against p95 wait (seconds)</h2>" + _framed(
        parts, [], _ticks(most), _ticks(longest), x, y, "$"
    )


def _framed(
    parts: Iterable[str],
    keys: Sequence[tuple[str, str]],
    across: Sequence[float],
    up: Sequence[float],
    x: Scale,
    y: Scale,
    unit: str,
) -> str:
    frame = [f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(v):.1f}" y2="{y(v):.1f}"/>' for v in up]
    frame += [f'<text class="tick" x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:,g}</text>' for v in up]
    for v in across:
        label = f"{v:g} {unit}" if unit != "$" else f"${v:,g}"
        frame.append(f'<text class="tick" x="{x(v):.1f}" y="{HEIGHT - 8}" text-anchor="middle">{label}</text>')
    for index, (name, colour) in enumerate(keys):
        at = LEFT + 110 * index
        frame.append(f'<rect x="{at}" y="8" width="10" height="10" fill="{colour}"/>')
        frame.append(f'<text class="key" x="{at + 14}" y="17">{name}</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">{"".join((*frame, *parts))}</svg>'


def _ticks(top: float) -> list[float]:
    """Return about five round numbers from 0 up to the top."""
    step = 10.0 ** len(str(int(top)))
    for divisor in (2, 2.5, 2) * 10:
        if top / step >= 4:
            break
        step /= divisor
    return [step * index for index in range(int(top / step) + 1)]
