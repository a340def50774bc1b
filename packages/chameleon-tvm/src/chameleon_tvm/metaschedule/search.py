"""One task's search inside MetaSchedule: proposals as schedules, outcomes as measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import structlog
from chameleon_core.errors import InvalidConfigurationError
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.measurement import FailureKind, Measurement

from chameleon_tvm.metaschedule.traces import applied, config_of
from chameleon_tvm.quick_tvm import Schedule
from chameleon_tvm.spaces.sketch.provider import SketchPlan

log = structlog.get_logger()

_FRUITLESS = 8
"""Batches in a row without a program, after which a search is given up."""


class TraceSearch:
    """Asks a tuner for configurations and hands them out as schedules.

    Args:
        name: the task's, for the log.
        plan: the task's design spaces.
        tuner: proposes and learns.
        max_trials: schedules handed out at most.
    """

    def __init__(self, name: str, plan: SketchPlan, tuner: TaskTuner, *, max_trials: int) -> None:
        self._name = name
        self._plan = plan
        self._tuner = tuner
        self._left = max_trials
        self._waiting: list[tuple[int, ...]] = []
        self._refused: list[Measurement] = []

    def adopt(self, records: Iterable[Any]) -> int:
        """Learn what a database knows of this task from earlier tuning.

        Args:
            records: MetaSchedule's tuning records.

        Returns:
            How many of them are of this design space.
        """
        known: dict[tuple[int, ...], Measurement] = {}
        for record in records:
            config = config_of(self._plan, record.trace)
            if config is not None and self._tuner.space.legal(np.array([config], np.int32))[0]:
                known.setdefault(config, measured(config, record.run_secs))
        self._tuner.adopt(list(known.values()))
        return len(known)

    def schedules(self) -> list[Schedule]:
        """The next batch; empty where the trials are spent or nothing is left to try."""
        for _ in range(_FRUITLESS):
            if not self._left:
                return []
            asked = self._tuner.ask(self._left)
            if not len(asked):
                return []
            made = []
            for config in (tuple(row) for row in asked.tolist()):
                try:
                    made.append(applied(self._plan, config))
                except InvalidConfigurationError as error:
                    self._refused.append(
                        Measurement(config=config, failure=FailureKind.INVALID, message=str(error))
                    )
                else:
                    self._waiting.append(config)
            if made:
                self._left -= len(made)
                return made
            self.learn(())
        log.warning("no_schedulable_configuration", task=self._name, batches=_FRUITLESS)
        return []

    def learn(self, results: Sequence[Any]) -> None:
        """Learn a batch's outcomes.

        Args:
            results: MetaSchedule's runner results, in the order of ``schedules``.
        """
        outcomes = [
            measured(config, result.run_secs, problem=result.error_msg)
            for config, result in zip(self._waiting, results, strict=True)
        ]
        refused, self._waiting, self._refused = self._refused, [], []
        self._tuner.tell([*outcomes, *refused])


def measured(config: tuple[int, ...], run_secs: Any, *, problem: Any = None) -> Measurement:
    """What MetaSchedule's builder and runner say of a configuration, as a measurement.

    Args:
        config: knob indices.
        run_secs: seconds of each repeat, or None.
        problem: its builder's or runner's error message, or None.
    """
    seconds = tuple(float(value) for value in run_secs or ())
    if problem is None and seconds and all(0.0 < value < math.inf for value in seconds):
        return Measurement(config=config, seconds=seconds)
    message = "the runner gave no time" if problem is None else str(problem).strip()
    who = message.partition("\n")[0]
    building, late = "Builder" in who, "Timeout" in who
    if building:
        kind = FailureKind.BUILD_TIMEOUT if late else FailureKind.BUILD_ERROR
    else:
        kind = FailureKind.RUN_TIMEOUT if late else FailureKind.RUN_ERROR
    return Measurement(config=config, failure=kind, message=message)
