"""Tasks of a data set as what a predictor learns from: tokens, configurations, targets."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.pipeline.stage_reader import read_options
from chameleon_core.plugins.registry import default_registry
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.space.fixed import index_of
from chameleon_core.stages import SpaceProvider
from numpy.typing import NDArray

from chameleon_one_shot.dataset.tasks import Dataset, DatasetError, DatasetTask, canonical
from chameleon_one_shot.tokens import TaskTokens, recorded_tokens, task_tokens

log = structlog.get_logger()

_LEAST_TIMED = 2
"""Timed configurations below which a task says nothing about which is better."""


@attrs.frozen(kw_only=True, eq=False)
class Example:
    """A task with its measured configurations.

    Attributes:
        source: where it comes from.
        tokens: its tokens.
        configs: its configurations in the terms of the tokens, shape (n, knobs).
        quality: logarithms of relative throughput, 0 for the best and those of the slowest that
            was timed for failures, shape (n,).
        failed: which of them failed, shape (n,).
    """

    source: DatasetTask
    tokens: TaskTokens
    configs: Configs
    quality: NDArray[np.float64]
    failed: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.quality)

    @property
    def identity(self) -> str:
        """The task and the device, as text."""
        return identity(self.source)

    @property
    def guesses(self) -> Configs:
        """The recommendations of the space, best first; none if the space is not known."""
        space = self.tokens.space
        return self.configs[:0] if space is None else space.first_guesses


def identity(task: DatasetTask) -> str:
    """The identity of the task and its device, as text."""
    device = hashlib.sha256(canonical(dict(task.device)).encode()).hexdigest()[:8]
    return f"{task.task.key}@{device}x{task.threads}"


def examples_of(dataset: Dataset) -> list[Example]:
    """The examples of a data set.

    Tasks without two timed configurations are left out, which the log says. If a task's space is
    not what it was when it was measured, its configurations are those of today's with the same
    choices. If one of them is no longer offered, only choices are used, and the log says so.

    Raises:
        DatasetError: nothing can be learnt from it.
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
        log.warning("tasks with fewer than two timed candidates teach nothing", tasks=empty)
    if stale:
        log.warning(
            "the design spaces of some tasks have changed, so only their choices are used; "
            "collect them anew for the features of their loops and buffers",
            tasks=len(stale),
            operators=sorted({operator for operator, _ in stale}),
            first=stale[0][1],
        )
    if not examples:
        raise DatasetError(
            "no task of the data set has two timed candidates",
            hint="Collect more with `chameleon dataset collect`.",
        )
    return examples


def log_quality(seconds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of relative throughput of one task, failures as slow as the slowest; shape (n,).

    Args:
        seconds: infinity for failures; one at least is finite.
    """
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
        failed=~np.isfinite(task.seconds),
    )


def _space(task: DatasetTask) -> tuple[DesignSpace | None, Configs, str]:
    """The design space of a task, its configurations, and why there is no space if there was."""
    none = np.empty((0, 0), np.int32)
    if task.configs is None or not task.space:
        return None, none, ""
    try:
        space = provider(task.space, dict(task.space_options)).design_space(task.task)
        same = space.fingerprint == task.fingerprint
        return space, task.configs if same else with_choices(space, task.choices), ""
    except ChameleonError as error:
        return None, none, str(error)


def with_choices(space: DesignSpace, choices: Sequence[Mapping[str, Any]]) -> Configs:
    """The configurations that have some choices; a knob that these lack is at its first option.

    Raises:
        ConfigError: a choice is no option of its knob.
    """
    configs = np.zeros((len(choices), len(space.knobs)), np.int32)
    for column, knob in enumerate(space.knobs):
        met = {canonical(choice[knob.name]): choice for choice in choices if knob.name in choice}
        options = {text: index_of(knob, choice[knob.name]) for text, choice in met.items()}
        texts = [canonical(choice.get(knob.name)) for choice in choices]
        configs[:, column] = [options.get(text, 0) for text in texts]
    return space.canonical(configs)


def provider(name: str, options: dict[str, Any]) -> SpaceProvider:
    """The space provider of a name with options as JSON values.

    Raises:
        ChameleonError: it is unknown, or has no such options.
    """
    registry = default_registry()
    record = registry.record("spaces", name)
    space: SpaceProvider = registry.create(
        "spaces", name, read_options(options, record.options, f"space '{name}'")
    )
    return space
