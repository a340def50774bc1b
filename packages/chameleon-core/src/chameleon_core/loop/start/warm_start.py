"""What earlier runs found best, to be measured first.

Networks share layers, and layers of other sizes share knobs: a configuration that was best there
is legal here more often than not, and seldom bad. Everything is measured again: times of another
day, or of another state of the machine, are no results of this run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from chameleon_core.loop.start.nearest import encoded, nearest
from chameleon_core.run_folder import read_store
from chameleon_core.space import DesignSpace
from chameleon_core.task import Task

OF_THE_TASK = 3
"""Configurations suggested of an earlier run's very same task."""


@attrs.frozen(kw_only=True, eq=False)
class _Known:
    """A task of an earlier run with its best configurations, decoded, the best one first."""

    task: Task
    best: tuple[Mapping[str, Any], ...]


class WarmStart:
    """The best configurations of earlier runs.

    Args:
        folders: run folders; nothing but read.

    Raises:
        RunFolderError: one of them is no run folder, or cannot be read.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._known = [known for folder in folders for known in _tasks_of(folder)]

    def suggestions(self, task: Task, space: DesignSpace) -> list[tuple[int, ...]]:
        """Legal configurations of a task's space, the most promising ones last.

        Those of the same task if an earlier run had it, else the best ones of the tasks on the
        same target that have most arguments in common with it.
        """
        found: list[Mapping[str, Any]] = []
        for known in self._known:
            if known.task.key == task.key:
                found += known.best[:OF_THE_TASK]
        if not found:
            found = [known.best[0] for known in self._similar(task)]
        configs = (encoded(space, decoded) for decoded in reversed(found))
        return [config for config in configs if config is not None]

    def _similar(self, task: Task) -> list[_Known]:
        alike = [
            known
            for known in self._known
            if known.task.operator == task.operator and known.task.target == task.target
        ]
        return nearest(task.arguments, alike, lambda known: known.task.arguments)


def _tasks_of(folder: Path) -> list[_Known]:
    found = []
    with read_store(folder) as store:
        for stored in store.tasks():
            measurements = store.measurements(stored.id)
            costs = np.array([m.cost for m in measurements], np.float64)
            decoded = store.decoded(stored.id)
            order = [i for i in np.argsort(costs, kind="stable") if math.isfinite(costs[i])]
            best = tuple(decoded[i] for i in order[:OF_THE_TASK])
            if best:
                found.append(_Known(task=stored.task, best=best))
    return found
