"""What there is in a data set, and what is wrong with it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from chameleon_one_shot.dataset.format import parts_of, read_manifest, read_part
from chameleon_one_shot.dataset.records import Dataset, DatasetError, DatasetTask, merged

_FEWEST = 2
"""Tasks that a predictor needs: it is judged by tasks that it has not seen."""


@attrs.frozen(kw_only=True)
class Summary:
    """A data set in numbers.

    Attributes:
        tasks: distinct ones.
        candidates: measured, each once.
        failed: candidates by kind of failure.
        operators: tasks by kind of operator.
        devices: candidates by device, in few words.
        sources: candidates by source.
        threads: candidates by number of threads.
    """

    tasks: int
    candidates: int
    failed: dict[str, int]
    operators: dict[str, int]
    devices: dict[str, int]
    sources: dict[str, int]
    threads: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return attrs.asdict(self)


def summary_of(dataset: Dataset) -> Summary:
    """Count what there is."""
    failed: Counter[str] = Counter()
    devices: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    for task in dataset.tasks:
        failed.update(one for one in task.failures if one is not None)
        devices[_device(task)] += len(task)
        sources[task.source] += len(task)
        threads[str(task.threads)] += len(task)
    return Summary(
        tasks=len(dataset.tasks),
        candidates=dataset.candidates,
        failed=dict(failed.most_common()),
        operators=dict(Counter(task.task.operator for task in dataset.tasks).most_common()),
        devices=dict(devices.most_common()),
        sources=dict(sources.most_common()),
        threads=dict(threads.most_common()),
    )


@attrs.frozen(kw_only=True)
class Check:
    """What is wrong with a data set.

    Attributes:
        parts: files that could be read.
        candidates: in them, each once.
        duplicates: candidates that are there a second time; readers leave them out.
        errors: what keeps a predictor from being trained with it, a sentence for each.
        warnings: what it should be known for.
    """

    parts: int
    candidates: int
    duplicates: int
    errors: tuple[str, ...]
    warnings: tuple[str, ...]


def check(folder: Path) -> Check:
    """Read every part by itself, and say all that is wrong.

    Raises:
        DatasetError: it is no data set, or of a newer version.
    """
    read_manifest(folder)
    errors: list[str] = []
    found: list[DatasetTask] = []
    files = parts_of(folder)
    for file in files:
        try:
            found += read_part(file)
        except DatasetError as error:
            errors.append(str(error))
    readable = len(files) - len(errors)
    tasks, duplicates = merged(found)
    useful = [task for task in tasks if np.isfinite(task.seconds).sum() > 1]
    if len({task.task.key for task in useful}) < _FEWEST:
        errors.append(
            f"{len(useful)} of {len(tasks)} tasks have two valid candidates or more, and training "
            f"needs {_FEWEST} such tasks"
        )
    warnings = []
    if len(useful) < len(tasks):
        warnings.append(f"{len(tasks) - len(useful)} tasks have less than two valid candidates")
    if any(not task.device for task in tasks):
        warnings.append("of some candidates the device is not known")
    return Check(
        parts=readable,
        candidates=sum(map(len, tasks)),
        duplicates=duplicates,
        errors=tuple(errors),
        warnings=tuple(warnings),
    )


def _device(task: DatasetTask) -> str:
    words = [task.device.get(name) for name in ("kind", "mcpu", "arch")]
    return " ".join(str(word) for word in words if word) or "unknown"
