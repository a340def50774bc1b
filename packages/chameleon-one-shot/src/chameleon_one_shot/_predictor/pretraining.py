"""Trains a model on a data set: it divides the data, trains, and calibrates the uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import installed
from numpy.typing import NDArray

from chameleon_one_shot._dataset.tasks import Dataset, DatasetError
from chameleon_one_shot._predictor.examples import Example, Scale, examples_of
from chameleon_one_shot._predictor.groups import divide_groups, task_groups
from chameleon_one_shot._predictor.metrics import Quality
from chameleon_one_shot._predictor.model import Model, Provenance
from chameleon_one_shot._predictor.options import TrainingOptions
from chameleon_one_shot._predictor.out_of_distribution import OODDetector
from chameleon_one_shot._predictor.predictor import Predictor
from chameleon_one_shot._predictor.training import train
from chameleon_one_shot._predictor.trees import TreePredictor
from chameleon_one_shot._tokens.vocabulary import Vocabulary

AnyPredictor = Predictor | TreePredictor

_NORMAL_90 = 1.6449
"""The standard deviations around the mean within which 90 % of a normal distribution lie."""


@attrs.frozen(kw_only=True)
class SplitShares:
    """The shares by which a data set is divided.

    Attributes:
        stopping: the share of the candidates from which trees learn their errors, and by which the
            training of networks ends.
        held_out: the share of the candidates that only judges the model.
    """

    stopping: float = 0.15
    held_out: float = 0.15


@attrs.frozen(kw_only=True, eq=False)
class Split:
    """The examples of a data set in three parts: training, early stopping, final evaluation."""

    training: Sequence[Example]
    stopping: Sequence[Example]
    held_out: Sequence[Example]


def split_examples(examples: Sequence[Example], division: SplitShares, seed: int) -> Split:
    """Divide examples at random into parts, without splitting groups of similar tasks."""
    if len(examples) < 2:  # noqa: PLR2004
        raise DatasetError(
            "the data set has one task only, and a predictor is judged by tasks that it has not "
            "seen",
            hint="Collect more tasks with `chameleon dataset collect`, or merge data sets.",
        )
    labels = task_groups([example.source for example in examples])
    weights = np.array([len(example) for example in examples], np.float64)
    shares = [division.stopping, division.held_out]
    parts = divide_groups(labels, weights, [share for share in shares if share > 0.0], seed)
    subsets = [[examples[at] for at in part] for part in parts]
    # Without a share for early stopping, the training data take its place.
    held_out = subsets[-1] if division.held_out > 0.0 else []
    stopping = subsets[1] if division.stopping > 0.0 else subsets[0]
    return Split(training=subsets[0], stopping=stopping, held_out=held_out)


def pretrain(
    dataset: Dataset,
    options: TrainingOptions,
    division: SplitShares,
    *,
    command: str,
    say: Callable[[str], None] = lambda _: None,
) -> Model:
    """Train a model on a data set."""
    parts = split_examples(examples_of(dataset), division, options.seed)
    return train_model(parts, options, command=command, say=say)


def train_model(
    parts: Split,
    options: TrainingOptions,
    *,
    command: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> Model:
    """Train a model on examples that are already divided."""
    training = parts.training
    vocabulary = Vocabulary.fit((example.tokens, example.configs) for example in training)
    if options.kind == "trees":
        predictor: AnyPredictor = TreePredictor.train(
            training, parts.stopping, vocabulary, members=options.members, seed=options.seed
        )
        return _calibrate(predictor, parts, command, {}, options.seed)
    scale = Scale.of(training)
    networks, runs = [], []
    for member in range(options.members):
        trained = train(
            training,
            parts.stopping,
            vocabulary=vocabulary,
            scale=scale,
            options=options,
            seed=options.seed + member,
        )
        networks.append(trained.network)
        runs.append({"step": trained.step, "tau": trained.tau, "seconds": trained.seconds})
        say(
            f"network {member + 1} of {options.members}: Kendall's tau {trained.tau:.3f} on tasks "
            f"that end the training, at step {trained.step}, after {trained.seconds:.0f} s"
        )
    predictor = Predictor(
        networks=networks, architecture=options.architecture, vocabulary=vocabulary, scale=scale
    )
    return _calibrate(predictor, parts, command, {"members": runs}, options.seed)


def _calibrate(
    predictor: AnyPredictor, parts: Split, command: str, results: dict[str, Any], seed: int
) -> Model:
    """The model of a predictor, with temperature and limits from the early-stopping tasks."""
    predictor = attrs.evolve(predictor, temperature=_temperature(predictor, parts.stopping))
    deviations = [_deviation(predictor, example) for example in parts.stopping]
    detector = OODDetector.fit(
        [example.tokens for example in parts.training],
        [example.tokens for example in parts.stopping],
        deviations,
        predictor.vocabulary,
    )
    if isinstance(predictor, TreePredictor):
        # Retraining is the last step, because errors on trained tasks would be too small.
        predictor = predictor.retrain([*parts.training, *parts.stopping], seed)
    results["temperature"] = predictor.temperature
    if parts.held_out:
        results["held_out"] = _evaluate(predictor, parts.held_out)
    return Model(
        predictor=predictor,
        detector=detector,
        provenance=_provenance(parts, command, results),
    )


def _temperature(predictor: AnyPredictor, examples: Sequence[Example]) -> float:
    """The factor that makes standard deviations right on average; all tasks count the same."""
    ratios = []
    for example in examples:
        mean, deviation = predictor.of(example.tokens).moments(example.configs)
        ratios.append(((_centred_errors(example, mean) / deviation) ** 2).mean())
    return float(np.sqrt(np.mean(ratios)))


def _centred_errors(example: Example, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The errors of predictions, minus their mean over the task, which is not trained."""
    errors = example.quality - mean
    return np.asarray(errors - errors.mean(), np.float64)


def _deviation(predictor: AnyPredictor, example: Example) -> float:
    return float(predictor.of(example.tokens).moments(example.configs)[1].mean())


def _evaluate(predictor: AnyPredictor, examples: Sequence[Example]) -> dict[str, Any]:
    """The quality of the ranking on held-out tasks, and the coverage of predicted intervals."""
    qualities, inside = [], []
    for example in examples:
        mean, deviation = predictor.of(example.tokens).moments(example.configs)
        if np.ptp(example.quality) > 0.0:
            qualities.append(Quality.of(mean, example.quality))
        inside.append((np.abs(_centred_errors(example, mean)) <= _NORMAL_90 * deviation).mean())
    figures = {"tasks": len(examples), "coverage_90": float(np.mean(inside))}
    return figures | (attrs.asdict(Quality.mean(qualities)) if qualities else {})


def _provenance(parts: Split, command: str, results: dict[str, Any]) -> Provenance:
    devices = {_target(example): None for example in parts.training}
    return Provenance(
        command=command,
        versions=installed() | installed(("apache-tvm", "torch")),
        targets=tuple({"kind": kind, "features": list(words)} for kind, words in devices),
        training=_identities(parts.training),
        stopping=_identities(parts.stopping),
        held_out=_identities(parts.held_out),
        candidates=sum(len(example) for example in parts.training),
        results=results,
    )


def _target(example: Example) -> tuple[str, tuple[str, ...]]:
    device = example.source.device
    return str(device.get("kind", "")), tuple(sorted(map(str, device.get("features", ()))))


def _identities(examples: Sequence[Example]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(example.identity for example in examples))
