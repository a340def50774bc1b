"""The content of a data set: tasks with their measured candidates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import ConfigError, Task
from numpy.typing import NDArray


class DatasetError(ConfigError):
    """A data set cannot be read or used; the message names the wrong file."""


def canonical(value: Any) -> str:
    """Convert a JSON value to a string in which the order of keys does not matter."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


@attrs.frozen(kw_only=True, eq=False)
class DatasetTask:
    """The n measured candidates of one task on one device, as a part of a data set.

    Attributes:
        task: The task, whose name is made from its key.
        device: The description of the device, as from ``TargetResolver.describe``.
        threads: The number of threads that kernels ran with; 0 if unknown.
        space: The name of the space provider; empty if there is none.
        space_options: The options of the space provider, as JSON values.
        fingerprint: The fingerprint of the design space; empty if there is none.
        versions: The versions of the distributions that took part, as far as known.
        source: The name of the collection, or of the source of an import.
        configs: The knob indices, int32 of shape (n, knobs). None if the space is unknown.
        choices: The knob values of each candidate, by knob name.
        seconds: The time of each candidate, float64 of shape (n,), infinity for failures.
        failures: The kind of failure of each candidate, or None.
        origins: The stage that proposed each candidate, or None.
        measured_at: The time of each measurement in seconds since 1970, float64 of shape (n,); 0 if
            unknown.
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
        """A key of the task with its device, number of threads and design space."""
        digest = hashlib.sha256(canonical(dict(self.device)).encode()).hexdigest()[:16]
        return self.task.key, digest, self.threads, self.space, self.fingerprint

    def rows(self, keep: Sequence[int]) -> DatasetTask:
        """A copy of the task with a selection of its candidates."""
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
    """The content of a data set, without duplicate candidates.

    Attributes:
        plan: The plan of the collection as JSON values, or None.
        duplicates: The number of duplicate candidates that were left out.
    """

    tasks: tuple[DatasetTask, ...]
    plan: Mapping[str, Any] | None = None
    duplicates: int = 0

    @property
    def candidates(self) -> int:
        """The number of measured candidates of all tasks, failures included."""
        return sum(map(len, self.tasks))


def merged(tasks: Iterable[DatasetTask]) -> tuple[tuple[DatasetTask, ...], int]:
    """Merge tasks of the same operator, device, threads and design space into one task."""
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
    """A copy of a task with a unique name, made from its operator and key, and with weight 1."""
    name = f"{task.operator} {task.key[:12]}"
    return attrs.evolve(task, name=name, weight=1, alternative_of="")
