"""This module counts the running tasks of each class on the nodes, slices and label values of a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from windlass.core.capacity.class_counts import NO_VALUE, ClassCounts
from windlass.core.capacity.room import UNBOUNDED
from windlass.core.model.lifecycle import ENDING, IN_FLIGHT

from .snapshot_tables import SnapshotTables


def class_counts(snapshot_tables: SnapshotTables, classes: Sequence[str]) -> ClassCounts:
    """Counts running tasks by class, on the rows of a table and in every domain."""
    columns = {name: index for index, name in enumerate(classes)}
    eligibility, rows = snapshot_tables.eligibility, snapshot_tables.rows
    keys = sorted(eligibility.domain_keys)
    running = list(_running(snapshot_tables, columns))
    of_profiles = {key: eligibility.values(key) for key in keys}
    names = {key: {value for value in of_profiles[key] if value is not None} for key in keys}
    for key, value in eligibility.domains_elsewhere:
        names[key].add(value)
    for _, _, _, labels in running:
        for key in keys:
            if key in labels:
                names[key].add(labels[key])
    values = {key: sorted(names[key]) for key in keys}
    number = {key: {value: index for index, value in enumerate(values[key])} for key in keys}

    node = np.zeros((len(rows.group), len(columns)), np.int64)
    for row, one in enumerate(snapshot_tables.nodes):
        for name, count in one.classes if one is not None else ():
            if name in columns:
                node[row, columns[name]] = count
    slices = np.zeros((len(snapshot_tables.slices), len(columns)), np.int64)
    label = {key: np.zeros((len(values[key]), len(columns)), np.int64) for key in keys}
    for position, column, count, labels in running:
        slices[position, column] += count
        for key, counts in label.items():
            if key in labels:
                counts[number[key][labels[key]], column] += count
    by_profile = {
        key: np.array([NO_VALUE if v is None else number[key][v] for v in of_profiles[key]], np.int64) for key in keys
    }
    return ClassCounts(
        columns=columns,
        values=values,
        position=rows.position,
        node=node,
        node_cap=np.full(node.shape, UNBOUNDED),
        slice_counts=slices,
        slice_cap=np.full(slices.shape, UNBOUNDED),
        value={key: by_profile[key][rows.profile] for key in keys},
        group_value={key: by_profile[key][snapshot_tables.profile_index] for key in keys},
        label=label,
        label_cap={key: np.full(table.shape, UNBOUNDED) for key, table in label.items()},
    )


def _running(
    snapshot_tables: SnapshotTables, columns: Mapping[str, int]
) -> Iterator[tuple[int, int, int, dict[str, str]]]:
    """Yields the running tasks of each class by node: the position of the slice, the column of the class, the number of
    tasks, and the labels of the node."""
    for position, item in enumerate(snapshot_tables.slices):
        if item.final or item.state in ENDING or item.state in IN_FLIGHT:
            continue
        group = snapshot_tables.group_of(position)
        for one in item.nodes:
            for name, count in one.classes:
                if name in columns:
                    of_group = snapshot_tables.groups[group].node_labels() if group is not None else {}
                    labels = {**of_group, **one.labels}
                    yield position, columns[name], count, labels
