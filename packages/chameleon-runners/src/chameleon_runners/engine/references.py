"""Reference outputs, computed once per task by a worker and shared through a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import attrs
from chameleon_core.stages import StageRef
from chameleon_core.task import Task


def stage_key(stage: StageRef, task: Task, variant: str = "") -> str:
    """Identity of a builder: the stage, its options, the task, and a baseline's variant."""
    return json.dumps([stage.factory, stage.options, task.key, variant], sort_keys=True)


@attrs.define(kw_only=True)
class Reference:
    """The file with the expected outputs of a task.

    Attributes:
        path: the file that a worker writes.
        tolerance: largest accepted relative error, once known.
        ready: whether the file is complete.
        computing: whether a worker computes them.
        attempts: how often computing it ended the worker.
    """

    path: Path
    tolerance: float = 0.0
    ready: bool = False
    computing: bool = False
    attempts: int = 0


class References:
    """The reference of every stage and task, in a runner's temporary folder.

    Args:
        folder: the folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Reference] = {}

    def known(self, keys: Iterable[str]) -> Reference | None:
        """The first complete reference under some keys, or None."""
        references = (self._known.get(key) for key in keys)
        return next((reference for reference in references if reference and reference.ready), None)

    def of(self, key: str) -> Reference:
        """The reference under a key, known or yet to be computed."""
        if key not in self._known:
            path = self._folder / f"reference-{len(self._known)}.npz"
            self._known[key] = Reference(path=path)
        return self._known[key]
