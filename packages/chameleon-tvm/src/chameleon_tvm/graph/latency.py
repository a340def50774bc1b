"""How long networks take, each in a process of its own, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays

from chameleon_tvm.graph.processes import NetworkProcess

log = structlog.get_logger()

ROUNDS = 7
TURN_SECONDS = 0.3
"""A turn is at least this long; a network slower than that runs once a turn."""


def median_seconds(processes: Sequence[NetworkProcess], inputs: Arrays) -> dict[str, float | None]:
    """Median seconds of one inference of each network, None for one that fails.

    Their turns are interleaved, so that all meet the same stretches of a disturbed machine.

    Args:
        processes: the networks.
        inputs: of one inference.
    """
    times: dict[str, list[float] | None] = {process.name: [] for process in processes}
    for _ in range(ROUNDS):
        for process in processes:
            found = times[process.name]
            if found is None:
                continue
            try:
                found += process.seconds(inputs, about=TURN_SECONDS)
            except ChameleonError as error:
                log.warning("network_not_timed", network=process.name, problem=str(error))
                times[process.name] = None
    return {name: statistics.median(found) if found else None for name, found in times.items()}
