"""Finds the format of a source, and adds its measurements to a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import Registry, RunFile, RunView, TaskSource, from_dict
from chameleon_core.plugin_api import MeasureJob, StageRef, TargetError, TargetResolver
from chameleon_system.api import unused_path

from chameleon_one_shot._dataset.format import MANIFEST, PARTS, create, read_dataset, write_part
from chameleon_one_shot._dataset.from_run import tasks_of_run
from chameleon_one_shot._dataset.importing.metaschedule import files_of, tasks_of_database
from chameleon_one_shot._dataset.tasks import DatasetError, DatasetTask, canonical, rename_by_key


@attrs.frozen(kw_only=True)
class ImportResult:
    """The candidates that a source added to a data set.

    Attributes:
        known: the number of candidates that the data set already had.
    """

    source: str
    tasks: int
    candidates: int
    known: int


def import_sources(
    folder: Path, sources: Sequence[Path], *, registry: Registry
) -> list[ImportResult]:
    """Add the measurements of sources to a data set."""
    create(folder)
    known: dict[tuple[str, str, int, str, str], set[str]] = {}
    for task in read_dataset(folder).tasks:
        known.setdefault(task.group, set()).update(map(canonical, task.choices))
    added = []
    for source in sources:
        new_tasks, duplicates = [], 0
        for task in read_source(source, registry=registry):
            known_choices = known.setdefault(task.group, set())
            keep = []
            for row, text in enumerate(map(canonical, task.choices)):
                if text not in known_choices:
                    known_choices.add(text)
                    keep.append(row)
            duplicates += len(task) - len(keep)
            if keep:
                new_tasks.append(task.rows(keep))
        if new_tasks:
            name = unused_path(folder / PARTS, "imported-{}.parquet").stem
            write_part(folder, new_tasks, name=name)
        candidates = sum(map(len, new_tasks))
        added.append(
            ImportResult(
                source=str(source), tasks=len(new_tasks), candidates=candidates, known=duplicates
            )
        )
    return added


def read_source(source: Path, *, registry: Registry) -> list[DatasetTask]:
    """Read all measurements of a source, such as a run folder or a Kernel Tuner cache."""
    name = source.absolute().name
    if (source / MANIFEST).is_file():
        return list(read_dataset(source).tasks)
    if (source / RunFile.RECORDS).is_file():
        return _of_run(source, registry)
    if source.is_dir():
        files = files_of(source)
        if files is not None:
            tasks = tasks_of_database(*files, source=name)
            described = [_device(task.task.target, registry) or task.device for task in tasks]
            return [
                attrs.evolve(task, device=device)
                for task, device in zip(tasks, described, strict=True)
            ]
    elif source.is_file():
        return tasks_of_table(source, registry=registry, source=name)
    raise DatasetError(
        f"{source} has no format that can be imported"
        if source.exists()
        else f"{source} does not exist",
        hint="Name run folders, data sets, Kernel Tuner caches or T4 files, or folders with "
        "*workload.json and *tuning_record.json of a MetaSchedule database.",
    )


def _of_run(folder: Path, registry: Registry) -> list[DatasetTask]:
    with RunView(folder) as run:
        device = _device(run.target, registry)
    return tasks_of_run(folder, device=device, source=folder.absolute().name)


def _device(target: str, registry: Registry) -> dict[str, Any]:
    """The description of a target's device; empty if no target resolver knows the target."""
    for name in registry.names("targets"):
        resolver: TargetResolver = registry.create("targets", name)
        try:
            described = dict(resolver.describe(resolver.resolve(target)))
        except TargetError:
            continue
        if described:
            return described
    return {}


def tasks_of_table(file: Path, *, registry: Registry, source: str) -> list[DatasetTask]:
    """Read all configurations of a recorded table as tasks of a data set."""
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
    made = TaskSource(pipeline)
    tasks = made.tasks("recorded")
    imported = []
    space_ref = StageRef.of(pipeline.space)
    with pipeline.runner.create() as runner:
        for task, space in zip(tasks, made.spaces(tasks), strict=True):
            configs = space.all_legal
            if configs is None:
                raise DatasetError(f"the table {file} is too large", hint="Take a part of it.")
            rows = tuple(tuple(map(int, row)) for row in configs)
            job = MeasureJob(task=task, space=space_ref, configs=rows)
            measured = {trial.config: trial for trial in runner.measure(job)}
            ordered = [measured[row] for row in rows]
            imported.append(
                DatasetTask(
                    task=rename_by_key(task),
                    space=pipeline.space.name,
                    fingerprint=space.fingerprint,
                    source=source,
                    configs=np.array(rows, np.int32),
                    choices=[space.decode(row) for row in rows],
                    seconds=np.array([trial.cost for trial in ordered]),
                    failures=[None if trial.ok else str(trial.failure) for trial in ordered],
                )
            )
    return imported
