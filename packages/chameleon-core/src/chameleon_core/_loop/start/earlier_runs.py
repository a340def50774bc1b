"""The configurations that a run takes from earlier runs when it begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np
import structlog

from chameleon_core._errors import ConfigError
from chameleon_core._space.design import DesignSpace
from chameleon_core._store.records import RecordStore
from chameleon_core._task import Task

log = structlog.get_logger()

OF_THE_TASK = 3
"""Number of configurations suggested from the same task of an earlier run."""


@attrs.frozen(kw_only=True, eq=False)
class _Known:
    """A task of an earlier run, and its best configurations as knob values, best first."""

    task: Task
    best: tuple[Mapping[str, Any], ...]


class WarmStart:
    """Suggests the best configurations of earlier runs, to be measured first in this run.

    Args:
        folders: run folders, which are only read.

    Raises:
        RunFolderError: one of ``folders`` is no run folder, or cannot be read.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._known = [known for folder in folders for known in _tasks_of(folder)]

    def suggestions(self, task: Task, space: DesignSpace) -> list[tuple[int, ...]]:
        """Configurations of earlier runs that a task's first batch should contain, the best last.

        ``TaskTuner.suggest`` puts each suggestion in front of earlier suggestions, so the best
        configuration is measured first.

        The configurations come from the same task if an earlier run has it. Otherwise they are the
        best configurations of the most similar tasks: those with the same operator and target that
        have most arguments in common.

        Args:
            task: the task.
            space: the task's design space, in which the configurations are legal.
        """
        rows: list[Mapping[str, Any]] = []
        for known in self._known:
            if known.task.key == task.key:
                rows += known.best[:OF_THE_TASK]
        if not rows:
            rows = [known.best[0] for known in self._similar(task)]
        configs = (encoded(space, decoded) for decoded in reversed(rows))
        return [config for config in configs if config is not None]

    def _similar(self, task: Task) -> list[_Known]:
        alike = [
            known
            for known in self._known
            if known.task.operator == task.operator and known.task.target == task.target
        ]
        return nearest(task.arguments, alike, lambda known: known.task.arguments)


def _tasks_of(folder: Path) -> list[_Known]:
    tasks = []
    with RecordStore.of_run(folder) as store:
        for stored in store.tasks():
            measurements = store.measurements(stored.id)
            costs = np.array([m.cost for m in measurements], np.float64)
            decoded = store.decoded(stored.id)
            order = [i for i in np.argsort(costs, kind="stable") if math.isfinite(costs[i])]
            best = tuple(decoded[i] for i in order[:OF_THE_TASK])
            if best:
                tasks.append(_Known(task=stored.task, best=best))
    return tasks


OF_OTHERS = 2
"""Number of similar tasks whose best configuration is suggested."""

_TYPE = "dtype"
"""Suffix of the names of arguments that are dtypes."""

Known = TypeVar("Known")


def nearest(
    arguments: Mapping[str, Any],
    known: Iterable[Known],
    arguments_of: Callable[[Known], Mapping[str, Any]],
) -> list[Known]:
    """Select the known tasks that are most similar to a task, at most ``OF_OTHERS`` of them.

    The most similar task comes first: the one with the most arguments equal to those of the task.
    Among tasks with equally many, the one with the nearest shapes comes first.

    Args:
        arguments: the arguments of the task.
        known: tasks of the same operator, in any form.
        arguments_of: a function that returns the arguments of an entry of ``known``.
    """

    def order(known: Known) -> tuple[int, float]:
        others = arguments_of(known)
        common = sum(others.get(name) == value for name, value in arguments.items())
        return -common, distance(arguments, others)

    return sorted(known, key=order)[:OF_OTHERS]


def distance(own: Any, other: Any) -> float:
    """The distance between the arguments of two tasks, from the ratios of their numbers.

    A warm start uses it to find similar tasks. The distance is the sum of ``|log(a / b)|`` over all
    pairs of numbers at the same place. A number that only one task has adds 1.

    Args:
        own: the arguments of one task, or a part of them: JSON values.
        other: the same part of the other task's arguments.
    """
    mine, theirs = dict(_numbers(own)), dict(_numbers(other))
    both = mine.keys() & theirs.keys()
    missing = len(mine.keys() ^ theirs.keys())
    return missing + sum(abs(_log(mine[place]) - _log(theirs[place])) for place in both)


def same_types(own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two tasks have the same dtypes in their arguments."""
    names = {name for name in {*own, *other} if name.endswith(_TYPE)}
    return all(own.get(name) == other.get(name) for name in names)


def encoded(space: DesignSpace, decoded: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Convert knob values of an earlier run to knob indices of the present design space.

    The result is None if the values are no legal configuration of this space.

    Args:
        space: the present design space.
        decoded: the value of each knob by its name.
    """
    if decoded.keys() != space.index.keys():
        return None
    try:
        config = tuple(knob.encode(decoded[knob.name]) for knob in space.knobs)
    except ConfigError:
        return None
    return config if space.legal(np.array([config], np.int32))[0] else None


def _numbers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, (*path, name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _numbers(inner, (*path, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)


def _log(value: float) -> float:
    """Logarithm of 1 plus the absolute value, with the sign of the value.

    It is defined for paddings of 0 and for negative offsets.
    """
    return math.copysign(math.log1p(abs(value)), value)
