"""AutoTVM's transfer: a base model of other tasks, whose weight falls with every measurement.

Chen et al. 2018, section 4 (a global and a local model): what was measured elsewhere is the
starting point, and the task's own model learns what it gets wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import structlog
from chameleon_core.space import recorded_features
from chameleon_core.stages import Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models.earlier_runs import EarlierTask, earlier_tasks
from chameleon_cost_models.inputs import THREADS, Features, features_of
from chameleon_cost_models.options import TransferOptions

log = structlog.get_logger()

_SHARED = 0.5
"""A task teaches another only where it has at least this share of the features of the other's
knobs: one common knob does not make two templates alike."""

_GROWTH = 1.25
"""The base model is fitted again when there is this much more to learn from."""

_NEGLIGIBLE = 0.01
"""The base model is not asked any more when its weight is less than this."""

_PARAMETERS: dict[str, Any] = {
    "max_depth": 6,
    "eta": 0.1,
    "tree_method": "hist",
    "verbosity": 0,
    "objective": "reg:squarederror",
}
_ROUNDS = 100

Lesson = tuple[Features, NDArray[np.float64]]
"""One other task: its features in the columns of this one, NaN where it has none, and its
relative throughput; shapes (n, features) and (n,)."""


class Prior:
    """Predicts relative throughput from the measurements of other tasks and earlier runs.

    Only features that both spaces name are used. Of the run itself the task's own measurements
    are never used (the archive does not give them out); of earlier runs only where
    ``same_task`` allows it.
    """

    def __init__(self, options: TransferOptions, context: StageContext) -> None:
        self._options = options
        self._context = context
        self._parameters = {
            **_PARAMETERS,
            "nthread": THREADS,
            "seed": 0,  # nothing is drawn: every row and column is used
        }
        self._booster: Any = None
        self._learnt = 0
        self._earlier = self._earlier_lessons() if options.history else []

    def refresh(self, own: int = 0) -> None:
        """Learn what other tasks measured since the last time, where it is much.

        Args:
            own: how many measurements the task itself has.
        """
        if not (self._options.tasks or self._earlier) or self._weight(own) == 0.0:
            return
        lessons = [*self._earlier, *self._lessons()]
        total = sum(len(quality) for _, quality in lessons)
        if total < max(self._options.records, _GROWTH * self._learnt):
            return
        # Imported here: it takes a second, which a run without transfer need not wait for.
        import xgboost  # noqa: PLC0415

        data = xgboost.DMatrix(
            np.concatenate([features for features, _ in lessons]),
            label=np.concatenate([quality for _, quality in lessons]),
            nthread=THREADS,
        )
        self._booster = xgboost.train(self._parameters, data, num_boost_round=_ROUNDS)
        self._learnt = total
        log.debug("learnt from other tasks", task=self._context.task.name, records=total)

    @property
    def available(self) -> bool:
        """Whether there is a base model."""
        return self._booster is not None

    def guess(self, features: Features, own: int) -> Scores:
        """The base model's prediction, weighted by ``2 ** (-own / half_life)``; shape (n,).

        Args:
            features: of the task's own space, as ``features_of`` gives them.
            own: how many measurements the task itself has.
        """
        weight = self._weight(own)
        if self._booster is None or weight == 0.0 or not len(features):
            return np.zeros(len(features))
        predicted = self._booster.inplace_predict(features, validate_features=False)
        return weight * np.asarray(predicted, np.float64)

    def _weight(self, own: int) -> float:
        weight = float(2.0 ** (-own / self._options.half_life))
        return weight if weight >= _NEGLIGIBLE else 0.0

    def _lessons(self) -> Iterator[Lesson]:
        """The other tasks of this run."""
        if not self._options.tasks:
            return
        own = self._context.space.feature_names
        for history in self._context.archive.others(self._context.task):
            theirs = {name: column for column, name in enumerate(history.space.feature_names)}
            columns = np.array([theirs.get(name, -1) for name in own], np.intp)
            quality = history.observations.relative_throughput
            if self._alike(columns >= 0) and quality.any():
                features = features_of(history.space, history.observations.configs)
                missing = np.full((len(features), 1), np.nan, np.float32)
                yield np.concatenate([features, missing], axis=1)[:, columns], quality

    def _earlier_lessons(self) -> list[Lesson]:
        """The tasks of earlier runs."""
        folders = self._options.history
        earlier = self._context.archive.shared(
            f"cost models/earlier runs {[str(folder) for folder in folders]}",
            lambda: earlier_tasks(folders),
        )
        wanted = [task for task in earlier if self._options.same_task or task.key != self._own_key]
        lessons = [
            (features, quality)
            for features, quality in ((self._features(task), _quality(task)) for task in wanted)
            if quality.any() and self._alike(np.logical_or.reduce(np.isfinite(features), axis=0))
        ]
        found = sum(len(quality) for _, quality in lessons)
        if found < self._options.records and not self._options.tasks:
            log.warning(
                "earlier runs hold too little that applies to this task to learn from",
                task=self._context.task.name,
                measurements=found,
                needed=self._options.records,
                hint="name more run folders under 'history', or lower 'records'",
            )
        return lessons

    def _alike(self, shared: NDArray[np.bool_]) -> bool:
        knobs = sum(len(knob.feature_names) for knob in self._context.space.knobs)
        return bool(shared[:knobs].mean() >= _SHARED)

    @property
    def _own_key(self) -> str:
        return self._context.task.key

    def _features(self, earlier: EarlierTask) -> Features:
        space = self._context.space
        # Analytical features follow from the task: another's indices would give this one's.
        if (earlier.key, earlier.fingerprint) == (self._own_key, space.fingerprint):
            return features_of(space, np.array(earlier.configs, np.int32))
        return recorded_features(earlier.choices, space.feature_names)


def _quality(earlier: EarlierTask) -> NDArray[np.float64]:
    """Relative throughput within the earlier task, shape (n,)."""
    count = len(earlier.costs)
    observations = Observations(
        configs=np.zeros((count, 0), np.int32),
        costs=earlier.costs,
        failures=(None,) * count,
        build_seconds=np.zeros(count),
    )
    return observations.relative_throughput
