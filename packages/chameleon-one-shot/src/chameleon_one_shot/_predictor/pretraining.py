"""Trains a model on a data set: it divides the data, trains, and calibrates the uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import FIRST_PARTY, installed
from numpy.typing import NDArray

from chameleon_one_shot._dataset.tasks import Dataset, DatasetError
from chameleon_one_shot._predictor.examples import Example, Scale, examples_of
from chameleon_one_shot._predictor.familiarity import Familiarity
from chameleon_one_shot._predictor.groups import divided, task_groups
from chameleon_one_shot._predictor.metrics import Quality
from chameleon_one_shot._predictor.model import Model, Provenance
from chameleon_one_shot._predictor.options import TrainingOptions
from chameleon_one_shot._predictor.predictor import Predictor
from chameleon_one_shot._predictor.training import train
from chameleon_one_shot._predictor.trees import TreePredictor
from chameleon_one_shot._tokens import Vocabulary

AnyPredictor = Predictor | TreePredictor

_NORMAL_90 = 1.6449
"""The standard deviations around the mean within which 90 % of a normal distribution lie."""


@attrs.frozen(kw_only=True)
class Division:
    """The shares by which a data set is divided.

    Attributes:
        stopping: The share of the candidates that tells the errors of trees, which learn from it
            last. It decides when the training of networks ends.
        held_out: The share of the candidates that takes no part in training, and that judges the
            model.
    """

    stopping: float = 0.15
    held_out: float = 0.15


@attrs.frozen(kw_only=True, eq=False)
class Divided:
    """The examples of a data set in three parts: training, early stopping, final evaluation."""

    training: Sequence[Example]
    stopping: Sequence[Example]
    held_out: Sequence[Example]


def divide(examples: Sequence[Example], division: Division, seed: int) -> Divided:
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
    parts = divided(labels, weights, [share for share in shares if share > 0.0], seed)
    of = [[examples[at] for at in part] for part in parts]
    # Without a part of its own the training ends by what it is judged by, or not at all.
    held_out = of[-1] if division.held_out > 0.0 else []
    stopping = of[1] if division.stopping > 0.0 else of[0]
    return Divided(training=of[0], stopping=stopping, held_out=held_out)


def pretrain(
    dataset: Dataset,
    options: TrainingOptions,
    division: Division,
    *,
    command: str,
    say: Callable[[str], None] = lambda _: None,
) -> Model:
    """Train a model on a data set."""
    parts = divide(examples_of(dataset), division, options.seed)
    return trained_model(parts, options, command=command, say=say)


def trained_model(
    parts: Divided,
    options: TrainingOptions,
    *,
    command: str = "",
    say: Callable[[str], None] = lambda _: None,
) -> Model:
    """Train a model on examples that are already divided."""
    training = parts.training
    vocabulary = Vocabulary.learnt((example.tokens, example.configs) for example in training)
    if options.kind == "trees":
        predictor: AnyPredictor = TreePredictor.trained(
            training, parts.stopping, vocabulary, members=options.members, seed=options.seed
        )
        return _finished(predictor, parts, command, {}, options.seed)
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
    return _finished(predictor, parts, command, {"members": runs}, options.seed)


def _finished(
    predictor: AnyPredictor, parts: Divided, command: str, results: dict[str, Any], seed: int
) -> Model:
    """The model of a predictor, with temperature and limits from the early-stopping tasks."""
    predictor = attrs.evolve(predictor, temperature=_temperature(predictor, parts.stopping))
    deviations = [_deviation(predictor, example) for example in parts.stopping]
    familiarity = Familiarity.learnt(
        [example.tokens for example in parts.training],
        [example.tokens for example in parts.stopping],
        deviations,
        predictor.vocabulary,
    )
    if isinstance(predictor, TreePredictor):
        # Last of all: errors of tasks that it learned from say nothing about those of others.
        predictor = predictor.retrained([*parts.training, *parts.stopping], seed)
    results["temperature"] = predictor.temperature
    if parts.held_out:
        results["held_out"] = _judged(predictor, parts.held_out)
    return Model(
        predictor=predictor,
        familiarity=familiarity,
        provenance=_provenance(parts, command, results),
    )


def _temperature(predictor: AnyPredictor, examples: Sequence[Example]) -> float:
    """The factor that makes standard deviations right on average; all tasks count the same."""
    ratios = []
    for example in examples:
        mean, deviation = predictor.of(example.tokens).moments(example.configs)
        ratios.append(((_missing(example, mean) / deviation) ** 2).mean())
    return float(np.sqrt(np.mean(ratios)))


def _missing(example: Example, mean: NDArray[np.float64]) -> NDArray[np.float64]:
    """The errors of predictions, minus their mean over the task, which is not trained."""
    missing = example.quality - mean
    return np.asarray(missing - missing.mean(), np.float64)


def _deviation(predictor: AnyPredictor, example: Example) -> float:
    return float(predictor.of(example.tokens).moments(example.configs)[1].mean())


def _judged(predictor: AnyPredictor, examples: Sequence[Example]) -> dict[str, Any]:
    """The quality of the ranking on held-out tasks, and the coverage of predicted intervals."""
    qualities, inside = [], []
    for example in examples:
        mean, deviation = predictor.of(example.tokens).moments(example.configs)
        if np.ptp(example.quality) > 0.0:
            qualities.append(Quality.of(mean, example.quality))
        inside.append((np.abs(_missing(example, mean)) <= _NORMAL_90 * deviation).mean())
    figures = {"tasks": len(examples), "coverage_90": float(np.mean(inside))}
    return figures | (attrs.asdict(Quality.mean(qualities)) if qualities else {})


def _provenance(parts: Divided, command: str, results: dict[str, Any]) -> Provenance:
    devices = {_target(example): None for example in parts.training}
    return Provenance(
        command=command,
        versions=installed(sorted({*FIRST_PARTY, "apache-tvm", "torch"})),
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
