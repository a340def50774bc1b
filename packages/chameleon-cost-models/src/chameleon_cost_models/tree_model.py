"""The base of all tree models: features, transfer, and when there is nothing to learn.

AutoTVM's transfer is a base model of other tasks, whose weight falls with every measurement. Chen
et al. 2018, section 4, have a global and a local model. Measurements of
other tasks are the starting point, and the task's own model learns its errors.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.run_folder import read_store
from chameleon_core.space import Configs, recorded_features
from chameleon_core.stages import CostModel, Observations, Scores, StageContext
from numpy.typing import NDArray

from chameleon_cost_models.inputs import THREADS, Features, features_of, teaches
from chameleon_cost_models.options import Prior as PriorOption
from chameleon_cost_models.options import TransferOptions
from chameleon_cost_models.prior_mean import PriorMean


class TreeModel(CostModel):
    """Trees from a space's features to relative throughput, fitted afresh after every batch.

    The target is best cost over cost, and 0 for every failure. So 1 is the best known configuration
    whatever the operator (AutoTVM, Chen et al. 2018, section 3.2).

    Args:
        context: the task's.
        transfer: what to learn from other tasks and earlier runs.
        prior: at most one model that was trained beforehand.
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
        """Fit the trees.

        Args:
            features: shape (n, features).
            quality: relative throughput of the same rows, not all alike; shape (n,).
            guess: what other tasks let expect, 0 without transfer; shape (n,).
        """

    @abstractmethod
    def evaluate(self, features: Features, guess: Scores) -> Scores:
        """Scores of configurations by the trees last grown, shape (n,).

        Args:
            features: shape (n, features), n at least 1.
            guess: as for ``grow``.
        """

    @property
    def trained(self) -> bool:
        if not self._grown:
            self._prior.refresh()
        return self._grown or self._prior.available or self._mean.available

    def fit(self, observations: Observations) -> None:
        """Fit to everything measured so far.

        Stays untrained until two observations differ, unless other tasks taught something.
        """
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
        """Scores, higher is better, shape (n,)."""
        if not len(configs):
            return np.zeros(0)
        features, guess = self.seen(configs)
        # Before the first own measurements there is only what other tasks let expect.
        return self.evaluate(features, guess) if self._grown else guess

    def seen(self, configs: Configs) -> tuple[Features, Scores]:
        """Features of configurations, and what other tasks let expect of them."""
        features = features_of(self._space, configs)
        guess = self._prior.guess(features, self._own)
        if self._mean.available:
            guess = guess + self._mean.mean(self._mean.raw(configs))
        return features, guess

    @property
    def expects(self) -> bool:
        """Whether ``grow`` and ``evaluate`` are given more than zeros as a guess."""
        return self._prior.available or self._mean.available


log = structlog.get_logger()

_SHARED = 0.5
"""A task teaches another only if it has at least this share of the features of the other's
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
"""One other task: its features in the columns of this one, NaN if it has none, and its
relative throughput; shapes (n, features) and (n,)."""


class Prior:
    """Predicts relative throughput from the measurements of other tasks and earlier runs.

    Only features that both spaces name are used. The task's own measurements in this run are never
    used (the archive does not give them out). Those in earlier runs are used only if ``same_task``
    allows it.
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
        """Learn what other tasks measured since the last time, if it is much.

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
        records = sum(len(quality) for _, quality in lessons)
        if records < self._options.records and not self._options.tasks:
            log.warning(
                "earlier runs hold too little that applies to this task to learn from",
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
    """Relative throughput within the earlier task, shape (n,)."""
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
    """One task of an earlier run.

    Attributes:
        key: the task's identity (``Task.key``).
        fingerprint: the design space's; indices mean the same only if it is the same.
        configs: knob indices, one tuple per measurement.
        choices: the same configurations decoded.
        costs: median kernel times in seconds, infinity for failures, shape (n,).
    """

    key: str
    fingerprint: str
    configs: Sequence[tuple[int, ...]]
    choices: Sequence[dict[str, Any]]
    costs: NDArray[np.float64]


def earlier_tasks(folders: Sequence[Path]) -> list[EarlierTask]:
    """The tasks of finished runs, in the order of the folders and of the runs.

    Args:
        folders: run folders, as ``chameleon run`` writes them.

    Raises:
        RunFolderError: one of them is no run folder, or cannot be read.
    """
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
