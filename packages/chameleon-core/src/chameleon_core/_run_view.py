"""Reads a run folder: the state of the run and its results.

Each time of an operator says whether the search or the comparison at the end measured it.
"""

from __future__ import annotations

import fcntl
import os
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
from chameleon_system.api import Closeable

from chameleon_core._errors import ExitCode, RunFolderError
from chameleon_core._loop.context import disturbance_of
from chameleon_core._loop.end.comparison import interim_result
from chameleon_core._loop.end.delivery import guesses_for, stored_winners, verify_delivery
from chameleon_core._loop.end.result import OperatorResult, RunResult
from chameleon_core._loop.start.frontend import recalled, was_checked
from chameleon_core._loop.start.shared_records import fastest_elsewhere, kept_records
from chameleon_core._loop.start.tasks import TaskSource
from chameleon_core._measurement import Measurement
from chameleon_core._network_result import NetworkResult
from chameleon_core._pipeline.load import model_choice_from_dict
from chameleon_core._pipeline.schema import ModelChoice
from chameleon_core._run_folder import FAILED, LOCK
from chameleon_core._stages.disturbance import Disturbance
from chameleon_core._stages.frontend import Delivery, Frontend
from chameleon_core._stages.record_database import RecordDatabase
from chameleon_core._store.records import RecordStore
from chameleon_core._task import Task
from chameleon_core._trust import check_sources


class RunState(StrEnum):
    """The state of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class TimeSource(StrEnum):
    """Whether a time is from the search or from the comparison at the end.

    A search times many candidates, so its lowest time is partly luck. A comparison times the
    fastest ones again, in turns with the baselines.
    """

    SEARCH = "search"
    COMPARISON = "comparison"


@attrs.frozen(kw_only=True)
class RunStatus:
    """The state of a run, and the reason if the run failed.

    Attributes:
        state: the state.
        because: the reason why the run failed, which may be a whole sentence; empty in other
            states.
    """

    state: RunState
    because: str = ""

    @property
    def ended(self) -> bool:
        """Whether no process works on the run at present."""
        return self.state is not RunState.RUNNING


@attrs.frozen(kw_only=True)
class OperatorTime:
    """The time of an operator's best configuration.

    Attributes:
        measurement: the measurement of the configuration; its repeats show how much the time
            varies.
        source: whether the measurement is from the search or from the comparison at the end.
    """

    measurement: Measurement
    source: TimeSource

    @property
    def seconds(self) -> float:
        """The time in seconds."""
        return self.measurement.cost


@attrs.frozen(kw_only=True)
class ViewedOperator:
    """An operator of a run, with its result and measurements.

    Attributes:
        store: the run's record store.
        stored: the row of the operator's task in the store.
        result: the operator's result. If the run has not ended, it is made from the measurements so
            far.
    """

    store: RecordStore
    stored: RecordStore.TaskRow
    result: OperatorResult

    @property
    def measurements(self) -> list[Measurement]:
        """All measurements of the operator, in order of arrival."""
        return self.store.measurements(self.stored.id)

    @property
    def time(self) -> OperatorTime | None:
        """The time of the operator's best configuration, or None if no configuration succeeded."""
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


class RunView(Closeable):
    """Reads a run folder, even while a process writes it. A context manager.

    Args:
        folder: the run folder.

    Attributes:
        folder: the absolute path of the run folder.
        store: the record store of the run.

    Raises:
        RunFolderError: the folder holds no run, or its records cannot be read.
    """

    @attrs.frozen(kw_only=True)
    class Network:
        """The time of a network, and the source of the time.

        Attributes:
            seconds: the time of one inference in seconds. If the network was not timed, it is the
                sum of its operators' best times in the search, each times the number of its
                occurrences. None if no operator has a time.
            source: the comparison at the end of the run if the network was timed. The search if
                ``seconds`` is a sum of operators' times.
            measured: the number of operators that have a time.
            operators: the number of operators, without alternatives in other dtypes.
            result: the network's result; empty before the end of the run.
        """

        seconds: float | None
        source: TimeSource
        measured: int
        operators: int
        result: NetworkResult = attrs.field(factory=NetworkResult)

        @property
        def compared(self) -> bool:
            """Whether the comparison at the end of the run timed the network."""
            return self.source is TimeSource.COMPARISON

    def __init__(self, folder: Path) -> None:
        self.store = RecordStore.of_run(folder)
        self.folder = folder.absolute()

    def close(self) -> None:
        """Close the record store. A second call does nothing."""
        self.store.close()

    @property
    def document(self) -> dict[str, Any]:
        """The pipeline of the run as JSON values, with every default; empty if there is none."""
        return dict((self.store.fact("pipeline") or {}).get("document", {}))

    @property
    def target(self) -> str:
        """The resolved target of the run, or an empty string if it was not resolved yet."""
        return str(self.store.fact("target") or "")

    @property
    def runner(self) -> dict[str, Any]:
        """The description that the run's runner gave of itself; empty before the runner started."""
        return dict(self.store.fact("runner") or {})

    @property
    def versions(self) -> dict[str, str | None]:
        """Versions of the distributions that took part in the run, by name."""
        return dict(self.store.fact("versions") or {})

    @property
    def seconds(self) -> float:
        """Wall-clock time in seconds, summed over all processes of the run."""
        return float(self.store.fact("seconds") or 0.0)

    @property
    def standing(self) -> RunStatus:
        """The state of the run, and the reason if it failed.

        A run has failed if an error ended it. It has also failed if it ended without a valid
        result, so that ``chameleon run`` exits with ``NO_VALID_RESULT``. A run that was killed or
        asked to stop counts as interrupted.
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
        """The result of a run that has ended, or None.

        If the delivered network is gone or incomplete by now, its ``failure`` says so.
        """
        fact = self.store.fact("finished")
        if fact is None:
            return None
        result = RunResult.from_json(fact["result"], folder=self.folder)
        return verify_delivery(result, next(iter(self.document.get("model", ())), ""))

    @property
    def disturbance(self) -> Disturbance:
        """How much other programs disturbed the timing, as far as known."""
        return disturbance_of(self.store)

    def own_records(self) -> dict[RecordDatabase.Key, list[RecordDatabase.Record]]:
        """The run's own measurements in the form of database records.

        Measurements that the run took from databases are left out. The result is empty if the
        conditions of the measurements are unknown.
        """
        return kept_records(self.store)

    @cached_property
    def searched(self) -> tuple[ViewedOperator, ...]:
        """The operators with their results from the search, without comparisons."""
        store = self.store
        return tuple(
            ViewedOperator(store=store, stored=stored, result=interim_result(store, stored))
            for stored in store.present_tasks()
        )

    @cached_property
    def operators(self) -> tuple[ViewedOperator, ...]:
        """The operators with their final results, or with ``searched`` results during the run."""
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
    def network(self) -> Network | None:
        """A summary of the network that the run tunes, or None if the model is no network."""
        network = NetworkResult() if self.result is None else self.result.network
        delivered = network.folder is not None or network.failure is not None
        if not (delivered or was_checked(self.store)):
            return None
        results = [operator.result for operator in self.operators]
        own = [result for result in results if not result.task.get("alternative_of")]
        times = [(result.search_seconds, int(result.task.get("weight", 1))) for result in own]
        known = [seconds * weight for seconds, weight in times if seconds is not None]
        timed = network.latency_seconds is not None
        return self.Network(
            seconds=network.latency_seconds if timed else sum(known) or None,
            source=TimeSource.COMPARISON if timed else TimeSource.SEARCH,
            measured=len(known),
            operators=len(own),
            result=network,
        )

    def model_choice(self, *, trust_source: bool) -> ModelChoice:
        """Read the run's model and design space, without the plugins that only a search needs.

        Args:
            trust_source: whether code that the pipeline names may be imported.

        Raises:
            RunFolderError: the folder has no pipeline.
            ConfigError: the pipeline names code, and ``trust_source`` is False.
        """
        if not self.document:
            raise RunFolderError(
                f"{self.folder} does not say which pipeline it belongs to",
                hint="Run `chameleon run` on the pipeline first.",
            )
        choice = model_choice_from_dict(self.document)
        named = (choice.model.options, choice.space.options, *choice.sections.values())
        check_sources(self.folder, *named, trust_source=trust_source)
        return choice

    def frontend(self, choice: ModelChoice) -> Frontend:
        """Make the frontend of the model, and pass it the choice that the run made.

        The choice is, for example, the layout of the images in a network.

        Args:
            choice: the run's model and design space.
        """
        frontend = TaskSource(choice).frontend()
        recalled(choice, frontend, self.store)
        return frontend

    @property
    def winners(self) -> tuple[Delivery.Winner, ...]:
        """The winner of each measured task's final comparison, or else its fastest configuration.

        A run with a budget of 0 has only a final comparison, of recommended configurations.
        """
        return stored_winners(self.store)

    def recorded(self, task: Task) -> list[tuple[int, ...]]:
        """The fastest configurations of other runs for a task of another target.

        They are those of the last delivery by ``chameleon run`` (``Delivery.recorded``).
        """
        return fastest_elsewhere(self.store, task)

    def guesses(self, choice: ModelChoice) -> tuple[Delivery.Winner, ...]:
        """The predicted configuration, or the first guess, of each task without measurements.

        Args:
            choice: the run's model and design space.
        """
        stored = self.store.tasks()
        unmeasured = [row.task for row in stored if not self.store.measurements(row.id)]
        operators = () if self.result is None else self.result.operators
        return guesses_for(unmeasured, operators, choice)


def _no_valid_result(result: RunResult) -> str:
    if result.network.failure is not None:
        return result.network.failure
    without = [operator.name for operator in result.operators if operator.tuned_seconds is None]
    if not without:
        return "there was no operator to tune"
    return f"no configuration of {', '.join(without)} has a valid time"


def _is_locked(folder: Path) -> bool:
    """Whether a process works on the run. The test holds the lock for a moment."""
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
