"""Boosted trees that predict the rank of a configuration within its task, and its uncertainty.

The target is the rank. With times as targets, trees would use most of their leaves for slow
candidates.
"""

from __future__ import annotations

import importlib
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import attrs
import numpy as np
from chameleon_core.plugin_api import Configs
from chameleon_system.api import block_import, pause_garbage_collection
from numpy.typing import NDArray

from chameleon_one_shot._predictor.examples import Example, Scale
from chameleon_one_shot._tokens.configuration import Numbers, TaskTokens
from chameleon_one_shot._tokens.vocabulary import Vocabulary


def import_without(library: str, *modules: str) -> ModuleType:
    """Import a library while imports of some other modules fail.

    If the library is imported already, it stays as it is. Otherwise a later import statement
    imports it anew, with all modules.
    """
    if library in sys.modules:
        return importlib.import_module(library)  # waits if another thread is importing it
    with ExitStack() as absent:
        absent.enter_context(pause_garbage_collection())
        for module in modules:
            absent.enter_context(block_import(module))
        imported = importlib.import_module(library)
    for name in [name for name in sys.modules if name.partition(".")[0] == library]:
        del sys.modules[name]
    return imported


if TYPE_CHECKING:
    import lightgbm
else:
    # LightGBM's interfaces to these libraries take long to import.
    lightgbm = import_without("lightgbm", "sklearn", "pandas", "pyarrow", "dask")

Scores = NDArray[np.float64]

TREES = "trees"

_DIFFERENCE = " - guess"
_ROUNDS = 300
_RANK_OPTIONS = {
    "objective": "regression",
    "num_leaves": 31,
    "learning_rate": 0.1,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "feature_fraction": 0.5,
    "lambda_l2": 5.0,
    "extra_trees": True,  # thresholds at random: members err in different ways
    "verbosity": -1,
}
_ERROR_OPTIONS = _RANK_OPTIONS | {"num_leaves": 15, "min_data_in_leaf": 100}
_ERROR_ROUNDS = 60
_LEAST_ERROR = 1e-3
_LARGEST_TEXT = 1 << 26
"""The largest booster that is read from a file, in bytes after unpacking."""


@attrs.frozen(kw_only=True)
class FlatFeatures:
    """Puts the numbers of all tokens of a configuration in one row, for trees."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, tasks: Iterable[TaskTokens]) -> Self:
        """The columns of the training data."""
        names = {
            name + suffix
            for tokens in tasks
            for at, part in enumerate(tokens.parts)
            for name in part.columns
            for suffix in (("",) if at < len(tokens.fixed) else ("", _DIFFERENCE))
        }
        return cls(names=tuple(sorted(names)))

    def rows(self, tokens: TaskTokens, configs: Configs) -> Numbers:
        """The inputs of the trees, shape (n, columns); NaN for a number that is missing."""
        columns = {name: at for at, name in enumerate(self.names)}
        out = np.full((len(configs), len(self.names)), np.nan, np.float32)
        first_guess = (
            np.empty((0, 0), np.int32) if tokens.space is None else tokens.space.first_guesses
        )
        guess_values = dict(tokens.values(first_guess[:1])) if len(first_guess) else {}
        for name, values in tokens.values(configs):
            if name in columns:
                out[:, columns[name]] = values
            if name + _DIFFERENCE in columns and name in guess_values:
                out[:, columns[name + _DIFFERENCE]] = values - guess_values[name]
        return out

    def table(self, examples: Sequence[Example]) -> Numbers:
        """The rows of several examples, one example after another."""
        return np.concatenate([self.rows(row.tokens, row.configs) for row in examples])


@attrs.frozen(kw_only=True, eq=False)
class TreePredictor:
    """Boosted trees that predict the logarithm of relative throughput.

    Attributes:
        boosters: boosters whose mean is the predicted rank of a configuration in its task.
        errors: a booster that predicts the absolute error of the predicted rank.
        scale: the mapping from ranks to logarithms of relative throughput.
        temperature: the factor on predicted standard deviations, as for ``Predictor``.
    """

    boosters: Sequence[lightgbm.Booster]
    errors: lightgbm.Booster
    features: FlatFeatures
    vocabulary: Vocabulary
    scale: Scale
    temperature: float = 1.0

    @classmethod
    def train(
        cls,
        training: Sequence[Example],
        stopping: Sequence[Example],
        vocabulary: Vocabulary,
        *,
        members: int,
        seed: int,
    ) -> Self:
        """Train boosters that predict ranks, and a booster that predicts the errors of ranks."""
        # Features of a CPU would only identify the machine.
        features = FlatFeatures.of(row.tokens for row in training)
        names = (name for name in features.names if not name.startswith("device.features="))
        features = FlatFeatures(names=tuple(names))
        boosters = _rankers(features, training, range(seed, seed + members))
        unseen = features.table(stopping)
        predicted = np.mean([booster.predict(unseen) for booster in boosters], axis=0)
        rank_errors = np.abs(np.concatenate(list(map(ranks, stopping))) - predicted)
        options, weights = _ERROR_OPTIONS | {"seed": seed}, task_weights(stopping)
        errors = _train_booster(options, _ERROR_ROUNDS, unseen, rank_errors, weights)
        return cls(
            boosters=boosters,
            errors=errors,
            features=features,
            vocabulary=vocabulary,
            scale=_scale(predicted, stopping),
        )

    def retrain(self, examples: Sequence[Example], seed: int) -> Self:
        """A copy whose boosters of the rank learn from other examples."""
        seeds = range(seed, seed + len(self.boosters))
        return attrs.evolve(self, boosters=_rankers(self.features, examples, seeds))

    def of(self, tokens: TaskTokens) -> TaskTrees:
        """The predictor for one task's configurations."""
        return TaskTrees(self, tokens)

    def header(self) -> dict[str, Any]:
        """Facts about the predictor for the header of its file."""
        return {"kind": TREES, "members": len(self.boosters), "features": list(self.features.names)}

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The boosters as bytes: LightGBM's own text format, compressed."""
        named = {str(at): booster for at, booster in enumerate(self.boosters)}
        return {name: _pack(booster) for name, booster in (named | {"e": self.errors}).items()}

    @classmethod
    def of_file(
        cls, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], **rest: Any
    ) -> Self:
        """Make a predictor from the content of its file."""
        return cls(
            boosters=[_unpack(arrays[str(at)]) for at in range(header["members"])],
            errors=_unpack(arrays["e"]),
            features=FlatFeatures(names=tuple(header["features"])),
            **rest,
        )


@attrs.frozen
class TaskTrees:
    """Predicts the configurations of one task."""

    _trees: TreePredictor
    _tokens: TaskTokens

    def moments(self, configs: Configs) -> tuple[Scores, Scores]:
        """Mean and deviation of the logarithm of relative throughput, shape (n,) each."""
        trees, rows = self._trees, self._trees.features.rows(self._tokens, configs)
        mean = np.mean([np.asarray(each.predict(rows)) for each in trees.boosters], axis=0)
        error = np.maximum(np.asarray(trees.errors.predict(rows)), _LEAST_ERROR)
        scale = trees.scale
        return (scale.mean + scale.deviation * mean, scale.deviation * trees.temperature * error)

    def representation(self, configs: Configs) -> Scores:
        """Standardised numbers that describe knobs, loops and buffers, shape (n, numbers)."""
        parts = self._tokens.parts[len(self._tokens.fixed) :]
        own = FlatFeatures(names=tuple(name for part in parts for name in part.columns))
        rows = own.rows(self._tokens, configs)
        return self._trees.vocabulary.standardise(own.names, rows).astype(np.float64)


def ranks(example: Example) -> Scores:
    """The rank of each candidate in its task, from -0.5 for the slowest to 0.5 for the fastest."""
    order = np.argsort(np.argsort(example.quality, kind="stable"), kind="stable")
    return order / max(len(example) - 1, 1) - 0.5


def task_weights(examples: Sequence[Example]) -> Scores:
    """Weights of candidates, with which tasks with many candidates do not dominate the training."""
    weights = np.concatenate([np.full(len(example), len(example) ** -0.5) for example in examples])
    return np.asarray(weights / weights.mean(), np.float64)


def _rankers(
    features: FlatFeatures, examples: Sequence[Example], seeds: Iterable[int]
) -> list[lightgbm.Booster]:
    """Boosters that learn the rank of a configuration in its task."""
    table, weights = features.table(examples), task_weights(examples)
    labels = np.concatenate(list(map(ranks, examples)))

    def loss(predicted: Scores, _: lightgbm.Dataset) -> tuple[Scores, Scores]:
        # The mean error of a task does not count: a rank depends on the task's other candidates,
        # which trees do not know.
        return weights * _centre(predicted - labels, examples), weights

    order = _RANK_OPTIONS | {"objective": loss}
    return [
        _train_booster(order | {"seed": seed}, _ROUNDS, table, labels, weights) for seed in seeds
    ]


def _centre(values: Scores, examples: Sequence[Example]) -> Scores:
    """Numbers of candidates minus their mean in the task."""
    sizes = np.array(list(map(len, examples)))
    task = np.repeat(np.arange(len(sizes)), sizes)
    return np.asarray(values - (np.bincount(task, values) / sizes)[task])


def _train_booster(
    options: Mapping[str, Any], rounds: int, table: Numbers, labels: Scores, weights: Scores
) -> lightgbm.Booster:
    import torch  # noqa: PLC0415 - predictions do not need torch

    data = lightgbm.Dataset(table, label=labels, weight=weights)
    # As many threads as torch has, which a caller may limit.
    options = {**options, "num_threads": torch.get_num_threads()}
    return lightgbm.train(options, data, num_boost_round=rounds)


def _scale(predicted: Scores, examples: Sequence[Example]) -> Scale:
    """The scale from ranks to log-throughput, by least squares within tasks."""
    own = _centre(predicted, examples)
    quality = np.concatenate([example.quality for example in examples])
    slope = float(own @ quality / max(own @ own, 1e-12))
    return Scale(mean=Scale.of(examples).mean, deviation=max(slope, 1e-6))


def _pack(booster: lightgbm.Booster) -> NDArray[np.ubyte]:
    return np.frombuffer(zlib.compress(booster.model_to_string().encode(), 9), np.ubyte)


def _unpack(array: NDArray[np.ubyte]) -> lightgbm.Booster:
    try:
        text = zlib.decompressobj().decompress(array.tobytes(), _LARGEST_TEXT)
        return lightgbm.Booster(model_str=text.decode())
    except (zlib.error, lightgbm.basic.LightGBMError) as error:
        raise ValueError(f"it holds no trees: {error}") from error
