"""Models with which a predictor is compared, trained on the same data and features."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from chameleon_one_shot._predictor.batches import inverse_density
from chameleon_one_shot._predictor.examples import Example
from chameleon_one_shot._predictor.metrics import tau
from chameleon_one_shot._predictor.trees import FlatFeatures, task_weights

Scores = NDArray[np.float64]

_ROUNDS = 1000
_PATIENCE = 50


class Alternative(ABC):
    """A model that is trained on tasks, and then ranks the candidates of other tasks."""

    @abstractmethod
    def fit(self, training: Sequence[Example], stopping: Sequence[Example], seed: int) -> None:
        """Train the model."""

    @abstractmethod
    def scores(self, example: Example) -> Scores:
        """The scores of a task's candidates, higher is better, shape (n,)."""


class FirstGuesses(Alternative):
    """Ranks a space's first guesses in their order, without training."""

    def fit(self, training: Sequence[Example], stopping: Sequence[Example], seed: int) -> None:
        """Do nothing: there is nothing to learn."""

    def scores(self, example: Example) -> Scores:
        guesses = {tuple(row): -at for at, row in enumerate(example.guesses.tolist())}
        last = float(-len(guesses))
        return np.array([guesses.get(tuple(row), last) for row in example.configs.tolist()], float)


class XGBoost(Alternative):
    """XGBoost's trees of depth 8 on flat features."""

    def fit(self, training: Sequence[Example], stopping: Sequence[Example], seed: int) -> None:
        import xgboost  # noqa: PLC0415 - the import takes a second

        self._flat = FlatFeatures.of(example.tokens for example in training)
        data, watched = (
            xgboost.DMatrix(self._flat.table(part), label=_targets(part), weight=task_weights(part))
            for part in (training, stopping)
        )
        self._booster = xgboost.train(
            {
                "objective": "reg:squarederror",
                "max_depth": 8,
                "eta": 0.05,
                "subsample": 0.8,
                "colsample_bytree": 0.8,
                "tree_method": "hist",
                "seed": seed,
                "verbosity": 0,
            },
            data,
            num_boost_round=_ROUNDS,
            evals=[(watched, "stopping")],
            early_stopping_rounds=_PATIENCE,
            verbose_eval=False,
        )

    def scores(self, example: Example) -> Scores:
        predicted = self._booster.inplace_predict(
            self._flat.rows(example.tokens, example.configs),
            iteration_range=(0, self._booster.best_iteration + 1),
        )
        return np.asarray(predicted, np.float64)


class LightGBM(Alternative):
    """LightGBM's leaf-wise trees with 63 leaves on flat features."""

    def fit(self, training: Sequence[Example], stopping: Sequence[Example], seed: int) -> None:
        import lightgbm  # noqa: PLC0415 - the import takes a second

        self._flat = FlatFeatures.of(example.tokens for example in training)
        data = lightgbm.Dataset(
            self._flat.table(training), label=_targets(training), weight=task_weights(training)
        )
        watched = data.create_valid(
            self._flat.table(stopping), label=_targets(stopping), weight=task_weights(stopping)
        )
        self._booster = lightgbm.train(
            {
                "objective": "regression",
                "num_leaves": 63,
                "learning_rate": 0.05,
                "bagging_fraction": 0.8,
                "bagging_freq": 1,
                "feature_fraction": 0.8,
                "seed": seed,
                "verbosity": -1,
            },
            data,
            num_boost_round=_ROUNDS,
            valid_sets=[watched],
            callbacks=[lightgbm.early_stopping(_PATIENCE, verbose=False)],
        )

    def scores(self, example: Example) -> Scores:
        return np.asarray(
            self._booster.predict(self._flat.rows(example.tokens, example.configs)), np.float64
        )


class FlatNetwork(Alternative):
    """The network of the One-Shot Tuner (Ryu et al. 2022, sections 4.3 and 4.4)."""

    epochs = 200
    _batch = 512
    _width = 256

    def fit(self, training: Sequence[Example], stopping: Sequence[Example], seed: int) -> None:
        self._flat = FlatFeatures.of(example.tokens for example in training)
        table = self._flat.table(training)
        self._mean = np.nan_to_num(np.nanmean(table, axis=0, where=np.isfinite(table)))
        spread = np.nan_to_num(np.nanstd(table, axis=0, where=np.isfinite(table)))
        self._deviation = np.where(spread > 1e-6, spread, 1.0)  # noqa: PLR2004
        targets = _targets(training)
        labels = torch.from_numpy(((targets - targets.mean()) / targets.std()).astype(np.float32))
        inputs = torch.from_numpy(self._standardised(table))
        probabilities = inverse_density(targets)
        rng = np.random.default_rng(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self._network = self._make_network(table.shape[1])
            optimizer = torch.optim.Adam(self._network.parameters(), lr=1e-4, weight_decay=2e-4)
            best, weights, stale_epochs = -np.inf, dict(self._network.state_dict()), 0
            for _ in range(self.epochs):
                order = rng.choice(len(labels), len(labels), p=probabilities / probabilities.sum())
                self._network.train()
                for first in range(0, len(order), self._batch):
                    rows = torch.from_numpy(order[first : first + self._batch])
                    loss = nn.functional.mse_loss(self._network(inputs[rows]), labels[rows])
                    optimizer.zero_grad(set_to_none=True)
                    loss.backward()
                    optimizer.step()
                mean = float(np.mean([tau(self.scores(task), task.quality) for task in stopping]))
                if mean > best:
                    state = self._network.state_dict()
                    best, stale_epochs = mean, 0
                    weights = {name: value.clone() for name, value in state.items()}
                else:
                    stale_epochs += 1
                    if stale_epochs >= self.epochs // 10:
                        break
            self._network.load_state_dict(weights)

    def scores(self, example: Example) -> Scores:
        self._network.eval()
        inputs = torch.from_numpy(
            self._standardised(self._flat.rows(example.tokens, example.configs))
        )
        with torch.inference_mode():
            return np.asarray(self._network(inputs).numpy(), np.float64)

    def _standardised(self, table: NDArray[np.float32]) -> NDArray[np.float32]:
        scaled = np.clip((table - self._mean) / self._deviation, -4.0, 4.0)
        return np.asarray(np.nan_to_num(scaled), np.float32)

    def _make_network(self, features: int) -> nn.Module:
        layer = nn.TransformerEncoderLayer(
            self._width, 4, dim_feedforward=1024, dropout=0.25, batch_first=True
        )
        return nn.Sequential(
            nn.Linear(features, self._width),
            nn.Unflatten(1, (1, self._width)),
            nn.TransformerEncoder(layer, 3, enable_nested_tensor=False),
            nn.Flatten(),
            nn.Linear(self._width, 1),
            nn.Flatten(0),
        )


ALTERNATIVES: Mapping[str, Callable[[], Alternative]] = {
    "xgboost": XGBoost,
    "lightgbm": LightGBM,
    "flat-network": FlatNetwork,
    "first-guesses": FirstGuesses,
}
"""The models with which a predictor can be compared, by name."""


def _targets(examples: Sequence[Example]) -> Scores:
    return np.concatenate([example.quality for example in examples])
