"""What the runner's benchmarks share: a pipeline's first task, its space, and its runner."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._pipeline.load import load_pipeline
from chameleon_core._pipeline.schema import ResolvedPipeline
from chameleon_core._task import Task
from chameleon_core.plugin_api import DesignSpace, MeasureJob, Runner, StageRef


@attrs.frozen(kw_only=True, eq=False)
class Subject:
    """The task that is measured, with its space, as the pipeline names them."""

    pipeline: ResolvedPipeline
    task: Task
    space: DesignSpace
    reference: StageRef

    def runner(self) -> Runner:
        """A fresh runner as the pipeline describes it."""
        runner: Runner = self.pipeline.runner.create()
        return runner

    def draw(self, count: int, seed: int) -> list[tuple[int, ...]]:
        """Distinct legal configurations at random."""
        drawn = self.space.sample(count, np.random.default_rng(seed))
        return [tuple(int(index) for index in row) for row in drawn]

    def job(
        self, configs: Sequence[tuple[int, ...]], best_seconds: float = float("inf")
    ) -> MeasureJob:
        """A job for the runner."""
        return MeasureJob(
            task=self.task, space=self.reference, configs=configs, best_seconds=best_seconds
        )


def subject(path: Path, overrides: Sequence[str]) -> Subject:
    """Load a pipeline and make its first task's space."""
    pipeline = load_pipeline(path, overrides)
    task = pipeline.model.create().tasks(TaskSource(pipeline).target())[0]
    return Subject(
        pipeline=pipeline,
        task=task,
        space=pipeline.space.create().design_space(task),
        reference=StageRef.of(pipeline.space),
    )


def parser(description: str) -> argparse.ArgumentParser:
    """The arguments that all of these benchmarks take."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("pipeline", type=Path, nargs="?", default=Path("examples/quickstart.yaml"))
    made.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="override a key of the pipeline; `space=template` is always set first",
    )
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--json", type=Path, help="write the numbers to this file")
    return made


def subject_of(arguments: argparse.Namespace) -> Subject:
    """The subject that the arguments name, in the template space unless they say otherwise."""
    return subject(arguments.pipeline, ["space=template", *arguments.overrides])


def report(arguments: argparse.Namespace, numbers: dict[str, Any]) -> None:
    """Print the numbers and write them where asked to."""
    for name, value in numbers.items():
        print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(numbers, indent=2) + "\n")
