"""Reference outputs, which a worker computes once per task and shares through a file."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import attrs
from chameleon_core.plugin_api import StageRef, Task


def builder_key(stage: StageRef, task: Task, variant: str = "") -> str:
    """A string that identifies a builder: by its stage, options, task and variant."""
    return json.dumps([stage.factory, stage.options, task.key, variant], sort_keys=True)


@attrs.define(kw_only=True)
class Reference:
    """The file with the reference outputs of a task.

    Attributes:
        tolerance: the largest allowed relative error; 0 until the file is complete.
        attempts: the number of workers that ended while they computed the outputs.
    """

    path: Path
    tolerance: float = 0.0
    ready: bool = False
    computing: bool = False
    attempts: int = 0


class References:
    """The reference outputs of all tasks of a runner, in files of its temporary folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[str, Reference] = {}

    def known(self, keys: Iterable[str]) -> Reference | None:
        """The first complete reference among those of some keys, or None."""
        references = (self._known.get(key) for key in keys)
        return next((reference for reference in references if reference and reference.ready), None)

    def of(self, key: str) -> Reference:
        """The reference outputs for a key; if they are not ready, the caller must compute them."""
        if key not in self._known:
            path = self._folder / f"reference-{len(self._known)}.npz"
            self._known[key] = Reference(path=path)
        return self._known[key]
