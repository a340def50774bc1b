"""The last step of a run: the frontend delivers the model that the tasks come from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import structlog

from chameleon_core._errors import ChameleonError, PluginError
from chameleon_core._events import ComparisonProgressed, ComparisonStarted, Event
from chameleon_core._fallbacks import fall_back
from chameleon_core._loop.context import RunContext
from chameleon_core._loop.end.comparison import alternatives, best_of, winner
from chameleon_core._loop.end.result import OperatorResult, RunResult
from chameleon_core._loop.end.time_use import COMPARING, DELIVERING, SHARE
from chameleon_core._loop.plugin_contract import PluginContract, contract_of
from chameleon_core._loop.round.batch import tuples
from chameleon_core._loop.round.task_run import TaskRecords
from chameleon_core._loop.start.shared_records import shares_records
from chameleon_core._loop.start.tasks import TaskSource, delivers, provider_of
from chameleon_core._network_result import NetworkResult
from chameleon_core._pipeline.schema import ModelChoice, StageSpec
from chameleon_core._plugins.factory import load_factory
from chameleon_core._plugins.registry import Registry
from chameleon_core._run_files import RunFile
from chameleon_core._space.design import DesignSpace
from chameleon_core._stages.frontend import Delivery, Frontend
from chameleon_core._stages.jobs import ComparisonPlan
from chameleon_core._store.records import RecordStore
from chameleon_core._task import Task

log = structlog.get_logger()

THE_NETWORK = "the network"
"""Name of the network in events, instead of a task's name."""


def deliver(
    run: RunContext, operators: Sequence[OperatorResult], most_seconds: float = math.inf
) -> NetworkResult:
    """Let the frontend deliver the network; if it cannot, log the reason.

    The tuned kernels are already on disk and remain a result, so a failed delivery does not end the
    run.

    Args:
        run: the run.
        operators: the results of the run's tasks.
        most_seconds: the wall-clock time in seconds after which the network's comparison begins
            nothing more.

    Raises:
        ChameleonError: the machine lacks something, such as space, so that the run is unfinished.
    """
    pipeline, seconds_before = run.pipeline, run.totals.seconds
    if not delivers(run.frontend):
        return NetworkResult()
    measures = pipeline.budget.measurements != 0
    # Without measurements, only tasks for other dtypes count as not reached.
    not_reached([row for row in operators if measures or row.task.get("alternative_of")])
    try:
        space = provider_of(pipeline)
        delivery = Delivery(
            target=run.target,
            winners=_with_others(winners(operators), run.store),
            space=space,
            folder=run.folder.path / RunFile.NETWORK,
            threads=run.runner.threads,
            plan=_plan(run.publish, seconds_before, most_seconds),
            measures=measures,
            recorded=lambda task: run.records.fastest(task, space.design_space(task)),
        )
        delivered = _ask(contract_of(pipeline.model), run.frontend, delivery)
    except ChameleonError as error:
        if error.may_pass:  # the same command continues the run
            raise
        log.warning("network_not_delivered", problem=str(error), hint=error.hint)
        return NetworkResult(failure=str(error))
    if delivered.delivered_seconds is None:
        return delivered
    delivered_at = seconds_before + delivered.delivered_seconds
    run.totals.move(run.totals.seconds - delivered_at, COMPARING, source=DELIVERING)
    return attrs.evolve(delivered, delivered_seconds=delivered_at)


def verify_delivery(
    result: RunResult, frontend: str, registry: Registry | None = None
) -> RunResult:
    """A stored result, with a failure if the network that it names is gone or incomplete by now.

    If the frontend's check of the network fails itself, the result stays as it is.

    Args:
        result: the result.
        frontend: the name of the run's frontend.
        registry: the plugins; the installed ones if None.
    """
    named, folder = result.network.folder, result.folder / RunFile.NETWORK
    if named is None:
        return result
    if not folder.exists():  # the run folder may have been moved since
        folder = Path(named)
    fault = "" if folder.exists() else "gone"
    complete = ""
    with contextlib.suppress(PluginError):  # the frontend is not installed
        complete = (registry or Registry.default()).record("frontends", frontend).complete
    if complete and not fault:
        try:
            load_factory(complete)(folder)
        except RuntimeError as error:
            fault = f"of no use: {error}"
        except Exception as error:  # noqa: BLE001 - the network may be right
            fall_back("network_not_checked", error, frontend=frontend)
    if not fault:
        return result
    failure = (
        f"the network is {fault}; `chameleon compile {result.folder}` delivers it without tuning"
    )
    return attrs.evolve(result, network=attrs.evolve(result.network, folder=None, failure=failure))


def check_unchanged(folder: Path, model: StageSpec) -> None:
    """Check that a model has not changed since a network was delivered, if one was.

    Args:
        folder: the run folder.
        model: the model of the pipeline that is about to run in the folder.

    Raises:
        ChameleonError: the model has changed; the message names the files.
    """
    network, named = folder / RunFile.NETWORK, getattr(model.record, "unchanged", "")
    if named and network.exists():
        load_factory(named)(network)


def _plan(
    publish: Callable[[Event], None], seconds_before: float, most_seconds: float
) -> ComparisonPlan:
    """The time limits of a network's comparison, and a function that publishes its progress."""
    announced = False

    def tell(step: str, done: int, of: int) -> None:
        nonlocal announced
        if not announced:
            publish(ComparisonStarted(task=THE_NETWORK, finalists=1, rivals=of - 1))
        announced = True
        publish(ComparisonProgressed(task=THE_NETWORK, step=step, done=done, of=of))

    seconds = min(most_seconds, seconds_before * SHARE / (1.0 - SHARE))
    return ComparisonPlan(seconds=seconds, most_seconds=most_seconds, tell=tell)


def winners(operators: Iterable[OperatorResult]) -> tuple[Delivery.Winner, ...]:
    """The configuration that the delivery compiles for each task.

    It is the winner of the run, or else the task's first guess, which the design space recommends
    without a measurement. A task with neither is left out.

    Args:
        operators: the results of the run's tasks.
    """
    kernels = (_winner(operator) for operator in operators)
    return tuple(winner for winner in kernels if winner is not None)


def _winner(operator: OperatorResult) -> Delivery.Winner | None:
    task = Task(**operator.task)
    if operator.config is None:
        return guessed(task, operator.guesses, predicted=operator.predicted)
    return Delivery.Winner(
        task=task,
        config=operator.config,
        seconds=operator.tuned_seconds or operator.search_seconds or 0.0,
        alternatives=operator.alternatives,
        guesses=operator.guesses,
        recorded=operator.recorded,
    )


def _with_others(
    kernels: Iterable[Delivery.Winner], store: RecordStore
) -> tuple[Delivery.Winner, ...]:
    """Winners with the fastest configurations of other algorithms (``Delivery.Winner.others``)."""
    records = {row.task.key: TaskRecords(store, row) for row in store.tasks()}
    return tuple(
        attrs.evolve(kernel, others=_others(kernel, records[kernel.task.key]))
        if kernel.measured and kernel.task.key in records
        else kernel
        for kernel in kernels
    )


def _others(kernel: Delivery.Winner, records: TaskRecords) -> tuple[Delivery.Winner, ...]:
    """The fastest configuration of a winner's task for each other value of the first knob."""
    fastest: dict[int, Delivery.Winner] = {}
    for row in sorted(records.measured.values(), key=lambda row: row.cost):
        if row.ok and row.config[:1] != kernel.config[:1]:
            recorded = records.is_recorded(row.config)
            other = Delivery.Winner(
                task=kernel.task, config=row.config, seconds=row.cost, recorded=recorded
            )
            fastest.setdefault(row.config[0], other)
    return tuple(fastest.values())


def guessed(
    task: Task, guesses: Sequence[tuple[int, ...]], *, predicted: bool = False
) -> Delivery.Winner | None:
    """The configuration that the delivery compiles for a task that was never measured.

    A guess is a configuration that the design space or a cost model recommends without a
    measurement. The result is the best guess, with the other guesses to use if it fails. The result
    is None if there are no guesses.

    Args:
        task: the task.
        guesses: configurations from ``guesses_of`` or from the task's result, best first.
        predicted: whether a cost model chose the first guess.
    """
    if not guesses:
        return None
    config, *further = guesses
    return Delivery.Winner(task=task, config=config, guesses=tuple(further), predicted=predicted)


def guesses_of(space: DesignSpace) -> tuple[tuple[int, ...], ...]:
    """The configurations that a space recommends without measurements, most promising first."""
    return tuple(tuples(space.first_guesses))


def stored_winners(store: RecordStore) -> tuple[Delivery.Winner, ...]:
    """The winner of each measured task of a store (``RunView.winners``)."""
    found, shared = [], shares_records(store)
    for stored in store.tasks():
        records = TaskRecords(store, stored)
        valid = {m.config: m for m in records.measured.values() if m.ok}
        comparison = store.comparison(stored.id)
        config = None if comparison is None else winner(comparison, shared=shared)
        tuned = {} if comparison is None else dict(comparison.tuned)
        best = None
        if config is not None:
            best = valid.get(config) or attrs.evolve(tuned[config], config=config)
        recorded = best is None
        best = best or best_of(valid.values(), shared=shared)
        if best is not None:
            kernel = Delivery.Winner(
                task=stored.task,
                config=best.config,
                seconds=best.cost,
                alternatives=alternatives(list(valid.values()), best.config),
                recorded=recorded and records.is_recorded(best.config),
            )
            found.append(attrs.evolve(kernel, others=_others(kernel, records)))
    return tuple(found)


def guesses_for(
    tasks: Sequence[Task], operators: Iterable[OperatorResult], choice: ModelChoice
) -> tuple[Delivery.Winner, ...]:
    """The best guess for each of a run's unmeasured tasks (``RunView.guesses``)."""
    predicted = {Task(**row.task).key: row.guesses for row in operators if row.predicted}
    kernels = (
        guessed(task, predicted.get(task.key, guesses_of(space)), predicted=task.key in predicted)
        for task, space in zip(tasks, TaskSource(choice).spaces(tasks, among=True), strict=True)
    )
    return tuple(kernel for kernel in kernels if kernel is not None)


_UNMEASURED = "first_guesses_delivered"
_UNUSED = "other_dtypes_not_used"
_UNREACHED = "the budget did not reach these operators"


def not_reached(operators: Sequence[OperatorResult]) -> None:
    """Log how many operators were never measured because the budget ended before, if any.

    Tasks for other dtypes (alternatives) that were not measured are not used. Their operators keep
    the network's own dtype. If none was measured, the message is a warning, because the pipeline's
    other dtypes then have no effect.

    Args:
        operators: the results of the run's tasks.
    """
    own = [operator for operator in operators if not operator.task.get("alternative_of")]
    others = [operator for operator in operators if operator.task.get("alternative_of")]
    for some, event in ((own, _UNMEASURED), (others, _UNUSED)):
        missed = [operator.name for operator in some if not operator.measurements]
        if missed:
            say = log.warning if some is others and len(missed) == len(some) else log.info
            say(event, reason=_UNREACHED, count=len(missed), of=len(some), operators=missed)


def _ask(contract: PluginContract, frontend: Frontend, delivery: Delivery) -> NetworkResult:
    with contract.call("deliver the network"):
        value: Any = frontend.deliver(delivery)
        if value is None or isinstance(value, Mapping):
            return NetworkResult.from_json(value or {})
    if isinstance(value, NetworkResult):
        return value
    raise contract.broken(f"delivered a {type(value).__name__} instead of a NetworkResult")
