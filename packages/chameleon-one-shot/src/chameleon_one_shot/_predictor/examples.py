"""Converts the tasks of a data set to examples: tokens, configurations and targets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import (
    ChameleonError,
    Configs,
    DesignSpace,
    SpaceProvider,
    create_stage,
)
from numpy.typing import NDArray

from chameleon_one_shot._dataset.tasks import Dataset, DatasetError, DatasetTask, canonical
from chameleon_one_shot._tokens.configuration import TaskTokens, recorded_tokens, task_tokens

log = structlog.get_logger()

_LEAST_TIMED = 2
"""The fewest timed configurations with which a task is used."""


@attrs.frozen(kw_only=True, eq=False)
class Example:
    """A task with its n measured configurations, as a predictor learns from it.

    Attributes:
        tokens: The descriptions (tokens) of the task, its device, and each choice of its knobs,
            which the predictor reads.
        configs: For each configuration, the index of every knob's choice in ``tokens.knobs``, shape
            (n, knobs).
        quality: The logarithms of relative throughput, shape (n,). The fastest configuration has 0.
            Failures have the value of the slowest timed configuration.
    """

    source: DatasetTask
    tokens: TaskTokens
    configs: Configs
    quality: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.quality)

    @property
    def identity(self) -> str:
        """The identity of the task and its device."""
        return identity(self.source)

    @property
    def guesses(self) -> Configs:
        """The configurations that the task's design space would measure first, best first."""
        space = self.tokens.space
        return self.configs[:0] if space is None else space.first_guesses


@attrs.frozen(kw_only=True)
class Scale:
    """The mean and standard deviation by which a network's targets are standardised."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, examples: Sequence[Example]) -> Scale:
        """The scale of some examples; all tasks count the same."""
        mean = np.mean([example.quality.mean() for example in examples])
        variance = np.mean([((example.quality - mean) ** 2).mean() for example in examples])
        return cls(mean=float(mean), deviation=max(float(np.sqrt(variance)), 1e-6))


def identity(task: DatasetTask) -> str:
    """A string that identifies a task together with its device and number of threads."""
    device = hashlib.sha256(canonical(dict(task.device)).encode()).hexdigest()[:8]
    return f"{task.task.key}@{device}x{task.threads}"


def examples_of(dataset: Dataset) -> list[Example]:
    """An example of each task of a data set that has two timed configurations.

    If a design space has changed, configurations with the same knob values are used.
    """
    examples, empty, stale = [], 0, []
    for task in dataset.tasks:
        timed = np.isfinite(task.seconds)
        if np.count_nonzero(timed) < _LEAST_TIMED:
            empty += 1
            continue
        space, configs, problem = _space(task)
        if problem:
            stale.append((task.task.operator, problem))
        examples.append(_example(task, space, configs))
    if empty:
        log.warning("tasks_with_too_few_times_not_used", tasks=empty, needed=_LEAST_TIMED)
    if stale:
        log.warning(
            "outdated_features_not_used",
            hint="Collect the tasks anew for the features of their loops and buffers.",
            tasks=len(stale),
            operators=sorted({operator for operator, _ in stale}),
            problem=stale[0][1],
        )
    if not examples:
        raise DatasetError(
            "no task of the data set has two timed candidates",
            hint="Collect more with `chameleon dataset collect`.",
        )
    return examples


def log_quality(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The logarithms of relative throughput within one task, shape (n,)."""
    timed = np.isfinite(seconds)
    best = float(np.log(seconds[timed].min()))
    quality: NDArray[np.float64] = best - np.log(np.where(timed, seconds, 1.0))
    quality[~timed] = quality[timed].min()
    return quality


def _example(task: DatasetTask, space: DesignSpace | None, configs: Configs) -> Example:
    if space is None:
        tokens, configs = recorded_tokens(task.task, task.device, task.threads, task.choices)
    else:
        tokens = task_tokens(task.task, task.device, task.threads, space)
    return Example(
        source=task,
        tokens=tokens,
        configs=configs,
        quality=log_quality(task.seconds),
    )


def _space(task: DatasetTask) -> tuple[DesignSpace | None, Configs, str]:
    """The task's design space, its configurations, and why a known space cannot be used."""
    none = np.empty((0, 0), np.int32)
    if task.configs is None or not task.space:
        return None, none, ""
    try:
        space = make_provider(task.space, dict(task.space_options)).design_space(task.task)
        same = space.fingerprint == task.fingerprint
        return space, task.configs if same else configs_of_choices(space, task.choices), ""
    except ChameleonError as error:
        return None, none, str(error)


def configs_of_choices(space: DesignSpace, choices: Sequence[Mapping[str, Any]]) -> Configs:
    """Configurations of a design space from knob values."""
    configs = np.zeros((len(choices), len(space.knobs)), np.int32)
    for column, knob in enumerate(space.knobs):
        value_of_text = {
            canonical(choice[knob.name]): choice for choice in choices if knob.name in choice
        }
        options = {text: knob.encode(choice[knob.name]) for text, choice in value_of_text.items()}
        texts = [canonical(choice.get(knob.name)) for choice in choices]
        configs[:, column] = [options.get(text, 0) for text in texts]
    return space.canonical(configs)


def make_provider(name: str, options: dict[str, Any]) -> SpaceProvider:
    """The provider of design spaces that a data set names for a task."""
    space: SpaceProvider = create_stage("spaces", {**options, "name": name})
    return space
