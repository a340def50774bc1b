"""A run folder to be read: how far the run is, its results, and the source of each time."""

from __future__ import annotations

import fcntl
import os
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import attrs

from chameleon_core.errors import ExitCode
from chameleon_core.loop.end.comparison import interim_result
from chameleon_core.loop.end.result import OperatorResult, RunResult
from chameleon_core.loop.start.frontend import was_checked
from chameleon_core.measurement import Measurement
from chameleon_core.network_result import NetworkResult
from chameleon_core.run_folder import FAILED, LOCK, read_store
from chameleon_core.store import RecordStore, StoredTask
from chameleon_core.task import Task


class RunState(StrEnum):
    """How far a run is."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class TimeSource(StrEnum):
    """The origin of a time.

    A search times many candidates, and its lowest time is partly luck. A comparison times them
    anew, in turns with what they are compared with.
    """

    SEARCH = "search"
    COMPARISON = "comparison"


@attrs.frozen(kw_only=True)
class RunStatus:
    """How far a run is, and why it is no further.

    Attributes:
        state: the state.
        because: of a failed run the reason, which may be a whole sentence; else empty.
    """

    state: RunState
    because: str = ""

    @property
    def ended(self) -> bool:
        """Whether no process works on the run."""
        return self.state is not RunState.RUNNING


@attrs.frozen(kw_only=True)
class OperatorTime:
    """The time of an operator's best configuration.

    Attributes:
        measurement: it was taken by; its repeats are what an interval is made of.
        source: whether that was the search or the comparison at the end.
    """

    measurement: Measurement
    source: TimeSource

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return self.measurement.cost


@attrs.frozen(kw_only=True)
class ViewedOperator:
    """An operator of a run.

    Attributes:
        store: the run's records.
        stored: the row of its task.
        result: what the run says of it, final or as far as it is.
    """

    store: RecordStore
    stored: StoredTask
    result: OperatorResult

    @property
    def measurements(self) -> list[Measurement]:
        """Its measurements, in order of arrival."""
        return self.store.measurements(self.stored.id)

    @property
    def time(self) -> OperatorTime | None:
        """The time of its best configuration; None if no configuration has one."""
        comparison = self.store.comparison(self.stored.id)
        if self.result.tuned_seconds is not None and comparison is not None:
            # A comparison of an earlier, shorter run stays in the folder until another is made.
            for config, measurement in comparison.tuned:
                delivered = config == self.result.config and measurement.ok
                if delivered and measurement.cost == self.result.tuned_seconds:
                    return OperatorTime(measurement=measurement, source=TimeSource.COMPARISON)
        for measurement in self.measurements:
            if measurement.ok and measurement.config == self.result.config:
                return OperatorTime(measurement=measurement, source=TimeSource.SEARCH)
        return None


@attrs.frozen(kw_only=True)
class NetworkSummary:
    """A network's time and its origin.

    Attributes:
        seconds: of one inference. Before it was timed, the sum of its operators' known best times,
            as often as each occurs; None if nothing has a time.
        source: the comparison for one inference that was timed, the search for a sum.
        measured: operators that have a time.
        operators: how many there are, alternatives in other types left out.
        result: what became of it; empty before the run's end.
    """

    seconds: float | None
    source: TimeSource
    measured: int
    operators: int
    result: NetworkResult = attrs.field(factory=NetworkResult)


class RunView:
    """A run folder, opened to be read, even while a process writes it.

    Args:
        folder: the run folder.

    Attributes:
        folder: the same, absolute.
        store: its records.

    Raises:
        RunFolderError: there is no run in it, or its records cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.store = read_store(folder)
        self.folder = folder.absolute()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.store.close()

    @property
    def document(self) -> dict[str, Any]:
        """The pipeline with every default written out; empty if the folder has none."""
        return dict((self.store.fact("pipeline") or {}).get("document", {}))

    @property
    def target(self) -> str:
        """The resolved target, or empty."""
        return str(self.store.fact("target") or "")

    @property
    def runner(self) -> dict[str, Any]:
        """The runner's description of itself."""
        return dict(self.store.fact("runner") or {})

    @property
    def versions(self) -> dict[str, str | None]:
        """Versions of the distributions that took part."""
        return dict(self.store.fact("versions") or {})

    @property
    def seconds(self) -> float:
        """Wall-clock of all its processes in seconds."""
        return float(self.store.fact("seconds") or 0.0)

    @property
    def standing(self) -> RunStatus:
        """How far the run is.

        A run has failed if an error ended it, or if it ended and ``chameleon run`` would exit with
        ``NO_VALID_RESULT``. One that was killed, or asked to stop, is interrupted.
        """
        if _is_locked(self.folder):
            return RunStatus(state=RunState.RUNNING)
        if self.result is None:
            failure = self.store.fact(FAILED)
            if failure is None:
                return RunStatus(state=RunState.INTERRUPTED)
            return RunStatus(state=RunState.FAILED, because=str(failure))
        if self.result.exit_code is not ExitCode.NO_VALID_RESULT:
            return RunStatus(state=RunState.FINISHED)
        return RunStatus(state=RunState.FAILED, because=_no_valid_result(self.result))

    @cached_property
    def result(self) -> RunResult | None:
        """The result of a run that has ended, or None."""
        fact = self.store.fact("finished")
        return None if fact is None else RunResult.from_json(fact["result"], folder=self.folder)

    @cached_property
    def searched(self) -> tuple[ViewedOperator, ...]:
        """The operators as the search alone knows them."""
        store = self.store
        return tuple(
            ViewedOperator(store=store, stored=stored, result=interim_result(store, stored))
            for stored in store.present_tasks()
        )

    @cached_property
    def operators(self) -> tuple[ViewedOperator, ...]:
        """The operators with their final results; of a run that has not ended, ``searched``."""
        if self.result is None:
            return self.searched
        rows = {(row.task.key, row.space, row.fingerprint): row for row in self.store.tasks()}
        return tuple(
            ViewedOperator(
                store=self.store,
                stored=rows[Task(**result.task).key, result.space, result.fingerprint],
                result=result,
            )
            for result in self.result.operators
        )

    @property
    def network(self) -> NetworkSummary | None:
        """The network that the operators are parts of; None if there is none."""
        network = NetworkResult() if self.result is None else self.result.network
        delivered = network.folder is not None or network.failure is not None
        if not (delivered or was_checked(self.store)):
            return None
        results = [operator.result for operator in self.operators]
        own = [result for result in results if not result.task.get("alternative_of")]
        times = [(result.search_seconds, int(result.task.get("weight", 1))) for result in own]
        known = [seconds * weight for seconds, weight in times if seconds is not None]
        timed = network.latency_seconds is not None
        return NetworkSummary(
            seconds=network.latency_seconds if timed else sum(known) or None,
            source=TimeSource.COMPARISON if timed else TimeSource.SEARCH,
            measured=len(known),
            operators=len(own),
            result=network,
        )


def _no_valid_result(result: RunResult) -> str:
    if result.network.failure is not None:
        return result.network.failure
    without = [operator.name for operator in result.operators if operator.tuned_seconds is None]
    if not without:
        return "there was no operator to tune"
    return f"no configuration of {', '.join(without)} has a valid time"


def _is_locked(folder: Path) -> bool:
    """Whether a process works on the run; the lock is held for no longer than it takes to ask."""
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
