"""Runs one cell of a suite and keeps its result in one file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError, RunFolderError
from chameleon_core.loop import Interruption, RunInterrupted, run_pipeline
from chameleon_core.loop.start.tasks import tasks_of
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.nodes import PipelineError, Problem, node_of
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.plugins.registry import Registry
from chameleon_core.run_folder import read_store
from chameleon_core.stages import Rival, RivalTrace
from chameleon_core.task import Task
from chameleon_system.files import unused, write_whole

from chameleon_bench.cells.recorder import Recorder, read_notes, trajectory_of
from chameleon_bench.cells.trajectory import ROUND_FIELDS, Trajectory
from chameleon_bench.suites.suite import Cell

log = structlog.get_logger()

NOTES = "clock.jsonl"
"""What the recorder writes in a cell's run folder."""

VERSIONS = "versions.json"
"""What a live cell's folder was begun with."""


@attrs.frozen(kw_only=True, eq=False)
class CellResult:
    """How a cell ended.

    Attributes:
        identity: of the cell it is the result of.
        trajectories: one per operator of the cell's task.
        failure: why there are none, in a sentence, or None.
        environment: what did the measuring, as the runner describes itself.
        versions: of the distributions that took part; empty where nobody kept them.
    """

    identity: str
    trajectories: tuple[Trajectory, ...] = ()
    failure: str | None = None
    environment: Mapping[str, Any] = attrs.field(factory=dict)
    versions: Mapping[str, str] = attrs.field(factory=dict)

    def write(self, path: Path) -> None:
        """Write the result as a whole: a reader sees all of it or nothing."""
        value = {
            "identity": self.identity,
            "versions": dict(self.versions),
            "failure": self.failure,
            "environment": dict(self.environment),
            "trajectories": [one.to_json() for one in self.trajectories],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(value, separators=(",", ":")))

    @classmethod
    def read(cls, cell: Cell) -> CellResult | None:
        """The result of a cell that has ended, or None; another cell's result does not count."""
        found = cls._read(cell)
        return found if found is not None and found.identity == cell.identity else None

    @classmethod
    def of_other_versions(cls, cell: Cell) -> CellResult | None:
        """The result that a cell has from other versions of what takes part in it, or None."""
        found = cls._read(cell)
        if found is None or found.identity == cell.identity:
            return None
        before = attrs.evolve(cell, versions=found.versions)
        return found if found.identity == before.identity else None

    @classmethod
    def _read(cls, cell: Cell) -> CellResult | None:
        try:
            value = json.loads(cell.result.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return cls(
            identity=value["identity"],
            versions=value.get("versions", {}),
            failure=value["failure"],
            environment=value["environment"],
            trajectories=tuple(Trajectory.from_json(one) for one in value["trajectories"]),
        )


def run_cell(cell: Cell, *, registry: Registry, interruption: Interruption) -> CellResult:
    """Run a cell, or continue it, and write its result.

    A cell that fails has a result too, with the reason; the rest of the suite goes on.

    Raises:
        RunInterrupted: the suite was asked to stop; a live cell continues where it was.
        RunFolderError: the result cannot be written.
    """
    try:
        pipeline = from_dict(cell.document, registry=registry)
        if cell.rival is not None:
            result = _compete(cell, pipeline, registry)
        else:
            result = _tune(cell, pipeline, interruption)
    except RunInterrupted:
        raise
    except ChameleonError as error:
        # A signal reaches a rival's processes, too: what they die of is no failure.
        interruption.check()
        result = CellResult(identity=cell.identity, failure=_sentence(error))
    except Exception as error:  # any plugin's code; the other cells are worth running
        log.exception("a cell failed", cell=cell.name)
        result = CellResult(identity=cell.identity, failure=f"{type(error).__name__}: {error}")
    result = attrs.evolve(result, versions=cell.versions)
    try:
        result.write(cell.result)
        if not cell.measures_hardware:
            # A table answers again in a second, so thousands of databases need not be kept.
            shutil.rmtree(cell.folder, ignore_errors=True)
    except OSError as error:
        raise RunFolderError(
            f"cannot write {cell.result}: {error.strerror or error}",
            hint="free space or restore access and give the same command again",
        ) from error
    return result


def _tune(cell: Cell, pipeline: ResolvedPipeline, interruption: Interruption) -> CellResult:
    if not cell.measures_hardware:
        # An interrupted cell is simply repeated: its measurements cost nothing.
        shutil.rmtree(cell.folder, ignore_errors=True)
    begin(cell)
    notes = cell.folder / NOTES
    with Recorder(notes) as recorder:
        outcome = run_pipeline(pipeline, listeners=[recorder], interruption=interruption)
    noted = read_notes(notes)
    runner = pipeline.runner.create()
    trajectories = []
    with read_store(cell.folder) as store:
        rows = {(one.task.key, one.fingerprint): one.id for one in store.tasks()}
        environment = store.fact("runner") or {}
        for operator in outcome.operators:
            task = Task(**operator.task)
            measurements = store.measurements(rows[task.key, operator.fingerprint])
            known = runner.best_known(task)
            trajectories.append(
                trajectory_of(operator, measurements, noted.get(operator.name), known)
            )
    return CellResult(
        identity=cell.identity, trajectories=tuple(trajectories), environment=environment
    )


def begin(cell: Cell) -> None:
    """Make a cell's folder its own: what other versions left there is moved aside, and kept."""
    kept = cell.folder / VERSIONS
    now = json.dumps(dict(cell.versions), sort_keys=True)
    if cell.folder.exists() and (not kept.exists() or kept.read_text(encoding="utf-8") != now):
        cell.folder.rename(unused(cell.folder.parent, f"earlier-{{}}-{cell.folder.name}"))
    cell.folder.mkdir(parents=True, exist_ok=True)
    write_whole(kept, now)


def _compete(cell: Cell, pipeline: ResolvedPipeline, registry: Registry) -> CellResult:
    problems: list[Problem] = []
    reader = StageReader(registry, problems)
    spec = reader.chosen("a rival", "rivals", node_of(cell.rival, "suite"))
    if spec is None:
        raise PipelineError(problems)
    rival: Rival = spec.create()
    _, tasks = tasks_of(pipeline)
    traces = [
        rival.tune(
            task,
            measurements=pipeline.budget.measurements,
            wall_seconds=pipeline.budget.wall_time,
            seed=pipeline.seed,
        )
        for task in tasks
    ]
    return CellResult(
        identity=cell.identity,
        trajectories=tuple(map(_rival_trajectory, tasks, traces)),
        environment={
            "rival": spec.name,
            **{t.name: dict(r.details) for t, r in zip(tasks, traces, strict=True)},
        },
    )


def _rival_trajectory(task: Task, trace: RivalTrace) -> Trajectory:
    # Nobody knows how another tuner's seconds divide: all of them count as the run's.
    rounds = np.zeros((len(trace.at_seconds), len(ROUND_FIELDS)))
    rounds[:, 0] = trace.measurements
    rounds[:, 3:] = np.nan
    return Trajectory(
        operator=task.name,
        flop=task.flop,
        costs=np.array(trace.best_seconds, float),
        failures=("",) * len(trace.best_seconds),
        at=np.array(trace.at_seconds, float),
        count=np.array(trace.measurements, float),
        rounds=rounds,
        final_seconds=trace.final_seconds,
    )


def _sentence(error: ChameleonError) -> str:
    return str(error) if error.hint is None else f"{error} ({error.hint})"
