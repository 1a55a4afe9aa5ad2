"""Host matching assigns a separate host to each member of a gang where not every host can take every member."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from windlass.core.capacity.room import Bools


def match(counts: Sequence[int], fits: Sequence[Bools]) -> list[list[int]] | None:
    """Returns a separate place for each task: ``counts[kind]`` tasks of each kind on places where ``fits[kind]``.

    Places that take the same kinds are one class, so this is a flow between a few kinds and a few classes: a task
    without a free place moves others, along the shortest chain of moves. None when there is no assignment.
    """
    classes: dict[tuple[bool, ...], list[int]] = {}
    for place, takes in enumerate(zip(*(fit.tolist() for fit in fits), strict=True)):
        classes.setdefault(takes, []).append(place)
    kinds, takes_of = range(len(counts)), list(classes)
    flow = {(kind, index): 0 for kind in kinds for index in range(len(takes_of))}
    free = [len(classes[takes]) for takes in takes_of]
    for kind, count in enumerate(counts):
        while count:
            path = _chain(kind, takes_of, flow, free)
            if path is None:
                return None
            some = min([count, free[path[-1][1]], *(flow[mover, index] for mover, index in _vacated(path))])
            for mover, index in _vacated(path):
                flow[mover, index] -= some
            for mover, index in path:
                flow[mover, index] += some
            free[path[-1][1]] -= some
            count -= some
    left = {index: iter(classes[takes]) for index, takes in enumerate(takes_of)}
    return [[next(left[index]) for index in left for _ in range(flow[kind, index])] for kind in kinds]


def _vacated(path: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Returns what a chain of moves vacates. Each (kind, class) of a chain moves into the class that the next kind
    leaves."""
    return [(later[0], earlier[1]) for earlier, later in pairwise(path)]


def _chain(
    kind: int, takes_of: list[tuple[bool, ...]], flow: dict[tuple[int, int], int], free: list[int]
) -> list[tuple[int, int]] | None:
    """Returns the shortest chain of moves that gives one more task of a kind a place."""
    border: list[list[tuple[int, int]]] = [[]]
    seen = {kind}
    while border:
        longer = []
        for path in border:
            mover = kind if not path else path[-1][0]
            reach = [index for index, takes in enumerate(takes_of) if takes[mover]]
            for index in reach:
                if free[index]:
                    return [*path[:-1], (mover, index)] if path else [(mover, index)]
            for index in reach:
                for other in range(len(takes_of[0])):
                    if other not in seen and flow[other, index]:
                        seen.add(other)
                        longer.append([*path[:-1], (mover, index), (other, -1)])
        border = longer
    return None
