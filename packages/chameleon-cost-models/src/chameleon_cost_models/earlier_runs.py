"""What earlier runs measured, read from their folders and nothing but read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.run_folder import read_store
from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False)
class EarlierTask:
    """One task of an earlier run.

    Attributes:
        key: the task's identity (``Task.key``).
        fingerprint: the design space's; indices mean the same only where it is the same.
        configs: knob indices, one tuple per measurement.
        choices: the same configurations decoded.
        costs: median kernel times in seconds, infinity for failures, shape (n,).
    """

    key: str
    fingerprint: str
    configs: Sequence[tuple[int, ...]]
    choices: Sequence[dict[str, Any]]
    costs: NDArray[np.float64]


def earlier_tasks(folders: Sequence[Path]) -> list[EarlierTask]:
    """The tasks of finished runs, in the order of the folders and of the runs.

    Args:
        folders: run folders, as ``chameleon run`` writes them.

    Raises:
        RunFolderError: one of them is no run folder, or cannot be read.
    """
    found = []
    for folder in folders:
        with read_store(folder) as store:
            for stored in store.tasks():
                measurements = store.measurements(stored.id)
                found.append(
                    EarlierTask(
                        key=stored.task.key,
                        fingerprint=stored.fingerprint,
                        configs=[measurement.config for measurement in measurements],
                        choices=store.decoded(stored.id)[: len(measurements)],
                        costs=np.array([m.cost for m in measurements], np.float64),
                    )
                )
    return found
