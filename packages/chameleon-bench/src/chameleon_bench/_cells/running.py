"""Runs one cell of a suite, records the time of each measurement, and writes the result."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import structlog
from chameleon_core.api import (
    Interruption,
    OperatorResult,
    Registry,
    ResolvedPipeline,
    RunFile,
    RunInterrupted,
    RunView,
    TaskSource,
    from_dict,
    run_pipeline,
)
from chameleon_core.plugin_api import (
    ChameleonError,
    Measurement,
    Rival,
    RunFolderError,
    Task,
    create_stage,
    events,
    hookimpl,
    load_factory,
)
from chameleon_system.api import Message, unused_path, write_atomic

from chameleon_bench._cells.trajectory import ROUND_FIELDS, Trajectory
from chameleon_bench._suites.suite import Cell

log = structlog.get_logger()

NOTES = "clock.jsonl"
"""The file in a cell's run folder with the time of each measurement."""

VERSIONS = "versions.json"
"""The file with the versions of the distributions that started a live cell's run folder."""


@attrs.frozen(kw_only=True, eq=False)
class CellResult:
    """The result of a cell of a suite: of one pipeline on one task with one seed.

    Attributes:
        trajectories: One trajectory per operator of the cell's task.
        failure: Why the cell failed, in a sentence, or None.
        environment: The runner's description of itself and its hardware.
        versions: The versions of the distributions that took part; empty if unknown.
    """

    identity: str
    trajectories: tuple[Trajectory, ...] = ()
    failure: str | None = None
    environment: Mapping[str, Any] = attrs.field(factory=dict)
    versions: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def failed(cls, cell: Cell, why: str) -> CellResult:
        """Make the result of a cell that failed, with the reason."""
        return cls(identity=cell.identity, versions=cell.versions, failure=why)

    def write(self, path: Path) -> None:
        """Write the result to a file, so that readers see either the whole file or none."""
        trajectories = [trajectory.to_json() for trajectory in self.trajectories]
        value = {**attrs.asdict(self, recurse=False), "trajectories": trajectories}
        hint = "free space or restore access and give the same command again"
        with RunFolderError.on_os_error(f"cannot write {path}", hint=hint):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, json.dumps(value, separators=(",", ":")))

    @classmethod
    def read(cls, cell: Cell) -> CellResult | None:
        """Read the result of a cell, or return None if the cell has not ended.

        A result is ignored if its identity differs from the cell's, for example because versions
        have changed.
        """
        result = cls._read(cell)
        return result if result is not None and result.identity == cell.identity else None

    @classmethod
    def of_other_versions(cls, cell: Cell) -> CellResult | None:
        """The cell's result from other versions of the distributions, or None."""
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
    """Run a cell of a suite, or continue it, and write its result."""
    try:
        pipeline = from_dict(cell.document, registry=registry)
        if cell.rival is not None:
            result = _compete(cell, cell.rival, pipeline, registry)
        else:
            result = _tune(cell, pipeline, interruption)
    except RunInterrupted:
        raise
    except ChameleonError as error:
        # A signal of the user also reaches a rival's processes. Their end is then no failure.
        interruption.check()
        why = str(error) if error.hint is None else f"{error} ({error.command_hint})"
        result = CellResult.failed(cell, why)
    except Exception as error:  # any plugin's code; the other cells are worth running
        log.exception("cell_failed", cell=cell.name)
        result = CellResult.failed(cell, f"{type(error).__name__}: {error}")
    result = attrs.evolve(result, versions=cell.versions)
    result.write(cell.result)
    if not cell.measures_hardware:
        # Recorded times can be replayed in a second, so thousands of databases need not be kept.
        shutil.rmtree(cell.folder, ignore_errors=True)
    return result


def answering(cells: Iterable[Message], registry: str) -> Iterator[Message]:
    """Run cells one after another in a worker process, and yield a reply for each.

    Yields:
        One reply per cell: ``failure`` with the reason of the failure or None. If the result cannot
            be written, ``unwritten`` with the reason instead.
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
    run_pipeline(pipeline, listeners=[Recorder(cell.folder)], interruption=interruption)
    noted = read_notes(cell.folder)
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
    """Prepare the run folder of a cell."""
    file = cell.folder / VERSIONS
    now = json.dumps(dict(cell.versions), sort_keys=True)
    if cell.folder.exists() and (not file.exists() or file.read_text(encoding="utf-8") != now):
        cell.folder.rename(unused_path(cell.folder.parent, f"earlier-{{}}-{cell.folder.name}"))
    cell.folder.mkdir(parents=True, exist_ok=True)
    write_atomic(file, now)


def _compete(
    cell: Cell, chosen: Mapping[str, Any], pipeline: ResolvedPipeline, registry: Registry
) -> CellResult:
    rival: Rival = create_stage("rivals", chosen, registry=registry)
    source = TaskSource(pipeline)
    tasks = source.tasks(source.target())
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
            "rival": chosen["name"],
            **{t.name: dict(r.details) for t, r in zip(tasks, traces, strict=True)},
        },
    )


def _rival_trajectory(task: Task, trace: Rival.Trace) -> Trajectory:
    # Another tuner does not say how its seconds divide, so all of them count as seconds of the run.
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
    """Writes to a file, as lines of JSON, when each measurement of a cell arrived."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NOTES

    @hookimpl
    def chameleon_measured(self, event: events.Measured) -> None:
        """Record when a measurement arrived."""
        if event.spent is not None:
            note = [event.task, list(event.config), event.spent.total]
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(note) + "\n")


@attrs.frozen(kw_only=True)
class _Notes:
    """The recorded times of one task."""

    at: dict[tuple[int, ...], float] = attrs.field(factory=dict)
    proposed: dict[int, tuple[int, int, float | None]] = attrs.field(factory=dict)
    learnt: dict[int, tuple[int, dict[str, float]]] = attrs.field(factory=dict)


def read_notes(folder: Path) -> dict[str, _Notes]:
    """Read the times of measurements and rounds from a run folder, by task."""
    notes: dict[str, _Notes] = defaultdict(_Notes)
    for task, config, seconds in _lines(folder / NOTES):
        notes[task].at[tuple(config)] = seconds
    for event in _lines(folder / RunFile.EVENTS):
        if event["event"] == "BatchProposed":
            walk = event["steps"], event["converged"], event["score"]
            notes[event["task"]].proposed[event["round"]] = walk
        elif event["event"] == "BatchMeasured" and event["spent"] is not None:
            task = event["task"]
            notes[task["name"]].learnt[event["round"]] = task["measured"], event["spent"]
    return notes


def _lines(path: Path) -> Iterator[Any]:
    """The values in a file of lines of JSON; none if the file is missing."""
    if not path.exists():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # a process was killed amid the line


def trajectory_of(
    operator: OperatorResult,
    measurements: list[Measurement],
    notes: _Notes | None,
    best_known: float | None,
) -> Trajectory:
    """Make the trajectory of one task of a run: the costs and times of its measurements."""
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
