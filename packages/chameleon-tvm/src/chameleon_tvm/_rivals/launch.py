"""Starts rivals and timings in their own processes. This module does not import TVM."""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chameleon_core.plugin_api import ChameleonError, Task
from chameleon_system.api import (
    ChildEndedError,
    ChildProcess,
    Conversation,
    describe_status,
    temporary_folder,
)

_END_SECONDS = 10.0

_TIMING_SECONDS = 600.0
"""Time limit for importing TVM, building one kernel and timing it."""

_OVERRUN_SECONDS = 3600.0
"""Time that a tuner may take beyond its own limit, to import, end its batch, and compile."""

_TRIAL_SECONDS = 60.0
"""Longest measurement: by default, MetaSchedule stops a build after 30 s and a run after 30 s."""


def tune_with_metaschedule(
    task: Task,
    *,
    threads: int,
    wall_seconds: float = 0.0,
    trials: int = 0,
    as_shipped: bool = False,
    seed: int = 0,
) -> dict[str, Any]:
    """Tune a task with TVM's ``ms.tune_tir`` in its own process.

    Returns:
        ``seconds`` is the wall-clock time of the tuner; ``trials`` and ``failed`` are numbers of
        measurements. ``history`` has for each batch the seconds since the start, the trials and the
        best seconds so far. ``best_seconds`` and ``trace`` are of the best kernel, and
        ``kernel_seconds`` is Chameleon's time of it.

    Raises:
        ChameleonError: The tuner fails, or does not end.
    """
    request = {
        "task": task.to_json(),
        "launched": time.time(),
        "threads": threads,
        "wall_seconds": wall_seconds,
        "trials": trials,
        "as_shipped": as_shipped,
        "seed": seed,
    }
    limit = tuning_limit(wall_seconds, trials)
    answer = run_process("chameleon_tvm._rivals.metaschedule", request, threads, limit)
    answer["kernel_seconds"] = None
    if answer["trace"] is not None:
        # A new process times the kernel, because the tuner's process has its thread pool on other
        # cores.
        kernel = {"trace": answer["trace"]}
        answer["kernel_seconds"] = time_kernels(task, [kernel], threads=threads, rounds=1)[0][0]
    return answer


def tuning_limit(wall_seconds: float, trials: int = 0) -> float:
    """The time in seconds after which a tuner's process counts as hanging, and is killed."""
    limits = (wall_seconds or math.inf, trials * _TRIAL_SECONDS or math.inf)
    return _OVERRUN_SECONDS + min(limits)


def time_kernels(
    task: Task, kernels: Sequence[Mapping[str, Any]], *, threads: int, rounds: int = 3
) -> list[list[float]]:
    """Seconds of each kernel in each round, all timed in turns and each in a fresh process.

    Take the median over rounds, because each process has its memory pages in other places.

    Raises:
        ChameleonError: A kernel computes wrong numbers.
    """
    seconds: list[list[float]] = [[] for _ in kernels]
    for _ in range(rounds):
        for kernel, times in zip(kernels, seconds, strict=True):
            request = {"task": task.to_json(), "threads": threads, "kernel": dict(kernel)}
            answer = run_process("chameleon_tvm._rivals.timing", request, threads)
            if not answer["error"] <= answer["tolerance"]:
                raise ChameleonError(
                    f"a kernel of task {task.name!r} is off by {answer['error']:.1e}, where "
                    f"{answer['tolerance']:.0e} is allowed",
                    hint="Its time means nothing; report the schedule.",
                )
            times.append(answer["seconds"])
    return seconds


def run_process(
    module: str, request: Mapping[str, Any], threads: int, limit: float = _TIMING_SECONDS
) -> dict[str, Any]:
    """Run a Python module in a new process with a request as JSON, and return its answer.

    Args:
        limit: Seconds after which the process is killed.

    Raises:
        ChameleonError: The process failed, or did not end within ``limit`` seconds.
    """
    with (
        temporary_folder() as folder,
        ChildProcess(
            module,
            # MetaSchedule removes none of its temporary folders.
            environment={**os.environ, "TVM_NUM_THREADS": str(threads), "TMPDIR": folder},
            folder=Path(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child,
    ):
        conversation = Conversation(child)
        try:
            conversation.tell(dict(request))
            return conversation.answer(limit)
        except TimeoutError:
            raise ChameleonError(
                f"{module} was not done after {limit:.0f} s and was killed",
                hint="Is the machine busy? Run it again, or give it less to do.",
            ) from None
        except ChildEndedError as error:
            words = describe_status(child.reap(_END_SECONDS))
            lines = child.log.splitlines()
            raise ChameleonError(
                f"{module} failed: {lines[-1] if lines else words}",
                hint="Run it by hand to see all of its output.",
            ) from error
