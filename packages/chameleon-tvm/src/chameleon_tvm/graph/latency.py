"""How long networks take, each in a process of its own, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import structlog
from chameleon_core.cores import CoreWatch, usable_cores
from chameleon_core.errors import ChameleonError
from chameleon_core.stages import Arrays

from chameleon_tvm.graph.processes import NetworkProcess

log = structlog.get_logger()

ROUNDS = 15
TURN_SECONDS = 0.15
"""A turn is at least this long; a network slower than that runs once a turn."""

RETAKES = 3
"""Turns after which the cores turn out not to have been whole ones are repeated so often."""

FEW_ROUNDS, HOPELESS = 2, 8.0
"""Networks this many times slower than the fastest have that few turns."""

Rounds = Mapping[str, Sequence[float] | None]
"""Of each network the median seconds of each of its turns; None for one that fails."""


def turn_seconds(
    processes: Sequence[NetworkProcess], inputs: Arrays, *, threads: int, rounds: int = ROUNDS
) -> Rounds:
    """Seconds of one inference of each network in each of its turns.

    The turns are interleaved, so that all meet the same stretches of a disturbed machine, and
    whoever has not the turn is stopped.

    Args:
        processes: the networks.
        inputs: of one inference.
        threads: that the networks compute with.
        rounds: turns of each.
    """
    times: dict[str, list[float] | None] = {process.name: [] for process in processes}
    for process in processes:
        process.pause()
    watch = CoreWatch(usable_cores()[:threads])
    for done in range(rounds):
        for process in processes:
            found = times[process.name]
            if found is None or (done >= FEW_ROUNDS and _hopeless(found, times)):
                continue
            try:
                found.append(_turn(process, inputs, watch))
            except ChameleonError as error:
                log.warning("network_not_timed", network=process.name, problem=str(error))
                times[process.name] = None
            process.pause()
    watch.close()
    return times


def _turn(process: NetworkProcess, inputs: Arrays, watch: CoreWatch) -> float:
    """Median seconds of one turn, on whole cores as far as that can be had."""
    for _ in range(RETAKES):
        watch.settle()
        seconds = statistics.median(process.seconds(inputs, about=TURN_SECONDS))
        process.pause()
        if watch.apart():
            break
    return seconds


def _hopeless(found: Sequence[float], times: Rounds) -> bool:
    """Whether a network is so slow that more turns would tell nothing new."""
    fastest = min(min(others) for others in times.values() if others)
    return min(found) > HOPELESS * fastest


def median_seconds(
    processes: Sequence[NetworkProcess], inputs: Arrays, *, threads: int
) -> dict[str, float | None]:
    """Median over the turns of each network, None for one that fails.

    Args:
        processes: the networks.
        inputs: of one inference.
        threads: that the networks compute with.
    """
    times = turn_seconds(processes, inputs, threads=threads)
    return {name: statistics.median(found) if found else None for name, found in times.items()}
