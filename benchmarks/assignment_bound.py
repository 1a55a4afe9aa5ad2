"""Computes a lower bound on the price quickly, by allowing fractions of pods and machines.

The assignment LP: how much of each shape goes to each type, and how much of each type is bought, so that no resource of
a type is used beyond what is bought of it. Real pods and machines are whole, so no real plan is cheaper. It is weaker
than the bound of ``bounds.csv`` (configuration LP), but it is computed in this very run.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np

from .shared_data import MachineType, Pods

NANO = 1e9


def assignment_bound(work: tuple[Pods, ...], kinds: tuple[MachineType, ...]) -> float:
    """Return dollars per hour that no set of machines can undercut."""
    linprog = import_module("scipy.optimize").linprog
    coo_array = import_module("scipy.sparse").coo_array
    pairs = [(s, t) for s, pods in enumerate(work) for t, kind in enumerate(kinds) if pods.may_run_on(kind)]
    shape, kind_of = np.array(pairs).T
    columns = np.arange(len(pairs))
    # Amounts as shares of the type, so that all numbers are of one size.
    rows, cols, values = [], [], []
    needs = np.array([(pods.cpu, pods.memory, pods.gpu) for pods in work], float)
    sizes = np.array([(kind.cpu, kind.memory, kind.gpus * 1000) for kind in kinds], float)
    for resource in range(3):
        share = needs[shape, resource] / np.where(sizes[kind_of, resource], sizes[kind_of, resource], 1)
        rows += [kind_of * 3 + resource, np.arange(len(kinds)) * 3 + resource]
        cols += [columns, len(pairs) + np.arange(len(kinds))]
        values += [share, -(sizes[:, resource] > 0).astype(float)]
    within = coo_array((np.concatenate(values), (np.concatenate(rows), np.concatenate(cols))))
    placed = coo_array((np.ones(len(pairs)), (shape, columns)), shape=(len(work), len(pairs) + len(kinds)))
    cost = np.concatenate([np.zeros(len(pairs)), [kind.price / NANO for kind in kinds]])
    solved = linprog(
        cost,
        A_ub=within.tocsr(),
        b_ub=np.zeros(within.shape[0]),
        A_eq=placed.tocsr(),
        b_eq=[pods.count for pods in work],
        method="highs",
    )
    if not solved.success:
        raise RuntimeError(f"the assignment LP was not solved: {solved.message}")
    return float(solved.fun)
