"""Reads recorded tables, such as Kernel Tuner's, by the stages that replay them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from chameleon_core.loop import Interruption
from chameleon_core.loop.round.measure import started
from chameleon_core.loop.start.tasks import spaces_of, tasks_of
from chameleon_core.pipeline.load import from_dict
from chameleon_core.plugins import Registry
from chameleon_core.stages import MeasureJob, StageRef

from chameleon_one_shot.dataset.records import DatasetError, DatasetTask
from chameleon_one_shot.dataset.sampling.drawing import named_by_key


def tasks_of_table(file: Path, *, registry: Registry, source: str) -> list[DatasetTask]:
    """Every configuration of a recorded table.

    Args:
        file: a Kernel Tuner cache or a T4 file, plain or gzip.
        registry: knows the stages that replay tables.
        source: what the data set calls the table.

    Raises:
        ConfigError: it is no such file.
        DatasetError: its space cannot be listed.
    """
    document = {
        "model": {"table": {"paths": str(file.absolute())}},
        "target": "llvm",
        "space": "table",
        "runner": "replay",
        "explorer": "random",
        "cost_model": "none",
        "baselines": [],
    }
    pipeline = from_dict(document, registry=registry)
    _, tasks = tasks_of(pipeline, target="recorded")
    found = []
    space_ref = StageRef.of(pipeline.space)
    with started(pipeline.runner, space_ref, Interruption(), lambda _: None) as runner:
        for task, space in zip(tasks, spaces_of(pipeline, tasks), strict=True):
            configs = space.everything
            if configs is None:
                raise DatasetError(f"the table {file} is too large", hint="Take a part of it.")
            rows = tuple(tuple(map(int, row)) for row in configs)
            job = MeasureJob(task=task, space=space_ref, configs=rows)
            measured = {one.config: one for one in runner.measure(job)}
            ordered = [measured[row] for row in rows]
            found.append(
                DatasetTask(
                    task=named_by_key(task),
                    device={},
                    threads=0,
                    space=pipeline.space.name,
                    space_options={},
                    fingerprint=space.fingerprint,
                    versions={},
                    source=source,
                    configs=np.array(rows, np.int32),
                    choices=[space.decode(row) for row in rows],
                    seconds=np.array([one.cost for one in ordered]),
                    failures=[None if one.ok else str(one.failure) for one in ordered],
                    origins=[None] * len(rows),
                    measured_at=np.zeros(len(rows)),
                )
            )
    return found


__all__ = ["tasks_of_table"]
