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
    create_stage,
)
from numpy.typing import NDArray

from chameleon_one_shot._options import AUTO, OneShotOptions
from chameleon_one_shot._predictor.header import ModelFileError, NoModelError, model_files
from chameleon_one_shot._predictor.model import Model, load
from chameleon_one_shot._predictor.out_of_distribution import in_quotes
from chameleon_one_shot._tokens.configuration import FixedToken, TaskTokens, task_tokens

log = structlog.get_logger()

_SAMPLE = 256
"""The number of random configurations that show how certain a predictor is about a task."""


class OneShotModel(CostModel):
    """Predicts relative throughput by a predictor that was trained on other tasks."""

    def __init__(self, options: OneShotOptions, context: StageContext) -> None:
        self._options = options
        self._fallback: CostModel | None = None
        self._correction: LinearCorrection | None = None
        files = context.archive.shared(
            f"one-shot/files of {options.model}", lambda: _find_files(options.model, context)
        )
        if not any(self._suits(file, context, last=file == files[-1]) for file in files):
            self._fallback = create_stage("cost_models", options.fallback[0], context)

    def _suits(self, file: Path, context: StageContext, *, last: bool) -> bool:
        """Load the predictor, and return whether it suits the task; only the last one warns."""
        model = context.archive.shared(f"one-shot/{file}", lambda: load(file))
        _check_target(model, context, str(file))
        tokens = task_tokens(context.task, context.device, context.threads, context.space)
        reason = model.detector.check_task(tokens, model.predictor.vocabulary)
        if reason is not None:
            return last and _warn_out_of_distribution(context, reason, file.name)
        device = context.archive.shared(
            f"one-shot/device of {file}", lambda: _choose_device(model, tokens, file.name)
        )
        tokens = attrs.evolve(tokens, fixed=(tokens.fixed[0], device))
        unknown = model.predictor.vocabulary.unknown(tokens)
        if unknown:
            key = f"one-shot/unknown to {file}: {unknown}"
            context.archive.shared(key, lambda: _warn_unknown(unknown, file.name))
            tokens = tokens.without(unknown)
        self._predictor = model.predictor.of(tokens)
        drawn = context.space.sample(_SAMPLE, context.rng)
        deviation = self._predictor.moments(drawn)[1].mean() if len(drawn) else 0.0
        uncertain = model.detector.check_uncertainty(float(deviation))
        if uncertain is not None:
            return last and _warn_out_of_distribution(context, uncertain, file.name)
        return True

    @property
    def trained(self) -> bool:
        return self._fallback is None or self._fallback.trained

    def fit(self, observations: Observations) -> None:
        if self._fallback is not None:
            self._fallback.fit(observations)
        elif self._options.finetune:
            self._correction = self._fit_correction(observations)

    def predict(self, configs: Configs) -> Scores:
        """The score of each configuration, proportional to its predicted throughput, shape (n,)."""
        if self._fallback is not None:
            return self._fallback.predict(configs)
        if not len(configs):
            return np.zeros(0)
        mean, uncertain = self._predictor.moments(configs)
        if self._correction is not None:
            correction, deviation = self._correction.moments(
                self._predictor.representation(configs)
            )
            mean = mean + correction + self._options.kappa * deviation
        else:
            mean = mean - self._options.caution * uncertain
        return np.asarray(np.exp(mean))

    def select_batch(self, configs: Configs, count: int) -> NDArray[np.intp] | None:
        return None if self._fallback is None else self._fallback.select_batch(configs, count)

    def _fit_correction(self, observations: Observations) -> LinearCorrection | None:
        quality = observations.relative_throughput
        timed = quality > 0.0
        if not timed.any():
            return None
        targets = np.log(quality, out=np.zeros(len(quality)), where=timed)
        targets[~timed] = targets[timed].min()
        mean, deviation = self._predictor.moments(observations.configs)
        return LinearCorrection(
            self._predictor.representation(observations.configs),
            targets - mean,
            deviation=float(deviation.mean()),
        )


def _warn_out_of_distribution(context: StageContext, reason: str, name: str) -> bool:
    """Log that no predictor suits a task; the result is False."""
    log.warning(
        "task_tuned_by_measurement",
        task=context.task.name,
        reason=f"the task is unlike those that the predictor was trained on: {reason}",
        model=name,
    )
    return False


def _find_files(targets: str, context: StageContext) -> list[Path]:
    """The files of models, to be tried in order; empty if no included model suits the target."""
    try:
        return model_files(targets, context.device)
    except NoModelError as error:
        if targets != AUTO:
            raise
        log.warning(
            "target_without_predictor",
            reason="operators begin with first guesses; the budget decides on measurements",
            problem=str(error),
            hint=error.hint,
        )
        return []


def _warn_unknown(unknown: Sequence[str], name: str) -> bool:
    """Log, once per run, the parts of a design space that the predictor does not know."""
    log.warning(
        "unknown_knobs_ignored",
        reason="the predictor does not know all of a design space",
        unknown=in_quotes(unknown),
        model=name,
        hint="Configurations that differ in nothing else are the same for it. `chameleon pretrain` "
        "trains a predictor on new data (docs/one-shot.md).",
    )
    return True


def _choose_device(model: Model, tokens: TaskTokens, name: str) -> FixedToken:
    """The device to predict for: the nearest trained one, with a warning, if it is unlike all.

    Unknown facts about a device would only disturb the predictor.
    """
    reason = model.detector.check_device(tokens)
    if reason is None:
        return tokens.fixed[1]
    log.warning(
        "nearest_device_assumed",
        reason=f"the predictor was trained on other devices: {reason}",
        model=name,
        hint="Collect data here and train one with `chameleon pretrain` (docs/one-shot.md).",
    )
    return model.detector.nearest_device(tokens)


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

_NOISE_RATIOS = (0.03, 0.1, 0.3, 1.0)
"""Candidates for the variance of the noise, relative to the variance of the network's errors."""

_OFFSET_RATIO = 10.0
"""The standard deviation of the offset, relative to that of the network's errors.

It is large, because the network is trained only to compare configurations of one task.
"""


class LinearCorrection:
    """A linear model of a predictor's errors on one task, fitted to measurements.

    It is Bayesian linear regression (Bishop 2006, section 3.3).

    Args:
        representation: the predictor's features of the measured configurations, shape (n, width).
        errors: the logarithm of relative throughput minus its prediction, shape (n,).
        deviation: the standard deviation of the predictor's errors.
    """

    def __init__(self, representation: Numbers, errors: Numbers, *, deviation: float) -> None:
        self._deviation = max(deviation, 1e-6)
        inputs = self._inputs(representation, offset=_OFFSET_RATIO)
        best = -np.inf
        for noise in _NOISE_RATIOS:
            covariance = inputs @ inputs.T + noise * self._deviation**2 * np.eye(len(inputs))
            factor = np.linalg.cholesky(covariance)
            half = np.linalg.solve(factor, errors)
            evidence = -0.5 * float(half @ half) - float(np.log(np.diagonal(factor)).sum())
            if evidence > best:
                best, self._factor, self._half = evidence, factor, half
        self._measured = inputs

    def moments(self, representation: Numbers) -> tuple[Numbers, Numbers]:
        """Mean and deviation of the error for features (n, width), shape (n,) each."""
        inputs = self._inputs(representation, offset=_OFFSET_RATIO)
        shared = np.linalg.solve(self._factor, self._measured @ inputs.T)
        # The uncertainty of the offset does not count, because all configurations share it.
        centred_inputs = self._inputs(representation, offset=0.0)
        explained = np.linalg.solve(self._factor, self._measured @ centred_inputs.T)
        variance = (centred_inputs**2).sum(axis=1) - (explained**2).sum(axis=0)
        return shared.T @ self._half, np.sqrt(np.maximum(variance, 0.0))

    def _inputs(self, representation: Numbers, *, offset: float) -> Numbers:
        """Features scaled by the prior's standard deviation, with a column for the offset."""
        column = np.full((len(representation), 1), offset)
        scaled = representation / np.sqrt(representation.shape[1])
        return self._deviation * np.concatenate([scaled, column], axis=1)
