"""The log of a run's events tells what its store does not: batches, and processes."""

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
    """One batch of the scheduler's.

    Attributes:
        task: name of the operator that got it.
        best_seconds: the operator's best afterwards, or None.
        measured: the operator's measurements afterwards.
        at: when it was complete, in seconds since 1970.
    """

    task: str
    best_seconds: float | None
    measured: int
    at: float


@attrs.frozen(kw_only=True)
class RunEvents:
    """The log of a run; empty if it has none.

    Attributes:
        starts: when each process began, rising, in seconds since 1970.
        rounds: in the order in which they were measured.
        ended: why an operator got no further batch, by its name.
    """

    starts: Sequence[float] = ()
    rounds: Sequence[Round] = ()
    ended: Mapping[str, str] = attrs.field(factory=dict)


def run_events(path: Path) -> RunEvents:
    """Read a log, even while it is being written.

    Args:
        path: the file; it need not be there.
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
    """Seconds of a run at each moment, without the time between its processes.

    Records that were taken over from an earlier run are older than this one: they stand at 0.

    Args:
        times: in seconds since 1970, shape (n,).
        starts: when each process began, rising, in seconds since 1970; the first of the times
            if there are none.
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
    """The events that matter here; a line that was cut off is left out."""
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            # The results inside other kinds are long.
            if any(f'"event": "{kind}"' in line for kind in _KINDS):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    continue
