"""The base class of tree models, with transfer from other tasks and earlier runs.

As in AutoTVM, transfer uses a base model that was trained on other tasks (Chen et al. 2018, section
4, call it the global model). The task's own trees learn the base model's errors. The base model's
weight falls with every measurement of the task.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.api import read_store
from chameleon_core.plugin_api import (
    Configs,
    CostModel,
    Observations,
    Scores,
    StageContext,
    recorded_features,
)
from numpy.typing import NDArray

from chameleon_cost_models._inputs import THREADS, Features, features_of, teaches
from chameleon_cost_models._options import Prior as PriorOption
from chameleon_cost_models._options import TransferOptions
from chameleon_cost_models._prior_mean import PriorMean


class TreeModel(CostModel):
    """Trees that map features to relative throughput, refitted after every batch.

    It is thus 1 for the best known configuration of every operator (AutoTVM, Chen et al. 2018,
    section 3.2).
    """

    def __init__(
        self, context: StageContext, transfer: TransferOptions, prior: PriorOption = ()
    ) -> None:
        self._space = context.space
        self._prior = Prior(transfer, context)
        self._mean = PriorMean(prior, context, logarithm=False)
        self._own = 0
        self._grown = False

    @abstractmethod
    def grow(self, features: Features, quality: Scores, guess: Scores) -> None:
        """Fit the trees; subclasses do this with different libraries.

        Args:
            features: The features of the measured configurations, shape (n, features).
            quality: The relative throughput of the same configurations, shape (n,). At least two
                values differ.
            guess: The quality that is predicted from other tasks, shape (n,); 0 without data of
                other tasks. The trees learn the difference from it.
        """

    @abstractmethod
    def evaluate(self, features: Features, guess: Scores) -> Scores:
        """The scores that the fitted trees give to configurations, shape (n,).

        Args:
            features: The features of at least one configuration, shape (n, features).
            guess: The quality that is predicted from other tasks, shape (n,); 0 without data of
                other tasks. The trees learn the difference from it.
        """

    @property
    def trained(self) -> bool:
        if not self._grown:
            self._prior.refresh()
        return self._grown or self._prior.available or self._mean.available

    def fit(self, observations: Observations) -> None:
        """Fit the trees to all measurements so far."""
        self._own = len(observations)
        self._prior.refresh(self._own)
        self._grown = teaches(observations)
        if self._grown:
            quality = observations.relative_throughput
            features = features_of(self._space, observations.configs)
            guess = self._prior.guess(features, self._own)
            if self._mean.available:
                raw = self._mean.raw(observations.configs)
                self._mean.fit(raw, quality - guess)
                guess = guess + self._mean.mean(raw)
            self.grow(features, quality, guess)

    def predict(self, configs: Configs) -> Scores:
        """The scores of configurations, shape (n,); higher is better."""
        if not len(configs):
            return np.zeros(0)
        features, guess = self.seen(configs)
        # Before the first own measurements there is only what other tasks let expect.
        return self.evaluate(features, guess) if self._grown else guess

    def seen(self, configs: Configs) -> tuple[Features, Scores]:
        """The inputs of the trees for the given configurations.

        Args:
            configs: Configurations, shape (n, knobs).

        Returns:
            Features of shape (n, features), and the relative throughput that models of other tasks
            and the prior predict, shape (n,). The trees learn the difference from this prediction.
        """
        features = features_of(self._space, configs)
        guess = self._prior.guess(features, self._own)
        if self._mean.available:
            guess = guess + self._mean.mean(self._mean.raw(configs))
        return features, guess

    @property
    def expects(self) -> bool:
        """Whether other tasks or a prior let the model predict before it is fitted to this task."""
        return self._prior.available or self._mean.available


log = structlog.get_logger()

_SHARED = 0.5
"""The least share of common knob features with which one task teaches another.

One common knob does not make two templates alike.
"""

_GROWTH = 1.25
"""The factor by which the data must grow before the base model is refitted."""

_NEGLIGIBLE = 0.01
"""The weight below which the base model is no longer used."""

_PARAMETERS: dict[str, Any] = {
    "max_depth": 6,
    "eta": 0.1,
    "tree_method": "hist",
    "verbosity": 0,
    "objective": "reg:squarederror",
}
_ROUNDS = 100

Lesson = tuple[Features, NDArray[np.float64]]
"""The features of another task in this task's columns, and its relative throughput.

The shapes are (n, features) and (n,). A feature that the other task does not have is NaN.
"""


class Prior:
    """Predicts relative throughput from measurements of other tasks and of earlier runs."""

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
        """Fit the base model again if other tasks have many new measurements."""
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
        """Whether a base model was fitted."""
        return self._booster is not None

    def guess(self, features: Features, own: int) -> Scores:
        """The weighted prediction of the model that learned from other tasks and earlier runs.

        ``features`` are features that ``features_of`` computed in the task's own space, shape (n,
        features).
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
        """The measurements of this run's other tasks."""
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
        """The measurements of earlier runs' tasks."""
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
        records = sum(len(quality) for _, quality in lessons)
        if records < self._options.records and not self._options.tasks:
            log.warning(
                "earlier runs have too few measurements that apply to this task",
                task=self._context.task.name,
                measurements=records,
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
        fingerprint: The fingerprint of the design space. Knob indices have the same meaning only in
            spaces with the same fingerprint.
        choices: The same configurations, each as a mapping from knob name to value.
        costs: The median kernel time of each measurement in seconds, infinity for a failure, shape
            (n,).
    """

    key: str
    fingerprint: str
    configs: Sequence[tuple[int, ...]]
    choices: Sequence[dict[str, Any]]
    costs: NDArray[np.float64]


def earlier_tasks(folders: Sequence[Path]) -> list[EarlierTask]:
    """Read the tasks of finished runs and their measurements, folder by folder."""
    histories = []
    for folder in folders:
        with read_store(folder) as store:
            for stored in store.tasks():
                measurements = store.measurements(stored.id)
                histories.append(
                    EarlierTask(
                        key=stored.task.key,
                        fingerprint=stored.fingerprint,
                        configs=[measurement.config for measurement in measurements],
                        choices=store.decoded(stored.id)[: len(measurements)],
                        costs=np.array([m.cost for m in measurements], np.float64),
                    )
                )
    return histories
