"""What a run knows of others as it begins: of earlier ones, and of record databases."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import attrs
import numpy as np
import structlog

from chameleon_core.loop.round.batch import Config
from chameleon_core.loop.round.in_flight import CheckedRunner
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.plugins.factory import load_factory
from chameleon_core.run_folder import read_store
from chameleon_core.space import DesignSpace
from chameleon_core.stages import Record
from chameleon_core.store import RecordStore
from chameleon_core.task import Task
from chameleon_core.versions import versions

log = structlog.get_logger()

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


OF_OTHERS = 2
"""Other tasks, the most similar ones, of which the best configuration is suggested."""

_TYPE = "dtype"
"""How the names of arguments end that are types of elements."""

Known = TypeVar("Known")


def nearest(
    arguments: Mapping[str, Any],
    known: Iterable[Known],
    arguments_of: Callable[[Known], Mapping[str, Any]],
) -> list[Known]:
    """The known tasks that are most like one of the same operator, the most similar first.

    Those with most arguments in common; of several with as many, those with the nearest shapes.

    Args:
        arguments: of the task.
        known: others.
        arguments_of: gives the arguments of one of them.
    """

    def order(one: Known) -> tuple[int, float]:
        others = arguments_of(one)
        common = sum(others.get(name) == value for name, value in arguments.items())
        return -common, distance(arguments, others)

    return sorted(known, key=order)[:OF_OTHERS]


def distance(one: Any, other: Any) -> float:
    """How far shapes are apart: the sum of the logarithms of all extents' ratios."""
    mine, theirs = dict(_numbers(one)), dict(_numbers(other))
    both = mine.keys() & theirs.keys()
    missing = len(mine.keys() ^ theirs.keys())
    return missing + sum(abs(_log(mine[place]) - _log(theirs[place])) for place in both)


def same_types(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether all arguments that are types of elements are the same."""
    names = {name for name in {*one, *other} if name.endswith(_TYPE)}
    return all(one.get(name) == other.get(name) for name in names)


def encoded(space: DesignSpace, decoded: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The knob indices behind decoded values, or None where the space has no such legal point."""
    if decoded.keys() != {knob.name for knob in space.knobs}:
        return None
    config = []
    for knob in space.knobs:
        choices = (i for i in range(knob.cardinality) if knob.decode(i) == decoded[knob.name])
        index = next(choices, None)
        if index is None:
            return None
        config.append(index)
    return tuple(config) if space.legal(np.array([config], np.int32))[0] else None


def _numbers(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, (*place, name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _numbers(inner, (*place, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)


def _log(value: float) -> float:
    """Paddings may be 0, offsets below: the logarithm of what is one more, with its sign."""
    return math.copysign(math.log1p(abs(value)), value)


CONDITIONS = "conditions"
"""Name of the fact in a run's store that says under which conditions it measures."""

TAKEN = "records"
"""Name of the fact that says what a run took from record databases as it began."""

MIXED = "mixed"
"""That fact of a folder that was continued under other conditions than it was begun with."""


def shares_records(store: RecordStore) -> bool:
    """Whether a run has record databases, so that others may have to choose what it chooses."""
    return store.fact(TAKEN) is not None


def noted_conditions(
    pipeline: ResolvedPipeline, store: RecordStore, runner: CheckedRunner
) -> Mapping[str, Any] | None:
    """What the times of a run depend on, kept in its store as it begins.

    Args:
        pipeline: the run's.
        store: its store.
        runner: its runner, started.

    Returns:
        ``RecordKey.conditions``; None where the runner's measurements are nobody else's, or where
        the folder has some that were made under other conditions.
    """
    own = runner.conditions()
    if own is None:
        if pipeline.records:
            log.info("what this runner measures is shared with no record database")
        return None
    # A release may make other kernels of the same choices.
    brought = versions({pipeline.space.distribution} - {""})
    conditions = {**own, "versions": {**own.get("versions", {}), **brought}}
    before = store.fact(CONDITIONS)
    same = json.loads(json.dumps(conditions)) == before
    if before is None and not store.measured:
        store.set_fact(CONDITIONS, conditions)
    elif not same:
        store.set_fact(CONDITIONS, MIXED)
        if pipeline.records:
            log.warning(
                "the folder has measurements of other versions or conditions, or of a version "
                "that did not note them; nothing in it is shared through record databases"
            )
        return None
    return conditions


class SharedRecords:
    """What a run takes from record databases, and adds to them: nothing, if it has none.

    Args:
        store: the run's.
    """

    def __init__(self, store: RecordStore) -> None:
        self._store = store

    def take(self, tasks: Sequence[Task], spaces: Sequence[DesignSpace]) -> None:
        """Copy what is known of a run's tasks into its store; once, before it measures anything.

        Args:
            tasks: the run's.
            spaces: their design spaces.
        """

    def seconds_of(self, task: Task) -> float:
        """Wall-clock in seconds that what was taken of a task had cost where it was measured."""
        return float(self._taken("seconds").get(task.key, 0.0))

    def suggestions(self, task: Task) -> list[Config]:
        """The best configurations of the nearest tasks, the most promising ones last."""
        return [tuple(config) for config in self._taken("suggested").get(task.key, ())]

    def _taken(self, what: str) -> Mapping[str, Any]:
        taken: Mapping[str, Any] = (self._store.fact(TAKEN) or {}).get(what, {})
        return taken

    def known(self, task: Task, space: DesignSpace) -> list[Record]:  # noqa: ARG002 - none here
        """The records of exactly this task, in the order in which they were measured.

        Empty where not one of them succeeded: what is said to fail everywhere is tried here.
        """
        return []

    def note(self, task: Task, space: DesignSpace, found: Iterable[Measurement]) -> None:
        """Keep measurements that belong to no task of the run, to be added with the others.

        Args:
            task: what was measured.
            space: its design space.
            found: the outcomes.
        """


SHARING = "chameleon_records.sharing:shared_records"
"""Makes the shared records of a run that has databases; the distribution brings most of them."""


@contextlib.contextmanager
def shared_records(
    pipeline: ResolvedPipeline, store: RecordStore, runner: CheckedRunner, *, fresh: bool
) -> Iterator[SharedRecords]:
    """Open the databases of a pipeline; closed at the end of the context, after adding.

    Args:
        pipeline: the run's.
        store: its store.
        runner: its runner, started.
        fresh: whether nothing is to be taken, since everything is to be measured anew.
    """
    conditions = noted_conditions(pipeline, store, runner)
    if conditions is None or not pipeline.records:
        yield SharedRecords(store)
        return
    with load_factory(SHARING)(pipeline, store, conditions=conditions, fresh=fresh) as records:
        yield records
