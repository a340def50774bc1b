"""The very end of a run: the frontend compiles what the tasks are parts of."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import attrs
import structlog

from chameleon_core.errors import ChameleonError
from chameleon_core.loop.assembly import delivers
from chameleon_core.loop.guard import Guard
from chameleon_core.loop.result import NetworkResult, OperatorResult
from chameleon_core.loop.stages import guard_of
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.stages import Delivery, Frontend, SpaceProvider, Winner
from chameleon_core.task import Task

log = structlog.get_logger()


def deliver(
    pipeline: ResolvedPipeline,
    frontend: Frontend,
    target: str,
    operators: Iterable[OperatorResult],
    *,
    folder: Path,
    threads: int,
    seconds_before: float = 0.0,
) -> NetworkResult:
    """Have the frontend deliver, and say why where it cannot.

    What was tuned is on disk and stays a result, so nothing that goes wrong here ends the run.

    Args:
        pipeline: the run's.
        frontend: its frontend.
        target: the resolved target.
        operators: results of the run's tasks.
        folder: where the result goes.
        threads: that kernels were measured with.
        seconds_before: wall-clock of the run until now.
    """
    guard = guard_of(pipeline.model)
    if not delivers(frontend):
        return NetworkResult()
    try:
        delivery = Delivery(
            target=target,
            winners=winners(operators),
            space=_provider(pipeline),
            folder=folder,
            threads=threads,
        )
        delivered = _ask(guard, frontend, delivery)
    except ChameleonError as error:
        log.warning("network_not_delivered", problem=str(error), hint=error.hint)
        return NetworkResult(failure=str(error))
    if delivered is None:
        return NetworkResult()
    if delivered.delivered_seconds is None:
        return delivered
    return attrs.evolve(delivered, delivered_seconds=seconds_before + delivered.delivered_seconds)


def winners(operators: Iterable[OperatorResult]) -> tuple[Winner, ...]:
    """The best configurations of the tasks that have one."""
    return tuple(
        Winner(
            task=Task(**operator.task),
            config=operator.config,
            seconds=operator.tuned_seconds or operator.search_seconds or 0.0,
            alternatives=operator.alternatives,
        )
        for operator in operators
        if operator.config is not None
    )


def _provider(pipeline: ResolvedPipeline) -> SpaceProvider:
    with guard_of(pipeline.space).call("start"):
        provider: SpaceProvider = pipeline.space.create()
    return provider


def _ask(guard: Guard, frontend: Frontend, delivery: Delivery) -> NetworkResult | None:
    with guard.call("deliver the network"):
        value = frontend.deliver(delivery)
    if value is None:
        return None
    if not isinstance(value, dict):
        raise guard.broken(f"delivered a {type(value).__name__} instead of a mapping")
    return NetworkResult.from_json(value)
