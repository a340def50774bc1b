"""What a run folder tells of its run: how far it is, and what each of its times was taken by."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

import attrs

from chameleon_core.errors import ExitCode
from chameleon_core.loop.end.comparison import interim_result
from chameleon_core.loop.end.operator_result import TUNED, OperatorResult
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.start.frontend import was_checked
from chameleon_core.measurement import Measurement
from chameleon_core.network_result import NetworkResult
from chameleon_core.run_folder import FAILED, LOCK
from chameleon_core.store import RecordStore, StoredTask


class RunState(StrEnum):
    """How far a run is."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class TimeSource(StrEnum):
    """What a time was taken by.

    A search's times are of many candidates, the lowest of which is partly luck; those of a
    comparison were taken anew, in turns with what they are compared with.
    """

    SEARCH = "search"
    COMPARISON = "comparison"


@attrs.frozen(kw_only=True)
class RunStatus:
    """How far a run is, and why it is no further.

    Attributes:
        state: the state.
        because: of a failed run the reason, as half a sentence or a whole one; else empty.
    """

    state: RunState
    because: str = ""

    @property
    def ended(self) -> bool:
        """Whether no process works on the run."""
        return self.state is not RunState.RUNNING


def standing_of(folder: Path, store: RecordStore) -> RunStatus:
    """How far a run is.

    A run has failed where an error ended it, or where it ended and ``chameleon run`` would exit
    with ``NO_VALID_RESULT``. One that was killed, or asked to stop, is interrupted.

    Args:
        folder: the run folder.
        store: its records.
    """
    if _is_locked(folder):
        return RunStatus(state=RunState.RUNNING)
    result = finished_result(folder, store)
    if result is None:
        failure = store.fact(FAILED)
        if failure is None:
            return RunStatus(state=RunState.INTERRUPTED)
        return RunStatus(state=RunState.FAILED, because=str(failure))
    if result.exit_code is not ExitCode.NO_VALID_RESULT:
        return RunStatus(state=RunState.FINISHED)
    return RunStatus(state=RunState.FAILED, because=_no_valid_result(result))


def finished_result(folder: Path, store: RecordStore) -> RunResult | None:
    """The result of a run that has ended, or None.

    Args:
        folder: the run folder.
        store: its records.
    """
    kept = store.fact("finished")
    return None if kept is None else RunResult.from_json(kept["result"], folder=folder.absolute())


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


def time_of(
    store: RecordStore, stored: StoredTask, operator: OperatorResult
) -> OperatorTime | None:
    """What an operator's time was taken by; None where no configuration has one.

    Args:
        store: the run's records.
        stored: the operator's task.
        operator: its result, final or interim.
    """
    comparison = store.comparison(stored.id)
    if operator.tuned_seconds is not None and comparison is not None:
        # A comparison of an earlier, shorter run stays in the folder until another is made.
        for contender, measurement in zip(
            comparison.contenders, comparison.measurements, strict=True
        ):
            ours = contender.name == TUNED and contender.config == operator.config
            if ours and measurement.ok and measurement.cost == operator.tuned_seconds:
                return OperatorTime(measurement=measurement, source=TimeSource.COMPARISON)
    for measurement in store.measurements(stored.id):
        if measurement.ok and measurement.config == operator.config:
            return OperatorTime(measurement=measurement, source=TimeSource.SEARCH)
    return None


@attrs.frozen(kw_only=True)
class NetworkSummary:
    """What is known of a network's time.

    Attributes:
        seconds: of one inference; before it was timed, the sum of its operators' best times as
            often as each occurs, of those that have one; None where nothing has a time.
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


def network_summary(
    store: RecordStore, result: RunResult | None, operators: Sequence[OperatorResult]
) -> NetworkSummary | None:
    """What is known of the network that a run's operators are parts of; None where there is none.

    Args:
        store: the run's records.
        result: of a run that has ended, or None.
        operators: their results, final or interim.
    """
    network = NetworkResult() if result is None else result.network
    made = network.folder is not None or network.failure is not None
    if not (made or was_checked(store)):
        return None
    own = [one for one in operators if not one.task.get("alternative_of")]
    times = [(one.search_seconds, int(one.task.get("weight", 1))) for one in own]
    known = [seconds * weight for seconds, weight in times if seconds is not None]
    timed = network.latency_seconds is not None
    return NetworkSummary(
        seconds=network.latency_seconds if timed else sum(known) or None,
        source=TimeSource.COMPARISON if timed else TimeSource.SEARCH,
        measured=len(known),
        operators=len(own),
        result=network,
    )


def operators_of(store: RecordStore, result: RunResult | None) -> list[OperatorResult]:
    """The results of a run's operators; of a run that has not ended what is known so far.

    Args:
        store: the run's records.
        result: of a run that has ended, or None.
    """
    if result is not None:
        return list(result.operators)
    return [interim_result(store, stored) for stored in store.present_tasks()]


def _no_valid_result(result: RunResult) -> str:
    if result.network.failure is not None:
        return result.network.failure
    without = [one.name for one in result.operators if one.tuned_seconds is None]
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


__all__ = [
    "NetworkSummary",
    "OperatorTime",
    "RunState",
    "RunStatus",
    "TimeSource",
    "finished_result",
    "network_summary",
    "operators_of",
    "standing_of",
    "time_of",
]
