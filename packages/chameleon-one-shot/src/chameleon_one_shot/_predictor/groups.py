"""Groups similar tasks, and divides the groups into parts such as training and evaluation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chameleon_one_shot._dataset.tasks import DatasetError, DatasetTask
from chameleon_one_shot._tokens.numbers import sizes

SIMILAR = 1.1
"""The largest ratio between the sizes of two similar tasks of one operator."""

Labels = NDArray[np.int64]


def task_groups(tasks: Sequence[DatasetTask]) -> Labels:
    """Numbers of groups from 0, shape (tasks,): similar tasks are in the same group.

    Tasks that differ only in device, layout or epilogue are similar, because their times are
    closely related.
    """
    labels = np.arange(len(tasks))
    similar = _similar(tasks)
    while True:
        merged = np.where(similar, labels[None, :], len(tasks)).min(axis=1, initial=len(tasks))
        if (merged == labels).all():
            return np.unique(labels, return_inverse=True)[1]
        labels = merged


def divide_groups(
    labels: Labels, weights: NDArray[np.float64], shares: Sequence[float], seed: int
) -> list[NDArray[np.intp]]:
    """Divide items into parts at random, without splitting groups."""
    groups = np.unique(labels)
    if len(groups) <= len(shares):
        raise DatasetError(
            f"{len(groups)} group{'s' * (len(groups) != 1)} of similar tasks cannot be divided "
            f"into {len(shares) + 1} parts",
            hint="A predictor is judged by tasks that it has not seen: collect tasks of more "
            "operators and shapes.",
        )
    order = np.random.default_rng(seed).permutation(groups)
    mass = np.bincount(np.searchsorted(groups, labels), weights)[np.searchsorted(groups, order)]
    parts: list[list[int]] = [[] for _ in range(len(shares) + 1)]
    begin, left = 0, len(order)
    for part, share in enumerate(shares, 1):
        wanted, mass_so_far = share * mass.sum(), 0.0
        after = len(shares) - part + 1  # one for each later part and the first
        while not parts[part] or (mass_so_far + mass[begin] / 2 <= wanted and left > after):
            parts[part].append(int(order[begin]))
            mass_so_far += float(mass[begin])
            begin, left = begin + 1, left - 1
    parts[0] = [int(group) for group in order[begin:]]
    return [np.flatnonzero(np.isin(labels, part)) for part in parts]


def _similar(tasks: Sequence[DatasetTask]) -> NDArray[np.bool_]:
    """Whether each pair of tasks is similar, shape (tasks, tasks)."""
    described = [sizes("", dict(task.task.arguments)) for task in tasks]
    names = sorted({name for row in described for name in row})
    table = np.array([[row.get(name, np.nan) for name in names] for row in described], np.float64)
    table = np.log1p(np.abs(table)).reshape(len(tasks), len(names))
    operators = np.array([task.task.operator for task in tasks])
    keys = np.array([task.task.key for task in tasks])
    similar = np.zeros((len(tasks), len(tasks)), np.bool_)
    for row in range(len(tasks)):
        differences = np.abs(table - table[row])
        # A size that only one task has, such as of an epilogue, does not count.
        close = (np.nan_to_num(differences, nan=0.0) <= np.log(SIMILAR)).all(axis=1)
        # Without any size in common, only the same task is similar.
        known = np.isfinite(differences).any(axis=1)
        similar[row] = (keys == keys[row]) | (close & known & (operators == operators[row]))
    return similar
