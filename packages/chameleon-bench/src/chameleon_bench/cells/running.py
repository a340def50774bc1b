"""Runs one cell of a suite, notes the clock of its measurements, and keeps its result in a file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import attrs
import numpy as np
import structlog
from chameleon_core.errors import ChameleonError, RunFolderError
from chameleon_core.events import BatchMeasured, BatchProposed, Measured
from chameleon_core.loop.end.result import OperatorResult
from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.loop.run import run_pipeline
from chameleon_core.loop.start.tasks import tasks_of
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.nodes import PipelineError, Problem, node_of
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.pipeline.stage_reader import StageReader
from chameleon_core.plugins.factory import load_factory
from chameleon_core.plugins.hookspecs import hookimpl
from chameleon_core.plugins.registry import Registry
from chameleon_core.run_view import RunView
from chameleon_core.stages import Rival, RivalTrace
from chameleon_core.task import Task
from chameleon_system.files import unused, write_whole
from chameleon_system.processes.answering import Message

from chameleon_bench.cells.trajectory import ROUND_FIELDS, Trajectory
from chameleon_bench.suites.suite import Cell

log = structlog.get_logger()

NOTES = "clock.jsonl"
"""The recorder writes this file in a cell's run folder."""

VERSIONS = "versions.json"
"""The versions that a live cell's folder was begun with."""


@attrs.frozen(kw_only=True, eq=False)
class CellResult:
    """How a cell ended.

    Attributes:
        identity: of the cell it is the result of.
        trajectories: one per operator of the cell's task.
        failure: why there are none, in a sentence, or None.
        environment: what did the measuring, as the runner describes itself.
        versions: of the distributions that took part; empty if nobody kept them.
    """

    identity: str
    trajectories: tuple[Trajectory, ...] = ()
    failure: str | None = None
    environment: Mapping[str, Any] = attrs.field(factory=dict)
    versions: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def failed(cls, cell: Cell, why: str) -> CellResult:
        """The result of a cell that has none, with the reason in a sentence."""
        return cls(identity=cell.identity, versions=cell.versions, failure=why)

    def write(self, path: Path) -> None:
        """Write the result as a whole: a reader sees all of it or nothing."""
        trajectories = [trajectory.to_json() for trajectory in self.trajectories]
        value = {**attrs.asdict(self, recurse=False), "trajectories": trajectories}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(value, separators=(",", ":")))

    @classmethod
    def read(cls, cell: Cell) -> CellResult | None:
        """The result of a cell that has ended, or None; another cell's result does not count."""
        result = cls._read(cell)
        return result if result is not None and result.identity == cell.identity else None

    @classmethod
    def of_other_versions(cls, cell: Cell) -> CellResult | None:
        """The result that a cell has from other versions of what takes part in it, or None."""
        result = cls._read(cell)
        if result is None or result.identity == cell.identity:
            return None
        before = attrs.evolve(cell, versions=result.versions)
        return result if result.identity == before.identity else None

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
            trajectories=tuple(map(Trajectory.from_json, value["trajectories"])),
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
        why = str(error) if error.hint is None else f"{error} ({error.hint})"
        result = CellResult.failed(cell, why)
    except Exception as error:  # any plugin's code; the other cells are worth running
        log.exception("a cell failed", cell=cell.name)
        result = CellResult.failed(cell, f"{type(error).__name__}: {error}")
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


def answering(cells: Iterable[Message], registry: str) -> Iterator[Message]:
    """Run cells in a worker process.

    Args:
        cells: as JSON values.
        registry: ``"module:function"`` that makes the registry.

    Yields:
        ``failure``, why a cell has failed or None; or, if its result cannot be kept, why, under
        ``unwritten``.
    """
    plugins = load_factory(registry)()
    for cell in cells:
        try:
            result = run_cell(Cell.from_json(cell), registry=plugins, interruption=Interruption())
        except RunInterrupted as error:
            yield {"failure": str(error)}
        except ChameleonError as error:
            yield {"unwritten": str(error)}
        else:
            yield {"failure": result.failure}


def _tune(cell: Cell, pipeline: ResolvedPipeline, interruption: Interruption) -> CellResult:
    if not cell.measures_hardware:
        # An interrupted cell is simply repeated: its measurements cost nothing.
        shutil.rmtree(cell.folder, ignore_errors=True)
    begin(cell)
    notes = cell.folder / NOTES
    with Recorder(notes) as recorder:
        run_pipeline(pipeline, listeners=[recorder], interruption=interruption)
    noted = read_notes(notes)
    runner = pipeline.runner.create()
    trajectories = []
    with RunView(cell.folder) as run:
        for operator in run.operators:
            result, known = operator.result, runner.best_known(operator.stored.task)
            notes_of_it = noted.get(result.name)
            trajectories.append(trajectory_of(result, operator.measurements, notes_of_it, known))
        return CellResult(
            identity=cell.identity, trajectories=tuple(trajectories), environment=run.runner
        )


def begin(cell: Cell) -> None:
    """Make a cell's folder its own: what other versions left there is moved aside, and kept."""
    file = cell.folder / VERSIONS
    now = json.dumps(dict(cell.versions), sort_keys=True)
    if cell.folder.exists() and (not file.exists() or file.read_text(encoding="utf-8") != now):
        cell.folder.rename(unused(cell.folder.parent, f"earlier-{{}}-{cell.folder.name}"))
    cell.folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, now)


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


class Recorder:
    """Appends the seconds of every measurement and round to a file, one JSON list a line.

    The store keeps what was measured; this file keeps when. A context manager.

    Args:
        path: the file; what an earlier process of the run wrote stays.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # Every line is on disk at once: what a killed process noted is not lost.
        self._file = self._path.open("a", encoding="utf-8", buffering=1)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _note(self, *values: Any) -> None:
        self._file.write(json.dumps(values, separators=(",", ":")) + "\n")

    @hookimpl
    def chameleon_batch_proposed(self, event: BatchProposed) -> None:
        """See ``EventHooks``."""
        self._note("proposed", event.task, event.round, event.steps, event.converged, event.score)

    @hookimpl
    def chameleon_measured(self, event: Measured) -> None:
        """See ``EventHooks``."""
        if event.spent is not None:
            self._note("measured", event.task, list(event.config), event.spent.total)

    @hookimpl
    def chameleon_batch_measured(self, event: BatchMeasured) -> None:
        """See ``EventHooks``."""
        if event.spent is not None:
            spent = attrs.asdict(event.spent)
            self._note("learnt", event.task.name, event.round, event.task.measured, spent)


@attrs.frozen(kw_only=True)
class _Notes:
    """The lines of one task, the last of each thing: a resumed round is noted twice."""

    at: dict[tuple[int, ...], float] = attrs.field(factory=dict)
    proposed: dict[int, tuple[int, int, float | None]] = attrs.field(factory=dict)
    learnt: dict[int, tuple[int, dict[str, float]]] = attrs.field(factory=dict)


def read_notes(path: Path) -> dict[str, _Notes]:
    """The notes of a recorder, by task."""
    notes: dict[str, _Notes] = {}
    if not path.exists():
        return notes
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            what, task, *values = json.loads(line)
        except ValueError:
            continue  # a process was killed amid the line
        of_task = notes.setdefault(task, _Notes())
        if what == "measured":
            of_task.at[tuple(values[0])] = values[1]
        elif what == "proposed":
            of_task.proposed[values[0]] = tuple(values[1:])
        else:
            of_task.learnt[values[0]] = tuple(values[1:])
    return notes


def trajectory_of(
    operator: OperatorResult,
    measurements: list[Measurement],
    notes: _Notes | None,
    best_known: float | None,
) -> Trajectory:
    """The trajectory of one task of a run.

    Args:
        operator: its result.
        measurements: what the store holds of it, in order of arrival.
        notes: what the recorder noted of it.
        best_known: the lowest cost any of its configurations has, or None.
    """
    notes = notes or _Notes()
    at: list[float] = []
    for measurement in measurements:
        # A process killed between storing and noting leaves a measurement without its time.
        at.append(notes.at.get(measurement.config, at[-1] if at else 0.0))
    rounds = []
    for number, (measured, spent) in sorted(notes.learnt.items()):
        steps, converged, score = notes.proposed.get(number, (0, 0, None))
        seconds = [spent[name] for name in ROUND_FIELDS[4:]]
        rounds.append([measured, steps, converged, np.nan if score is None else score, *seconds])
    return Trajectory(
        operator=operator.name,
        flop=float(operator.task["flop"]),
        costs=np.array([m.cost for m in measurements], float),
        failures=tuple("" if m.failure is None else m.failure.value for m in measurements),
        at=np.maximum.accumulate(np.array(at, float)) if at else np.empty(0),
        count=np.arange(1, len(measurements) + 1, dtype=float),
        rounds=np.array(rounds, float).reshape(-1, len(ROUND_FIELDS)),
        best_known=best_known,
        final_seconds=operator.tuned_seconds,
        origins=operator.origins,
    )
