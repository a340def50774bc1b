"""How long networks take, each in a process of its own, in turns."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.network_result import Footprint
from chameleon_core.stages import Arrays, ComparisonPlan
from chameleon_system.cores import CoreWatch, usable_cores

from chameleon_networks.running.processes import NetworkProcess

log = structlog.get_logger()

STARTS = 3
"""Processes that are started; the median counts."""

_SECONDS = 300.0
"""A process may take so long."""

_USER = """
import json, re, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from load import load
network = load()
inputs = json.load(open(sys.argv[1] + "/manifest.json"))["inputs"]
network(*[np.zeros(one["shape"], one["dtype"]) for one in inputs])
print(time.time())
print(re.search(r"^Pss:\\s+(\\d+)", open("/proc/self/smaps_rollup").read(), re.M)[1])
"""
"""A user's program: zeros in, one answer out."""


def first_answer(folder: Path) -> Footprint:
    """The seconds of a new process to its first answer with a delivered network.

    The files are in memory already, as after a first start. The process has the variables of
    whoever called Chameleon.

    Args:
        folder: the network's, of one shape.

    Returns:
        Its memory has its share of what it has in common with others. Nothing is known if it fails.
    """
    command = [sys.executable, "-c", _USER, str(folder)]
    seconds, memory = [], []
    for _ in range(STARTS):
        started = time.time()
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        if process.returncode:
            log.warning("first_answer_not_timed", problem=process.stderr[-400:])
            return Footprint()
        answered, kilobytes = process.stdout.split()
        seconds.append(float(answered) - started)
        memory.append(1024 * int(kilobytes))
    return Footprint(
        first_answer_seconds=statistics.median(seconds),
        memory_bytes=int(statistics.median(memory)),
        disk_bytes=disk_bytes(folder),
    )


def disk_bytes(folder: Path) -> int:
    """Bytes of the files that loading a network needs."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".tar")
    return sum(file.stat().st_size for file in files if "__pycache__" not in file.parts)


ROUNDS = 15
"""Every network has so many turns."""

TURN_SECONDS = 0.15
"""A turn is at least this long; a network slower than that runs once a turn."""

RETAKES = 3
"""Turns after which the cores turn out not to have been whole ones are repeated so often."""

FEW_ROUNDS, HOPELESS = 3, 8.0
"""Networks this many times slower than the fastest have that few turns."""

DISTURBED = 4.0
"""No disturbance of the machine makes a turn this many times longer. If a network that is compiled
ahead would be hopeless even then, one turn is enough."""

APART = 2.0
"""Turns of one network that differ by more than this factor are not of the same thing: something
was compiled, loaded or swapped in during one of them."""

UNPLANNED = ComparisonPlan()
"""Turns take as long as they take, and nobody wants to know how far they are."""

Rounds = Mapping[str, Sequence[float] | None]
"""The median seconds of each turn of a network, by its name; None for a network that fails."""


def turn_seconds(
    processes: Sequence[NetworkProcess],
    inputs: Arrays,
    *,
    threads: int,
    rounds: int = ROUNDS,
    plan: ComparisonPlan = UNPLANNED,
) -> Rounds:
    """Seconds of one inference of each network in each of its turns.

    The turns are interleaved, so that all meet the same stretches of a disturbed machine, and
    whoever has not the turn is stopped.

    Args:
        processes: the networks.
        inputs: of one inference.
        threads: that the networks compute with.
        rounds: turns of each.
        plan: what they should take at most, and whom to tell how far they are. If time is short
            there are fewer rounds, and at least ``FEW_ROUNDS``.
    """
    begun = last = time.perf_counter()
    longest = 0.0
    times: dict[str, list[float] | None] = {process.name: [] for process in processes}
    for process in processes:
        process.pause()
    with CoreWatch(usable_cores()[:threads]) as watch:
        for done in range(rounds):
            for process in processes:
                turns = times[process.name]
                if turns is None or (done and _hopeless(process, turns, times)):
                    continue
                _add_turn(process, inputs, watch, times)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            if done + 1 >= FEW_ROUNDS and now - begun + longest > plan.seconds:
                rounds = done + 1
            plan.tell("timed", done + 1, rounds)
            if done + 1 >= rounds:
                break
        for process in processes:
            _mend(process, inputs, watch, times, rounds=rounds)
    return times


def _add_turn(
    process: NetworkProcess, inputs: Arrays, watch: CoreWatch, times: dict[str, list[float] | None]
) -> None:
    """One more turn of a network; it has none at all if it fails."""
    turns = times[process.name]
    if turns is None:
        return
    try:
        turns.append(_turn(process, inputs, watch))
    except ChameleonError as error:
        log.warning("network_not_timed", network=process.name, problem=str(error))
        times[process.name] = None
    process.pause()


def _mend(
    process: NetworkProcess,
    inputs: Arrays,
    watch: CoreWatch,
    times: dict[str, list[float] | None],
    *,
    rounds: int,
) -> None:
    """Measure a network again whose usual turn is far from its best one, and take the better times.

    One that was given up after a few slow turns, and that may have been compiling in them, has one
    more now, when all others are done.
    """
    turns = times[process.name]
    if turns and len(turns) < rounds and not process.compiled_ahead:
        _add_turn(process, inputs, watch, times)
        turns = times[process.name]
    if not turns or _at_one(turns):
        return
    log.warning(
        "network_timed_again",
        network=process.name,
        milliseconds=[round(1e3 * seconds, 2) for seconds in sorted(turns)],
    )
    times[process.name] = []
    for _ in range(rounds):
        _add_turn(process, inputs, watch, times)
    again = times[process.name]
    if again is not None and statistics.median(turns) < statistics.median(again):
        times[process.name] = turns


def _at_one(turns: Sequence[float]) -> bool:
    """Whether a network's usual turn is one of what it can do."""
    return statistics.median(turns) <= APART * min(turns)


def _turn(process: NetworkProcess, inputs: Arrays, watch: CoreWatch) -> float:
    """Median seconds of one turn, on whole cores as far as that can be had."""
    for _ in range(RETAKES):
        watch.wait()
        seconds = statistics.median(process.seconds(inputs, about=TURN_SECONDS))
        process.pause()
        if watch.apart():
            break
    return seconds


def _hopeless(process: NetworkProcess, turns: Sequence[float], times: Rounds) -> bool:
    """Whether a network is so slow, in all of its turns alike, that more tell nothing new."""
    fastest = min(min(others) for others in times.values() if others)
    if len(turns) < FEW_ROUNDS:
        return process.compiled_ahead and min(turns) > DISTURBED * HOPELESS * fastest
    return max(turns) <= APART * min(turns) and min(turns) > HOPELESS * fastest


def median_seconds(
    processes: Sequence[NetworkProcess],
    inputs: Arrays,
    *,
    threads: int,
    plan: ComparisonPlan = UNPLANNED,
) -> dict[str, float | None]:
    """Median over the turns of each network, None for one that fails.

    Args:
        processes: the networks.
        inputs: of one inference.
        threads: that the networks compute with.
        plan: as for ``turn_seconds``.
    """
    times = turn_seconds(processes, inputs, threads=threads, plan=plan)
    return {name: statistics.median(turns) if turns else None for name, turns in times.items()}
