"""A suite that has been read: pipelines, tasks, seeds, and the cells they make."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

CELLS = "cells"
"""Folder of the cells below a suite's output."""


@attrs.frozen(kw_only=True, eq=False)
class Pairing:
    """One pipeline on one task, before seeds are dealt.

    Attributes:
        pipeline: the pipeline's name in the suite.
        task: the task's name in the suite; a model may hold several operators.
        document: the expanded pipeline as JSON values.
        rival: another tuner instead of the pipeline's stages, ``{"name": ..., options}``, or None.
        measures_hardware: whether it times real hardware, so that nothing may run beside it.
        versions: of the distributions that take part, as ``versions_of`` tells them.
    """

    pipeline: str
    task: str
    document: Mapping[str, Any]
    rival: Mapping[str, Any] | None = None
    measures_hardware: bool
    versions: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def measurements(self) -> int | None:
        """Configurations that the budget lets it measure; None if it limits the time alone."""
        measurements: int | None = self.document["budget"]["measurements"]
        return measurements


@attrs.frozen(kw_only=True, eq=False)
class Cell(Pairing):
    """A pairing with one seed: an ordinary run in a folder of its own.

    Attributes:
        seed: the run's seed, which its document has as well.
        folder: its run folder, which its document has as well; the result lies beside it.
    """

    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """Pipeline, task and seed for people."""
        return f"{self.pipeline} / {self.task} / seed {self.seed}"

    @property
    def result(self) -> Path:
        """The file that holds the result once the cell has ended."""
        return self.folder.with_name(f"{self.folder.name}.json")

    @property
    def identity(self) -> str:
        """Digest of everything but the folder: a result of another identity does not count."""
        document = {key: value for key, value in self.document.items() if key != "output"}
        # Results of before versions were kept have the digest of a cell without any.
        parts = [document, self.rival, *([self.versions] if self.versions else [])]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def to_json(self) -> dict[str, Any]:
        """As JSON values, for worker processes."""
        return {**attrs.asdict(self, recurse=False), "folder": str(self.folder)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cell:
        """The inverse of ``to_json``."""
        return cls(**{**value, "folder": Path(value["folder"])})


@attrs.frozen(kw_only=True)
class Suite:
    """A suite that can be run.

    Attributes:
        title: what it is called.
        pairings: every pipeline with every task, pipelines in the file's order within each task.
        seeds: one cell of every pairing for each.
        output: the suite's folder, absolute.
        text: the file as it was written.
        source: the file.
        overrides: what ``--set`` changed.
    """

    title: str
    pairings: tuple[Pairing, ...]
    seeds: tuple[int, ...]
    output: Path
    text: str = ""
    source: Path | None = None
    overrides: tuple[str, ...] = ()

    @property
    def pipelines(self) -> list[str]:
        """Names of the pipelines in the file's order."""
        return list(dict.fromkeys(pairing.pipeline for pairing in self.pairings))

    @property
    def tasks(self) -> list[str]:
        """Names of the tasks in the file's order."""
        return list(dict.fromkeys(pairing.task for pairing in self.pairings))

    def cells(self) -> Iterator[Cell]:
        """Every cell. Seeds come outermost: an interrupted suite has compared all pipelines."""
        for seed in self.seeds:
            for pairing in self.pairings:
                folder = self.output / CELLS / pairing.task / pairing.pipeline / f"seed-{seed}"
                document = {**pairing.document, "seed": seed, "output": str(folder)}
                shared = attrs.asdict(pairing, recurse=False)
                yield Cell(**{**shared, "document": document, "seed": seed, "folder": folder})
