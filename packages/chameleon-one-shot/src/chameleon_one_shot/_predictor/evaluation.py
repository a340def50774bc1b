"""Evaluates predictors on tasks that they have not seen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog

from chameleon_one_shot._dataset.format import read_dataset
from chameleon_one_shot._dataset.tasks import DatasetError
from chameleon_one_shot._predictor.alternatives import ALTERNATIVES, Scores
from chameleon_one_shot._predictor.examples import Example, examples_of
from chameleon_one_shot._predictor.groups import task_groups
from chameleon_one_shot._predictor.metrics import Quality
from chameleon_one_shot._predictor.model import Model, load

log = structlog.get_logger()

ONE_SHOT = "one-shot"
"""The name of the predictor itself in comparisons."""

_MEASURED = 8
"""The number of configurations of a task that ``preset: one-shot`` measures."""

_SLOW = 0.85
"""The relative speed below which a chosen configuration counts as slow."""


@attrs.frozen(kw_only=True)
class TaskResult:
    """How well one model ranks the candidates of one task.

    Attributes:
        task: the identity of the task and its device.
        measured: the relative speed of the fastest candidate that ``preset: one-shot`` would
            measure.
    """

    model: str
    task: str
    operator: str
    candidates: int
    quality: Quality
    measured: float

    @property
    def unmeasured(self) -> float:
        """The relative speed of the first choice, which a run without measurements uses."""
        return 1.0 / (1.0 + self.quality.top1)


@attrs.frozen(kw_only=True)
class Evaluation:
    """The results of several models on the same tasks."""

    results: tuple[TaskResult, ...]

    @property
    def means(self) -> dict[str, Quality]:
        """The mean quality of each model over all tasks, by the model's name."""
        names = dict.fromkeys(result.model for result in self.results)
        qualities = {
            name: Quality.mean(result.quality for result in self.results if result.model == name)
            for name in names
        }
        return dict(sorted(qualities.items(), key=lambda item: -item[1].tau))

    @property
    def speeds(self) -> dict[str, dict[str, float]]:
        """The geometric mean of each model's relative speeds, and the share of slow tasks."""
        speeds: dict[str, dict[str, float]] = {}
        for name in self.means:
            figures = speeds[name] = {}
            results = [result for result in self.results if result.model == name]
            for choice in ("unmeasured", "measured"):
                each = np.array([getattr(result, choice) for result in results])
                figures[choice] = float(np.exp(np.log(each).mean()))
                figures[f"{choice}_slow"] = float((each < _SLOW).mean())
        return speeds

    def to_json(self) -> dict[str, Any]:
        """The mean qualities, the speeds and all results as JSON values."""
        return {
            "models": {name: attrs.asdict(quality) for name, quality in self.means.items()},
            "speeds": self.speeds,
            "tasks": [attrs.asdict(result) for result in self.results],
        }


def split_unseen(model: Model, examples: Sequence[Example]) -> tuple[list[Example], list[Example]]:
    """Divide examples into those that may judge a model, and those it was trained on."""
    provenance = model.provenance
    trained, known = set(provenance.training), {*provenance.training, *provenance.stopping}
    labels = task_groups([example.source for example in examples])
    seen_groups = {
        int(label) for label, row in zip(labels, examples, strict=True) if row.identity in known
    }
    return (
        [row for label, row in zip(labels, examples, strict=True) if int(label) not in seen_groups],
        [example for example in examples if example.identity in trained],
    )


def evaluate_file(file: Path, dataset: Path, **options: Any) -> Evaluation:
    """Evaluate the model in a file on the tasks of a data set; see ``evaluate``."""
    return evaluate(load(file), examples_of(read_dataset(dataset)), **options)


def evaluate(
    model: Model,
    examples: Sequence[Example],
    *,
    alternatives: Sequence[str] = tuple(ALTERNATIVES),
    seed: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Evaluate a model on the tasks that it has not seen, beside other models."""
    judged, trained = split_unseen(model, examples)
    if not judged:
        raise DatasetError(
            "the model was trained on all tasks of the data set, or on tasks like them",
            hint="Leave some out with `chameleon pretrain --hold-out`, or name another data set.",
        )
    ends = set(model.provenance.stopping)
    stopping = [example for example in examples if example.identity in ends]
    results = results_of(ONE_SHOT, score_function(model), judged)
    for name in alternatives:
        alternative = ALTERNATIVES[name]()
        if name != "first-guesses":
            if not trained or not stopping:
                log.warning(
                    "model_not_compared",
                    reason="the data set lacks the tasks that the evaluated model was trained on",
                    model=name,
                )
                continue
            say(f"training {name} on {len(trained)} tasks")
            alternative.fit(trained, stopping, seed)
        results += results_of(name, alternative.scores, judged)
    return Evaluation(results=tuple(results))


def score_function(model: Model) -> Callable[[Example], Scores]:
    """A function that returns a model's scores of an example's candidates."""
    return lambda example: model.predictor.of(example.tokens).moments(example.configs)[0]


def results_of(
    name: str, scores: Callable[[Example], Scores], examples: Sequence[Example]
) -> list[TaskResult]:
    """Judge one model by some tasks."""
    results = []
    for example in examples:
        if np.ptp(example.quality) > 0.0:
            scored = scores(example)
            results.append(
                TaskResult(
                    model=name,
                    task=example.identity,
                    operator=example.source.task.operator,
                    candidates=len(example),
                    quality=Quality.of(scored, example.quality),
                    measured=measured_speed(scored, example),
                )
            )
    return results


def measured_speed(scores: Scores, example: Example) -> float:
    """The relative speed of the fastest candidate that ``preset: one-shot`` would measure."""
    order = np.lexsort((example.quality, -scores)).tolist()
    at = {tuple(row): number for number, row in enumerate(example.configs.tolist())}
    guesses = (at[tuple(row)] for row in example.guesses.tolist() if tuple(row) in at)
    batch = list(dict.fromkeys([*islice(guesses, 1), *order]))[:_MEASURED]
    return float(np.exp(example.quality[batch].max() - example.quality.max()))


def table(evaluation: Evaluation) -> str:
    """The mean qualities and the speeds of models as a text table."""
    heads = f"{'model':<14} {'tau':>6} {'pairs':>6} {'top-1':>7} {'top-10':>7}"
    lines = [f"{heads} {'speed, 0':>9} {'slow':>6} {'speed, 8':>9} {'slow':>6}"]
    for name, row in evaluation.means.items():
        speeds = evaluation.speeds[name]
        lines.append(
            f"{name:<14} {row.tau:6.3f} {row.pairwise:6.3f} {row.top1:7.1%} {row.top10:7.1%} "
            f"{speeds['unmeasured']:9.3f} {speeds['unmeasured_slow']:6.1%} "
            f"{speeds['measured']:9.3f} {speeds['measured_slow']:6.1%}"
        )
    return "\n".join(lines)
