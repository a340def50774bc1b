"""Converts the measurements of a run folder to tasks of a data set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from chameleon_core.api import RecordStore, RunView
from chameleon_core.plugin_api import Measurement

from chameleon_one_shot._dataset.tasks import DatasetTask, rename_by_key


def tasks_of_run(folder: Path, *, device: Mapping[str, Any], source: str) -> list[DatasetTask]:
    """Read all measurements of a run as tasks of a data set."""
    with RunView(folder) as run:
        return [
            _task(run, stored, measurements, device, source)
            for stored in run.store.tasks()
            if (measurements := run.store.measurements(stored.id))
        ]


def _task(
    run: RunView,
    stored: RecordStore.TaskRow,
    measurements: Sequence[Measurement],
    device: Mapping[str, Any],
    source: str,
) -> DatasetTask:
    space = run.document.get("space", {})
    options = {key: value for key, value in space.items() if key != "name"}
    return DatasetTask(
        task=rename_by_key(stored.task),
        device=device,
        threads=int(run.runner.get("threads") or 0),
        space=stored.space,
        space_options=options,
        fingerprint=stored.fingerprint,
        versions=run.versions,
        source=source,
        configs=np.array([measured.config for measured in measurements], np.int32),
        choices=run.store.decoded(stored.id),
        seconds=np.array([measured.cost for measured in measurements], np.float64),
        failures=[measured.failure and measured.failure.value for measured in measurements],
        origins=run.store.origins(stored.id),
        measured_at=np.array(run.store.measured_at(stored.id), np.float64),
    )
