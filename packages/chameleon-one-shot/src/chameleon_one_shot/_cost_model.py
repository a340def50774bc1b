"""The cost model ``one-shot``: a predictor that was trained on other tasks before the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import (
    Configs,
    CostModel,
    Observations,
    Scores,
    StageContext,
    create_member,
)
from numpy.typing import NDArray

from chameleon_one_shot._options import AUTO, OneShotOptions
from chameleon_one_shot._predictor.familiarity import in_quotes
from chameleon_one_shot._predictor.header import ModelFileError, NoModelError, model_files
from chameleon_one_shot._predictor.model import Model, load
from chameleon_one_shot._tokens import FixedToken, TaskTokens, task_tokens

log = structlog.get_logger()

_SAMPLE = 256
"""The number of random configurations that show how certain a predictor is about a task."""


class OneShotModel(CostModel):
    """Predicts relative throughput by a predictor that was trained on other tasks."""

    def __init__(self, options: OneShotOptions, context: StageContext) -> None:
        self._options = options
        self._fallback: CostModel | None = None
        self._layer: LastLayer | None = None
        files = context.archive.shared(
            f"one-shot/files of {options.model}", lambda: _told_files(options.model, context)
        )
        if not any(self._knows(file, context, last=file == files[-1]) for file in files):
            self._fallback = create_member("cost_models", options.fallback[0], context)

    def _knows(self, file: Path, context: StageContext, *, last: bool) -> bool:
        """Load the predictor, and return whether it suits the task; only the last one warns."""
        model = context.archive.shared(f"one-shot/{file}", lambda: load(file))
        _check_target(model, context, str(file))
        tokens = task_tokens(context.task, context.device, context.threads, context.space)
        strange = model.familiarity.strange(tokens, model.predictor.vocabulary)
        if strange is not None:
            return last and _tell_strange(context, strange, file.name)
        device = context.archive.shared(
            f"one-shot/device of {file}", lambda: _told_device(model, tokens, file.name)
        )
        tokens = attrs.evolve(tokens, fixed=(tokens.fixed[0], device))
        unknown = model.predictor.vocabulary.unknown(tokens)
        if unknown:
            key = f"one-shot/unknown to {file}: {unknown}"
            context.archive.shared(key, lambda: _tell_unknown(unknown, file.name))
            tokens = tokens.without(unknown)
        self._predictor = model.predictor.of(tokens)
        drawn = context.space.sample(_SAMPLE, context.rng)
        deviation = self._predictor.moments(drawn)[1].mean() if len(drawn) else 0.0
        unsure = model.familiarity.unsure(float(deviation))
        if unsure is not None:
            return last and _tell_strange(context, unsure, file.name)
        return True

    @property
    def trained(self) -> bool:
        return self._fallback is None or self._fallback.trained

    def fit(self, observations: Observations) -> None:
        """Fit the linear correction to the task's measurements, if ``finetune`` is set."""
        if self._fallback is not None:
            self._fallback.fit(observations)
        elif self._options.finetune:
            self._layer = self._fitted(observations)

    def predict(self, configs: Configs) -> Scores:
        """The score of each configuration, proportional to its predicted throughput, shape (n,)."""
        if self._fallback is not None:
            return self._fallback.predict(configs)
        if not len(configs):
            return np.zeros(0)
        mean, uncertain = self._predictor.moments(configs)
        if self._layer is not None:
            change, deviation = self._layer.moments(self._predictor.representation(configs))
            mean = mean + change + self._options.kappa * deviation
        else:
            mean = mean - self._options.caution * uncertain
        return np.asarray(np.exp(mean))

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        """Select candidates for a batch with the fallback model, if the fallback model is in use.

        ``configs`` has the explorer's candidates, best score first, shape (n, knobs).
        """
        return None if self._fallback is None else self._fallback.select_batch(configs, count)

    def _fitted(self, observations: Observations) -> LastLayer | None:
        quality = observations.relative_throughput
        timed = quality > 0.0
        if not timed.any():
            return None
        wanted = np.log(quality, out=np.zeros(len(quality)), where=timed)
        wanted[~timed] = wanted[timed].min()
        mean, deviation = self._predictor.moments(observations.configs)
        return LastLayer(
            self._predictor.representation(observations.configs),
            wanted - mean,
            deviation=float(deviation.mean()),
        )


def _tell_strange(context: StageContext, reason: str, name: str) -> bool:
    """Log that no predictor knows a task; the result is False."""
    log.warning(
        "a task is unlike those that the predictor was trained on; it is tuned by "
        "measurement instead, as far as the budget lets it",
        task=context.task.name,
        because=reason,
        model=name,
    )
    return False


def _told_files(wanted: str, context: StageContext) -> list[Path]:
    """The models' files, to be tried in order; empty if no included model suits the target."""
    try:
        return model_files(wanted, context.device)
    except NoModelError as error:
        if wanted != AUTO:
            raise
        log.warning(
            "no predictor serves this target; operators begin with the first guesses of their "
            "space, and the budget decides whether more is measured",
            because=str(error),
            hint=error.hint,
        )
        return []


def _tell_unknown(unknown: Sequence[str], name: str) -> bool:
    """Log, once per run, the parts of a design space that the predictor does not know."""
    log.warning(
        "the predictor does not know all of a design space; it ignores the rest",
        unknown=in_quotes(unknown),
        model=name,
        hint="Configurations that differ in nothing else are the same for it. `chameleon pretrain` "
        "trains a predictor on new data (docs/one-shot.md).",
    )
    return True


def _told_device(model: Model, tokens: TaskTokens, name: str) -> FixedToken:
    """The device to predict for, with a warning once per run if it was not in the training.

    Such a device counts as the nearest device of the training, since unknown facts would only
    disturb the predictor.
    """
    strange = model.familiarity.strange_device(tokens)
    if strange is None:
        return tokens.fixed[1]
    log.warning(
        "the predictor was trained on other devices; it predicts as for the nearest of them",
        because=strange,
        model=name,
        hint="Collect data here and train one with `chameleon pretrain` (docs/one-shot.md).",
    )
    return model.familiarity.nearest_device(tokens)


def _check_target(model: Model, context: StageContext, file: str) -> None:
    kinds = {str(target["kind"]) for target in model.provenance.targets} - {""}
    kind = str(context.device.get("kind", ""))
    if kind and kinds and kind not in kinds:
        raise ModelFileError(
            f"the model {file} was trained for {' and '.join(sorted(kinds))}, and this target is "
            f"{kind}",
            hint="Name another model under 'cost_model', or collect data for this target and "
            "train one with `chameleon pretrain`.",
        )


Numbers = NDArray[np.float64]

_NOISES = (0.03, 0.1, 0.3, 1.0)
"""Candidates for the variance of the noise, relative to the variance of the network's errors."""

_OFFSET = 10.0
"""The standard deviation of the offset, relative to that of the network's errors.

It is large because the network is only trained to compare configurations of one task, and learns
almost nothing about a task's level.
"""


class LastLayer:
    """A linear model of a predictor's errors on one task, fitted to measurements.

    The model is Bayesian linear regression: a posterior of weights with a normal prior (Bishop
    2006, section 3.3).

    Args:
        representation: The predictor's features of the measured configurations, shape (n, width).
        missing: The error of each prediction: the logarithm of relative throughput minus its
            prediction, shape (n,).
    """

    def __init__(self, representation: Numbers, missing: Numbers, *, deviation: float) -> None:
        self._deviation = max(deviation, 1e-6)
        inputs = self._inputs(representation, offset=_OFFSET)
        best = -np.inf
        for noise in _NOISES:
            covariance = inputs @ inputs.T + noise * self._deviation**2 * np.eye(len(inputs))
            factor = np.linalg.cholesky(covariance)
            half = np.linalg.solve(factor, missing)
            evidence = -0.5 * float(half @ half) - float(np.log(np.diagonal(factor)).sum())
            if evidence > best:
                best, self._factor, self._half = evidence, factor, half
        self._measured = inputs

    def moments(self, representation: Numbers) -> tuple[Numbers, Numbers]:
        """The expected error of the predictor for each configuration: mean and deviation.

        Args:
            representation: The predictor's features of n configurations, shape (n, width).
        """
        inputs = self._inputs(representation, offset=_OFFSET)
        shared = np.linalg.solve(self._factor, self._measured @ inputs.T)
        # The offset is the same for all: that it is uncertain says nothing about one of them.
        own = self._inputs(representation, offset=0.0)
        explained = np.linalg.solve(self._factor, self._measured @ own.T)
        variance = (own**2).sum(axis=1) - (explained**2).sum(axis=0)
        return shared.T @ self._half, np.sqrt(np.maximum(variance, 0.0))

    def _inputs(self, representation: Numbers, *, offset: float) -> Numbers:
        """Features scaled by the prior's standard deviation, with a column for the offset."""
        column = np.full((len(representation), 1), offset)
        scaled = representation / np.sqrt(representation.shape[1])
        return self._deviation * np.concatenate([scaled, column], axis=1)
