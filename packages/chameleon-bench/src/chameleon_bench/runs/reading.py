"""What is compared of a run: its operators' times with their repeats, and what they cost."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.run_folder import read_store
from chameleon_core.run_summary import (
    NetworkSummary,
    OperatorTime,
    RunState,
    finished_result,
    network_summary,
    operators_of,
    standing_of,
    time_of,
)
from chameleon_core.store import RecordStore, StoredTask
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
    with read_store(folder) as store:
        result = finished_result(folder, store)
        found = operators_of(store, result)
        runner = dict(store.fact("runner") or {})
        runner.pop("versions", None)
        return ComparedRun(
            folder=folder.absolute(),
            name=name,
            state=standing_of(folder, store).state,
            operators=_operators(store, found),
            network=network_summary(store, result, found),
            measurements=store.measured,
            seconds=float(store.fact("seconds") or 0.0),
            document=(store.fact("pipeline") or {}).get("document", {}),
            target=str(store.fact("target") or ""),
            environment=runner,
            versions=store.fact("versions") or {},
        )


def computed(task: Task) -> str:
    """Identity of what an operator computes: a digest of its kind and arguments, of no target."""
    text = json.dumps([task.operator, task.arguments], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]


def _operators(store: RecordStore, found: Sequence[OperatorResult]) -> dict[str, ComparedOperator]:
    """Operators by what they compute; of several with other spaces the one added last."""
    rows = {(one.task.key, one.space, one.fingerprint): one for one in store.tasks()}
    made = {}
    for operator in found:
        task = Task(**operator.task)
        stored = rows[task.key, operator.space, operator.fingerprint]
        made[computed(task)] = _operator(store, stored, operator)
    return made


def _operator(store: RecordStore, stored: StoredTask, operator: OperatorResult) -> ComparedOperator:
    costs = [measurement.cost for measurement in store.measurements(stored.id)]
    return ComparedOperator(
        name=operator.name,
        weight=stored.task.weight,
        time=time_of(store, stored, operator),
        costs=np.array(costs, np.float64),
        seconds=operator.spending.total,
        kind=stored.task.operator,
        arguments=stored.task.arguments,
    )
