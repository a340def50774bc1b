"""The content of a data set: tasks, each with the candidates that were measured of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.task import Task
from numpy.typing import NDArray


class DatasetError(ConfigError):
    """A data set cannot be read or used; says which file of it is wrong."""


def canonical(value: Any) -> str:
    """JSON values as the one text that stands for them, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@attrs.frozen(kw_only=True, eq=False)
class DatasetTask:
    """The candidates of one task on one device, n of them.

    Attributes:
        task: the task; its name is its key.
        device: what the device is, as ``TargetResolver.describe`` tells it.
        threads: that kernels ran with; 0 if nobody knows.
        space: the space provider's name; empty if the candidates are of no space.
        space_options: its options, as JSON values.
        fingerprint: of the design space; empty if there is none.
        versions: of the distributions that took part, as far as they were kept.
        source: the collection's name, or what the candidates were imported from.
        configs: knob indices, int32 of shape (n, knobs), or None if no space is known.
        choices: the decoded configurations, one each.
        seconds: float64 of shape (n,), infinity for failures.
        failures: the kind of failure of each, or None.
        origins: what put each into its batch, or None.
        measured_at: when, in seconds since 1970, float64 of shape (n,); 0 if nobody knows.
    """

    task: Task
    device: Mapping[str, Any] = attrs.field(factory=dict)
    threads: int = 0
    space: str = ""
    space_options: Mapping[str, Any] = attrs.field(factory=dict)
    fingerprint: str = ""
    versions: Mapping[str, str | None] = attrs.field(factory=dict)
    source: str
    configs: NDArray[np.int32] | None = None
    choices: Sequence[Mapping[str, Any]]
    seconds: NDArray[np.float64]
    failures: Sequence[str | None]
    origins: Sequence[str | None] = attrs.field()
    measured_at: NDArray[np.float64] = attrs.field()

    @origins.default
    def _unknown_origins(self) -> Sequence[str | None]:
        return [None] * len(self)

    @measured_at.default
    def _unknown_times(self) -> NDArray[np.float64]:
        return np.zeros(len(self))

    def __len__(self) -> int:
        return len(self.choices)

    @property
    def group(self) -> tuple[str, str, int, str, str]:
        """All of its candidates' identity but the knobs, which no other task has."""
        digest = hashlib.sha256(canonical(dict(self.device)).encode()).hexdigest()[:16]
        return self.task.key, digest, self.threads, self.space, self.fingerprint

    def rows(self, keep: Sequence[int]) -> DatasetTask:
        """The same task with some of its candidates, in the order given."""
        at = np.asarray(keep, np.intp)
        return attrs.evolve(
            self,
            configs=None if self.configs is None else self.configs[at],
            choices=[self.choices[row] for row in keep],
            seconds=self.seconds[at],
            failures=[self.failures[row] for row in keep],
            origins=[self.origins[row] for row in keep],
            measured_at=self.measured_at[at],
        )


@attrs.frozen(kw_only=True, eq=False)
class Dataset:
    """Everything of a folder, each candidate once.

    Attributes:
        tasks: sorted by key.
        plan: the plan that it was collected by, as JSON values, or None.
        duplicates: candidates that were there a second time, and were left out.
    """

    tasks: tuple[DatasetTask, ...]
    plan: Mapping[str, Any] | None = None
    duplicates: int = 0

    @property
    def candidates(self) -> int:
        """Measured candidates of all tasks, failures included."""
        return sum(map(len, self.tasks))


def merged(tasks: Iterable[DatasetTask]) -> tuple[tuple[DatasetTask, ...], int]:
    """Tasks with each candidate once: of two measurements of one candidate the first stands.

    Args:
        tasks: in the order in which they count.

    Returns:
        The tasks, sorted, and the number of candidates that were there before.
    """
    groups: dict[tuple[str, str, int, str, str], list[DatasetTask]] = {}
    for task in tasks:
        groups.setdefault(task.group, []).append(task)
    merged_tasks, dropped = [], 0
    for _, parts in sorted(groups.items()):
        whole = _joined(parts)
        first: dict[str, int] = {}
        for row, choice in enumerate(whole.choices):
            first.setdefault(canonical(choice), row)
        dropped += len(whole) - len(first)
        merged_tasks.append(whole if len(first) == len(whole) else whole.rows(list(first.values())))
    return tuple(merged_tasks), dropped


def _joined(parts: Sequence[DatasetTask]) -> DatasetTask:
    if len(parts) == 1:
        return parts[0]
    configs = [part.configs for part in parts if part.configs is not None]
    return attrs.evolve(
        parts[0],
        # Where one of them is of no known space, only the choices say what was measured.
        configs=np.concatenate(configs) if len(configs) == len(parts) else None,
        choices=[choice for part in parts for choice in part.choices],
        seconds=np.concatenate([part.seconds for part in parts]),
        failures=[failure for part in parts for failure in part.failures],
        origins=[origin for part in parts for origin in part.origins],
        measured_at=np.concatenate([part.measured_at for part in parts]),
    )


def named_by_key(task: Task) -> Task:
    """A task under the name that only it has, as it would occur once in a network."""
    name = f"{task.operator} {task.key[:12]}"
    return attrs.evolve(task, name=name, weight=1, alternative_of="")
