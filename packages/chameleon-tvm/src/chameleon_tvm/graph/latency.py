"""How long networks take, each in a process of its own, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays

from chameleon_tvm.graph.processes import NetworkProcess

log = structlog.get_logger()

ROUNDS = 7
TURN_SECONDS = 0.3
"""A turn is at least this long; a network slower than that runs once a turn."""

REST_SECONDS = 0.02
"""Between turns, so that whatever placed two virtual cores on one physical core can undo it."""

FEW_ROUNDS, HOPELESS = 2, 8.0
"""Networks this many times slower than the fastest have that few turns."""

Rounds = Mapping[str, Sequence[float] | None]
"""Of each network the median seconds of each of its turns; None for one that fails."""


def turn_seconds(
    processes: Sequence[NetworkProcess], inputs: Arrays, *, rounds: int = ROUNDS
) -> Rounds:
    """Seconds of one inference of each network in each of its turns.

    The turns are interleaved, so that all meet the same stretches of a disturbed machine, and
    whoever has not the turn is stopped.

    Args:
        processes: the networks.
        inputs: of one inference.
        rounds: turns of each.
    """
    times: dict[str, list[float] | None] = {process.name: [] for process in processes}
    for process in processes:
        process.pause()
    for done in range(rounds):
        for process in processes:
            found = times[process.name]
            if found is None or (done >= FEW_ROUNDS and _hopeless(found, times)):
                continue
            time.sleep(REST_SECONDS)
            try:
                found.append(statistics.median(process.seconds(inputs, about=TURN_SECONDS)))
            except ChameleonError as error:
                log.warning("network_not_timed", network=process.name, problem=str(error))
                times[process.name] = None
            process.pause()
    return times


def _hopeless(found: Sequence[float], times: Rounds) -> bool:
    """Whether a network is so slow that more turns would tell nothing new."""
    fastest = min(min(others) for others in times.values() if others)
    return min(found) > HOPELESS * fastest


def median_seconds(processes: Sequence[NetworkProcess], inputs: Arrays) -> dict[str, float | None]:
    """Median over the turns of each network, None for one that fails.

    Args:
        processes: the networks.
        inputs: of one inference.
    """
    times = turn_seconds(processes, inputs)
    return {name: statistics.median(found) if found else None for name, found in times.items()}
