"""Notes the clock of every measurement and round of a run, and makes trajectories of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import attrs
import numpy as np
from chameleon_core.events import BatchMeasured, BatchProposed, Measured
from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.measurement import Measurement
from chameleon_core.plugins.hookspecs import hookimpl

from chameleon_bench.cells.trajectory import ROUND_FIELDS, Trajectory


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
    """What a recorder noted, by task."""
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
