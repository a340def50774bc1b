"""What is compared of a run: its operators' times with their repeats, and what they cost."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.run_view import (
    NetworkSummary,
    OperatorTime,
    RunState,
    RunView,
    ViewedOperator,
)
from chameleon_core.task import Task
from numpy.typing import NDArray

_DIGITS = 24
"""Of the digest: as many as a task's key has."""


@attrs.frozen(kw_only=True, eq=False)
class ComparedOperator:
    """One operator of a run.

    Attributes:
        name: its name there.
        weight: how often it occurs in the network.
        time: of its best configuration, with what took it; None where nothing has a time.
        costs: of every measurement in seconds, infinity for failures, in order of arrival,
            shape (n,).
        seconds: wall-clock that tuning it took.
        kind: the operator's.
        arguments: what else it computes; with the kind, as its task has them.
    """

    name: str
    weight: int
    time: OperatorTime | None
    costs: NDArray[np.float64]
    seconds: float
    kind: str = ""
    arguments: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def repeats(self) -> tuple[float, ...]:
        """The repeats that its time is the median of, in seconds; empty where it has none."""
        return () if self.time is None else self.time.measurement.seconds

    @property
    def median(self) -> float:
        """Its time in seconds; infinity where it has none."""
        return math.inf if self.time is None else self.time.seconds

    def measurements_to(self, seconds: float) -> int | None:
        """Measurements until one was as fast; None where none was."""
        there = np.flatnonzero(self.costs <= seconds)
        return int(there[0]) + 1 if len(there) and math.isfinite(seconds) else None


@attrs.frozen(kw_only=True, eq=False)
class ComparedRun:
    """One run.

    Attributes:
        folder: where it is, absolute.
        name: what it is called beside the others.
        state: how far it is.
        operators: by what they compute, whatever the target; see ``computed``.
        network: what is known of its network, or None where the model is none.
        measurements: configurations measured, failures included.
        seconds: wall-clock of all its processes.
        document: the pipeline with every default written out; empty where the folder has none.
        target: the resolved target, or empty.
        environment: what the runner says of itself, without versions.
        versions: of the distributions that took part.
    """

    folder: Path
    name: str
    state: RunState
    operators: Mapping[str, ComparedOperator]
    network: NetworkSummary | None
    measurements: int
    seconds: float
    document: Mapping[str, Any]
    target: str
    environment: Mapping[str, Any]
    versions: Mapping[str, str | None]

    @property
    def latency(self) -> float | None:
        """One inference of the delivered network in seconds; None where it was not timed."""
        return None if self.network is None else self.network.result.latency_seconds


def read_run(folder: Path, name: str) -> ComparedRun:
    """Read what is compared of a run folder, even while it is being written.

    Args:
        folder: the run's.
        name: what to call it.

    Raises:
        RunFolderError: there is no run in it, or its records cannot be read.
    """
    with RunView(folder) as run:
        environment = run.runner
        environment.pop("versions", None)
        return ComparedRun(
            folder=run.folder,
            name=name,
            state=run.standing.state,
            # Of several operators with other spaces the one added last.
            operators={computed(each.stored.task): _operator(each) for each in run.operators},
            network=run.network,
            measurements=run.store.measured,
            seconds=run.seconds,
            document=run.document,
            target=run.target,
            environment=environment,
            versions=run.versions,
        )


def computed(task: Task) -> str:
    """Identity of what an operator computes: a digest of its kind and arguments, of no target."""
    text = json.dumps([task.operator, task.arguments], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _operator(operator: ViewedOperator) -> ComparedOperator:
    task = operator.stored.task
    return ComparedOperator(
        name=operator.result.name,
        weight=task.weight,
        time=operator.time,
        costs=np.array([one.cost for one in operator.measurements], np.float64),
        seconds=operator.result.spending.total,
        kind=task.operator,
        arguments=task.arguments,
    )
