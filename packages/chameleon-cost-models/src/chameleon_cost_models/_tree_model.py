"""The base class of tree models, with transfer from other tasks and earlier runs.

As in AutoTVM, a base model is trained on other tasks, and the task's own trees learn its errors.
Chen et al. (2018, section 4) call it the global model. The weight of the base model falls with
every measurement of the task.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import (
    Configs,
    CostModel,
    DesignSpace,
    Observations,
    Scores,
    StageContext,
)
from numpy.typing import NDArray

from chameleon_cost_models._inputs import THREADS, Features, features_of, has_signal
from chameleon_cost_models._options import Prior, TransferOptions
from chameleon_cost_models._prior_mean import PriorMean


class TreeModel(CostModel):
    """Trees that map features to relative throughput, refitted after every batch.

    The target is 1 for the best known configuration of every operator, and 0 for a failure
    (AutoTVM, Chen et al. 2018, section 3.2).
    """

    def __init__(self, context: StageContext, transfer: TransferOptions, prior: Prior = ()) -> None:
        self._space = context.space
        self._transfer = TransferModel(transfer, context)
        self._prior = PriorMean(prior, context, logarithm=False)
        self._own_count = 0
        self._fitted = False

    @abstractmethod
    def grow(self, features: Features, quality: Scores, base: Scores) -> None:
        """Fit the trees to the difference between quality and base prediction.

        Args:
            features: the features of the measured configurations, shape (n, features).
            quality: their relative throughput, shape (n,). At least two values differ.
            base: the prediction of the base model and the prior, shape (n,); 0 without both.
        """

    @abstractmethod
    def evaluate(self, features: Features, base: Scores) -> Scores:
        """The scores of at least one configuration by the fitted trees, shape (n,).

        ``features`` has shape (n, features), and ``base`` is the base prediction, shape (n,).
        """

    @property
    def trained(self) -> bool:
        if not self._fitted:
            self._transfer.refresh()
        return self._fitted or self.has_prior

    def fit(self, observations: Observations) -> None:
        self._own_count = len(observations)
        self._transfer.refresh(self._own_count)
        self._fitted = has_signal(observations)
        if self._fitted:
            quality = observations.relative_throughput
            features = features_of(self._space, observations.configs)
            base = self._transfer.predict(features, self._own_count)
            if self._prior.available:
                raw = self._prior.raw(observations.configs)
                self._prior.fit(raw, quality - base)
                base = base + self._prior.mean(raw)
            self.grow(features, quality, base)

    def predict(self, configs: Configs) -> Scores:
        """The scores of configurations, shape (n,); higher is better."""
        if not len(configs):
            return np.zeros(0)
        features, base = self.inputs(configs)
        return self.evaluate(features, base) if self._fitted else base

    def inputs(self, configs: Configs) -> tuple[Features, Scores]:
        """Features (n, features) and the base prediction (n,) of n configurations."""
        features = features_of(self._space, configs)
        base = self._transfer.predict(features, self._own_count)
        if self._prior.available:
            base = base + self._prior.mean(self._prior.raw(configs))
        return features, base

    @property
    def has_prior(self) -> bool:
        """Whether a base model or a prior predicts before any measurement of this task."""
        return self._transfer.available or self._prior.available


log = structlog.get_logger()

_LEAST_SHARED = 0.5
"""The least share of common knob features for a transfer between two tasks."""

_GROWTH = 1.25
"""The factor by which the data must grow before the base model is refitted."""

_LEAST_WEIGHT = 0.01
"""The weight below which the base model is no longer used."""

_PARAMETERS: dict[str, Any] = {
    "max_depth": 6,
    "eta": 0.1,
    "tree_method": "hist",
    "verbosity": 0,
    "objective": "reg:squarederror",
}
_ROUNDS = 100

TransferData = tuple[Features, NDArray[np.float64]]
"""The features of another task in this task's columns, and its relative throughput.

The shapes are (n, features) and (n,). A feature that the other task does not have is NaN.
"""


class TransferModel:
    """Predicts relative throughput from measurements of other tasks and of earlier runs.

    Only features that both design spaces have in common are used. Measurements of the task itself
    come from earlier runs, and only with the option ``same_task``.
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
        self._fitted_rows = 0
        self._earlier = self._earlier_run_data() if options.history else []

    def refresh(self, own_count: int = 0) -> None:
        """Fit the base model again if other tasks have many new measurements."""
        if not (self._options.tasks or self._earlier) or self._weight(own_count) == 0.0:
            return
        tables = [*self._earlier, *self._other_task_data()]
        rows = sum(len(quality) for _, quality in tables)
        if rows < max(self._options.records, _GROWTH * self._fitted_rows):
            return
        # Imported here: it takes a second, which a run without transfer need not wait for.
        import xgboost  # noqa: PLC0415

        data = xgboost.DMatrix(
            np.concatenate([features for features, _ in tables]),
            label=np.concatenate([quality for _, quality in tables]),
            nthread=THREADS,
        )
        self._booster = xgboost.train(self._parameters, data, num_boost_round=_ROUNDS)
        self._fitted_rows = rows
        log.debug("base_model_fitted", task=self._context.task.name, records=rows)

    @property
    def available(self) -> bool:
        """Whether a base model was fitted."""
        return self._booster is not None

    def predict(self, features: Features, own_count: int) -> Scores:
        """The weighted prediction, shape (n,); zeros before the first fit.

        The weight halves after every ``half_life`` measurements of the task itself (``own_count``).
        """
        weight = self._weight(own_count)
        if self._booster is None or weight == 0.0 or not len(features):
            return np.zeros(len(features))
        predicted = self._booster.inplace_predict(features, validate_features=False)
        return weight * np.asarray(predicted, np.float64)

    def _weight(self, own_count: int) -> float:
        weight = float(2.0 ** (-own_count / self._options.half_life))
        return weight if weight >= _LEAST_WEIGHT else 0.0

    def _other_task_data(self) -> Iterator[TransferData]:
        """The measurements of this run's other tasks."""
        if not self._options.tasks:
            return
        own_features = self._context.space.feature_names
        for history in self._context.archive.others(self._context.task):
            theirs = {name: column for column, name in enumerate(history.space.feature_names)}
            columns = np.array([theirs.get(name, -1) for name in own_features], np.intp)
            quality = history.observations.relative_throughput
            if self._is_similar(columns >= 0) and quality.any():
                features = features_of(history.space, history.observations.configs)
                missing = np.full((len(features), 1), np.nan, np.float32)
                yield np.concatenate([features, missing], axis=1)[:, columns], quality

    def _earlier_run_data(self) -> list[TransferData]:
        """The measurements of earlier runs' tasks."""
        folders = self._options.history
        earlier = self._context.archive.shared(
            f"cost models/earlier runs {[str(folder) for folder in folders]}",
            lambda: read_earlier_tasks(folders),
        )
        wanted = [task for task in earlier if self._options.same_task or task.key != self._own_key]
        tables = [
            (features, quality)
            for features, quality in ((self._features(task), _quality(task)) for task in wanted)
            if quality.any()
            and self._is_similar(np.logical_or.reduce(np.isfinite(features), axis=0))
        ]
        records = sum(len(quality) for _, quality in tables)
        if records < self._options.records and not self._options.tasks:
            log.warning(
                "too_few_earlier_measurements",
                task=self._context.task.name,
                measurements=records,
                needed=self._options.records,
                hint="name more run folders under 'history', or lower 'records'",
            )
        return tables

    def _is_similar(self, shared: NDArray[np.bool_]) -> bool:
        knobs = sum(len(knob.feature_names) for knob in self._context.space.knobs)
        return bool(shared[:knobs].mean() >= _LEAST_SHARED)

    @property
    def _own_key(self) -> str:
        return self._context.task.key

    def _features(self, earlier: EarlierTask) -> Features:
        space = self._context.space
        # Only for the same task and space do the indices give the right analytical features.
        if (earlier.key, earlier.fingerprint) == (self._own_key, space.fingerprint):
            return features_of(space, np.array(earlier.configs, np.int32))
        return DesignSpace.recorded_features(earlier.choices, space.feature_names)[1]


def _quality(earlier: EarlierTask) -> NDArray[np.float64]:
    """The relative throughput of each measurement within an earlier task, shape (n,)."""
    count = len(earlier.costs)
    observations = Observations(
        configs=np.zeros((count, 0), np.int32),
        costs=earlier.costs,
        failures=(None,) * count,
        build_seconds=np.zeros(count),
    )
    return observations.relative_throughput


@attrs.frozen(kw_only=True, eq=False)
class EarlierTask:
    """One task of an earlier run, with its n measurements.

    Attributes:
        fingerprint: the fingerprint of the design space, on which the meaning of knob indices
            depends.
        configs: the knob indices of each measurement.
        choices: the same configurations, each as a mapping from knob name to value.
        costs: the median kernel times in seconds, infinity for a failure, shape (n,).
    """

    key: str
    fingerprint: str
    configs: Sequence[tuple[int, ...]]
    choices: Sequence[dict[str, Any]]
    costs: NDArray[np.float64]


def read_earlier_tasks(folders: Sequence[Path]) -> list[EarlierTask]:
    """Read the tasks and measurements of finished runs from their run folders."""
    tasks = []
    for folder in folders:
        with RecordStore.of_run(folder) as store:
            for stored in store.tasks():
                measurements = store.measurements(stored.id)
                tasks.append(
                    EarlierTask(
                        key=stored.task.key,
                        fingerprint=stored.fingerprint,
                        configs=[measurement.config for measurement in measurements],
                        choices=store.decoded(stored.id)[: len(measurements)],
                        costs=np.array([m.cost for m in measurements], np.float64),
                    )
                )
    return tasks
