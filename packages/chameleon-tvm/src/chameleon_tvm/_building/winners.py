"""Writes listings of a run's fastest kernels (winners): files with TensorIR and assembly.

A separate process makes them, because the code of a candidate may crash.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Sequence

import attrs
import structlog
from chameleon_core.api import NetworkResult, OperatorResult, RunContext, RunFile, RunResult
from chameleon_core.plugin_api import StageRef, Task
from chameleon_system.api import ChildProcess

log = structlog.get_logger()

MAX_LISTINGS = 8
"""Largest number of operators that get listings: those that take most of the network's time."""

MIN_SECONDS, TIME_SHARE = 20.0, 0.05
"""Making the listings may take this many seconds, or this share of the run's time if that is
more."""

_POLL_SECONDS = 0.1
_OUTPUT_CHARACTERS = 400


def operators_to_list(
    operators: Sequence[OperatorResult], network: NetworkResult
) -> list[OperatorResult]:
    """The tuned operators that take most of the network's time, at most ``MAX_LISTINGS``."""
    in_place = {kernel.name: kernel.seconds for kernel in network.kernels}

    def seconds(row: OperatorResult) -> float:
        alone = row.tuned_seconds or row.search_seconds or 0.0
        return in_place.get(row.name, alone * Task(**row.task).weight)

    candidates = [
        row
        for row in operators
        if row.config is not None and (not in_place or row.name in in_place)
    ]
    return sorted(candidates, key=seconds, reverse=True)[:MAX_LISTINGS]


def list_winners(run: RunContext, result: RunResult) -> None:
    """Write listings of winners to the run folder, and remove those of earlier winners.

    The run's result is already known. So no failure in this function ends the run, and a request to
    stop ends only the listings.

    Args:
        run: The run.
        result: The run's result.
    """
    operators = operators_to_list(result.operators, result.network)
    if not operators:
        return
    folder = result.folder / RunFile.LISTINGS
    work = {
        "space": attrs.asdict(StageRef.of(run.pipeline.space)),
        "threads": run.runner.threads,
        "winners": [
            {
                "task": dict(row.task),
                "config": row.config,
                "folder": str(folder / Task(**row.task).folder_name),
            }
            for row in operators
        ],
    }
    limit = time.monotonic() + max(MIN_SECONDS, TIME_SHARE * result.seconds)
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        module = "chameleon_tvm._building.listing_process"
        with ChildProcess(module, stdin=subprocess.PIPE) as child:
            if child.stdin is not None:
                child.stdin.write(json.dumps(work).encode())
                child.stdin.close()
            while not (
                child.wait(_POLL_SECONDS) or run.interruption.requested or time.monotonic() > limit
            ):
                pass
            status = child.kill()
    except OSError as error:
        log.warning("listings_not_written", problem=str(error))
        return
    if status and not run.interruption.requested:
        log.warning(
            "listings_incomplete",
            made=len(list(folder.iterdir())),
            output=child.log[-_OUTPUT_CHARACTERS:],
        )
