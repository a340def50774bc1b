"""Tasks of a data set as what a predictor learns from: tokens, configurations, targets."""

from __future__ import annotations

import hashlib
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.pipeline.stage_reader import read_options
from chameleon_core.plugins.registry import default_registry
from chameleon_core.space import Configs, DesignSpace
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

    Tasks without two timed configurations are left out. If a task's space is not what it was when
    it was measured, only its choices are used. The log says both.

    Raises:
        DatasetError: nothing can be learnt from it.
    """
    examples, empty, stale = [], 0, []
    for task in dataset.tasks:
        timed = np.isfinite(task.seconds)
        if np.count_nonzero(timed) < _LEAST_TIMED:
            empty += 1
            continue
        space, problem = _space(task)
        if problem:
            stale.append((task.task.operator, problem))
        examples.append(_example(task, space))
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


def _example(task: DatasetTask, space: DesignSpace | None) -> Example:
    if space is None:
        tokens, configs = recorded_tokens(task.task, task.device, task.threads, task.choices)
    else:
        assert task.configs is not None  # noqa: S101 - narrows the type; ``_space`` saw to it
        tokens, configs = task_tokens(task.task, task.device, task.threads, space), task.configs
    return Example(
        source=task,
        tokens=tokens,
        configs=configs,
        quality=log_quality(task.seconds),
        failed=~np.isfinite(task.seconds),
    )


def _space(task: DatasetTask) -> tuple[DesignSpace | None, str]:
    """The design space of a task's configurations, and why there is none if there was one."""
    if task.configs is None or not task.space:
        return None, ""
    try:
        space = provider(task.space, dict(task.space_options)).design_space(task.task)
    except ChameleonError as error:
        return None, str(error)
    if space.fingerprint != task.fingerprint:
        return None, f"the space of {task.task.operator} is another one than it was"
    return space, ""


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
