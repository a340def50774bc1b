"""Reads the file ``events.jsonl`` of a run, which has facts that the run's store does not have."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

_KINDS = ("RunStarted", "BatchMeasured", "TaskFinished")


@attrs.frozen(kw_only=True)
class Round:
    """One batch that the scheduler gave to an operator.

    Attributes:
        task: The name of the operator.
        best_seconds: The operator's lowest time after the batch, or None.
        measured: The operator's number of measurements after the batch.
        at: The time when the batch was complete, in seconds since 1970.
    """

    task: str
    best_seconds: float | None
    measured: int
    at: float


@attrs.frozen(kw_only=True)
class RunEvents:
    """The events of a run that pages use; empty if the run has no log.

    Attributes:
        starts: The start time of each process of the run, rising, in seconds since 1970.
        rounds: The batches in the order in which they were measured.
        ended: Why an operator got no more batches, by the operator's name.
    """

    starts: Sequence[float] = ()
    rounds: Sequence[Round] = ()
    ended: Mapping[str, str] = attrs.field(factory=dict)


def run_events(path: Path) -> RunEvents:
    """Read the event log of a run, also while the run writes to it.

    Args:
        path: The log file, which may be missing.
    """
    if not path.is_file():
        return RunEvents()
    events = list(_events(path))
    measured = [event for event in events if event["event"] == "BatchMeasured"]
    return RunEvents(
        starts=sorted(float(event["at"]) for event in events if event["event"] == "RunStarted"),
        rounds=[
            Round(
                task=event["task"]["name"],
                best_seconds=event["task"]["best_seconds"],
                measured=event["task"]["measured"],
                at=float(event["at"]),
            )
            for event in measured
        ],
        ended={
            event["task"]["name"]: str(event["reason"])
            for event in events
            if event["event"] == "TaskFinished"
        },
    )


def since(times: NDArray[np.float64], starts: Sequence[float]) -> NDArray[np.float64]:
    """Seconds from the start of a run to each time, without pauses between the run's processes.

    For records that were copied from an earlier run, which are older, the result is 0.

    Args:
        times: Times in seconds since 1970, shape (n,).
        starts: The start time of each process, rising, in seconds since 1970. If it is empty, the
            earliest of ``times`` is the start.
    """
    if not len(times):
        return times
    begin = starts[0] if starts else float(times.min())
    idle = np.zeros(len(times))
    for previous, start in itertools.pairwise(starts):
        # A process was at work until its last measurement, as far as anybody knows.
        last = times[times < start].max(initial=previous)
        idle[times >= start] += start - last
    return np.maximum(times - begin - idle, 0.0)


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events that pages use. Incomplete and damaged lines are skipped."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # The results inside other kinds are long.
            if any(f'"event": "{kind}"' in line for kind in _KINDS):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    continue
