"""A suite: its pipelines, tasks and seeds, and the cells that they make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from chameleon_bench._suites.recorded import RecordedSpace

CELLS = "cells"
"""The name of the folder of cells in a suite's folder."""


@attrs.frozen(kw_only=True, eq=False)
class Pairing:
    """One pipeline on one task of a suite.

    Attributes:
        task: The task's name in the suite. A task may have several operators.
        rival: Another tuner in place of the pipeline's stages, ``{"name": ..., options}``, or None.
        measures_hardware: Whether its cells time real hardware, so that nothing else may run
            meanwhile.
        versions: The versions of the distributions that take part, from ``versions_of``.
    """

    pipeline: str
    task: str
    document: Mapping[str, Any]
    rival: Mapping[str, Any] | None = None
    measures_hardware: bool
    versions: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def measurements(self) -> int | None:
        """The largest number of measurements that the pipeline may make; None for no limit."""
        measurements: int | None = self.document["budget"]["measurements"]
        return measurements


@attrs.frozen(kw_only=True, eq=False)
class Cell(Pairing):
    """One run of a suite: a pairing of a pipeline and a task, with one seed and a run folder.

    Attributes:
        seed: The seed of the run, as in the cell's expanded pipeline (``document``).
        folder: The run folder, as in the cell's expanded pipeline. The file with the result is
            beside this folder.
    """

    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """The pipeline, task and seed, for messages."""
        return f"{self.pipeline} / {self.task} / seed {self.seed}"

    @property
    def result(self) -> Path:
        """The file with the result after the cell has ended."""
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def identity(self) -> str:
        """A digest of everything that the cell's result depends on."""
        document = {key: value for key, value in self.document.items() if key != "output"}
        # Results that were stored before versions were noted have the digest of a cell without
        # versions.
        parts = [document, self.rival, *([self.versions] if self.versions else [])]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def to_json(self) -> dict[str, Any]:
        """The cell as JSON values, for worker processes."""
        return {**attrs.asdict(self, recurse=False), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cell:
        """The cell that ``to_json`` converted."""
        return cls(**{**value, "folder": Path(value["folder"])})


@attrs.frozen(kw_only=True)
class Suite:
    """A suite that can be run: pipelines to compare, the tasks, and the seeds.

    Attributes:
        pairings: Every pipeline with every task; within each task, pipelines in the file's order.
        seeds: The seeds; each pairing has one cell per seed.
        spaces: The recorded space of each task; empty if the suite has no score.
    """

    title: str
    pairings: tuple[Pairing, ...]
    seeds: tuple[int, ...]
    output: Path
    spaces: Mapping[str, RecordedSpace] = attrs.field(factory=dict)
    text: str = ""
    source: Path | None = None
    overrides: tuple[str, ...] = ()

    @property
    def pipelines(self) -> list[str]:
        """The names of the pipelines in the file's order."""
        return list(dict.fromkeys(pairing.pipeline for pairing in self.pairings))

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks in the file's order."""
        return list(dict.fromkeys(pairing.task for pairing in self.pairings))

    def cells(self) -> Iterator[Cell]:
        """All cells of the suite, seed by seed."""
        for seed in self.seeds:
            for pairing in self.pairings:
                folder = self.output / CELLS / pairing.task / pairing.pipeline / f"seed-{seed}"
                document = {**pairing.document, "seed": seed, "output": str(folder)}
                shared = attrs.asdict(pairing, recurse=False)
                yield Cell(**{**shared, "document": document, "seed": seed, "folder": folder})
