"""Times networks in turns, each in a separate process."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import structlog
from chameleon_core.api import NetworkResult
from chameleon_core.plugin_api import Arrays, ChameleonError, ComparisonPlan
from chameleon_system.api import CoreWatch, describe_status, usable_cores

from chameleon_networks._evaluation.processes import NetworkProcess

log = structlog.get_logger()

STARTS = 3
"""Number of processes that are started to take the median."""

_SECONDS = 300.0
"""Limit for one process."""

_USER = """
import re, sys, time
sys.path.insert(0, sys.argv[1])
import numpy as np
from load import load
network = load()
inputs = [np.zeros(one.shape, one.dtype) for one in network.inputs]
network(*inputs, **({"state": network.new_state()} if network.state else {}))
print(time.time())
print(re.search(r"^Pss:\\s+(\\d+)", open("/proc/self/smaps_rollup").read(), re.M)[1])
"""
"""A program as a user would write it, which runs one inference with zeros as inputs."""


def measure_footprint(folder: Path) -> NetworkResult.Footprint:
    """A new process's median seconds to its first output, its memory (Pss), and disk bytes."""
    command = [sys.executable, "-c", _USER, str(folder)]
    seconds, memory = [], []
    for _ in range(STARTS):
        started = time.time()
        try:
            process = subprocess.run(
                command, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            log.warning("first_answer_not_timed", problem=f"no answer within {_SECONDS:.0f} s")
            return NetworkResult.Footprint()
        if process.returncode:
            problem = f"{describe_status(process.returncode)} {process.stderr[-400:]}"
            log.warning("first_answer_not_timed", problem=problem.rstrip())
            return NetworkResult.Footprint()
        answered, kilobytes = process.stdout.split()
        seconds.append(float(answered) - started)
        memory.append(1024 * int(kilobytes))
    return NetworkResult.Footprint(
        first_answer_seconds=statistics.median(seconds),
        memory_bytes=int(statistics.median(memory)),
        disk_bytes=disk_bytes(folder),
    )


def disk_bytes(folder: Path) -> int:
    """The size in bytes of a network's files, without files that loading does not need."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".tar")
    return sum(file.stat().st_size for file in files if "__pycache__" not in file.parts)


ROUNDS = 15
"""Number of turns of each network."""

TURN_SECONDS = 0.15
"""Least duration of a turn. A network that takes longer runs once a turn."""

MOST_ATTEMPTS = 3
"""Most attempts at a turn, if other processes used the cores meanwhile."""

LEAST_ROUNDS, TOO_SLOW = 3, 8.0
"""Networks that are ``TOO_SLOW`` times slower than the fastest get only ``LEAST_ROUNDS`` turns."""

DISTURBED = 4.0
"""No disturbance of the machine makes a turn this many times longer. A delivered network that would
be hopeless even without such a disturbance gets one turn only, at the first attempt."""

UNSTABLE = 2.0
"""Turns of one network that differ by more than this factor did different work: in one of them,
something was compiled, loaded or swapped in."""

NO_LIMITS = ComparisonPlan()
"""A plan without a time limit and without reports of progress."""

Times = dict[str, list[float] | None]
Rounds = Mapping[str, Sequence[float] | None]
"""The median seconds of each turn of a network, by its name; None for a network that fails."""


def time_in_turns(
    processes: Sequence[NetworkProcess],
    inputs: Arrays,
    *,
    threads: int,
    rounds: int = ROUNDS,
    plan: ComparisonPlan = NO_LIMITS,
) -> Rounds:
    """The median seconds of each turn of networks, which alternate; None after a failure."""
    start_time = last = time.perf_counter()
    longest = 0.0
    times: Times = {process.name: [] for process in processes}
    for process in processes:
        process.pause()
    with CoreWatch(usable_cores()[:threads]) as watch:
        timing = _Timing(inputs, watch, times)
        for done in range(rounds):
            for process in processes:
                turns = times[process.name]
                if turns is None or (done and _hopeless(process, turns, times)):
                    continue
                timing.add_turn(process)
            now = time.perf_counter()
            longest, last = max(longest, now - last), now
            if done + 1 >= LEAST_ROUNDS and now - start_time + longest > plan.seconds:
                rounds = done + 1
            plan.tell("timed", done + 1, rounds)
            if done + 1 >= rounds:
                break
        for process in processes:
            timing.time_again(process, rounds)
    return times


@attrs.frozen(eq=False)
class _Timing:
    """Times turns of networks.

    Attributes:
        watch: The watch over the cores that the networks compute on.
        times: The median seconds of each turn so far, by the network's name.
    """

    inputs: Arrays
    watch: CoreWatch
    times: Times

    def add_turn(self, process: NetworkProcess) -> None:
        """Time one more turn of a network, whose times become None if it fails."""
        turns = self.times[process.name]
        if turns is None:
            return
        try:
            turns.append(self._turn(process))
        except ChameleonError as error:
            log.warning("network_not_timed", network=process.name, problem=str(error))
            self.times[process.name] = None
        process.pause()

    def _turn(self, process: NetworkProcess) -> float:
        """Median seconds of one turn's inferences, repeated if other processes used its cores."""
        for _ in range(MOST_ATTEMPTS):
            self.watch.wait()
            seconds = statistics.median(process.seconds(self.inputs, about=TURN_SECONDS))
            process.pause()
            if self.watch.cores_are_separate() or _far_behind(process, seconds, self.times):
                break
        return seconds

    def time_again(self, process: NetworkProcess, rounds: int) -> None:
        """Time a network again if its median is far from its best turn."""
        turns = self.times[process.name]
        if turns and len(turns) < rounds and not process.is_precompiled:
            self.add_turn(process)
            turns = self.times[process.name]
        if not turns or statistics.median(turns) <= UNSTABLE * min(turns):
            return
        log.warning(
            "network_timed_again",
            network=process.name,
            milliseconds=[round(1e3 * seconds, 2) for seconds in sorted(turns)],
        )
        self.times[process.name] = []
        for _ in range(rounds):
            self.add_turn(process)
        again = self.times[process.name]
        if again is not None and statistics.median(turns) < statistics.median(again):
            self.times[process.name] = turns


def _hopeless(process: NetworkProcess, turns: Sequence[float], times: Rounds) -> bool:
    """Whether a network is so much slower than the fastest that more turns are useless."""
    if len(turns) < LEAST_ROUNDS:
        return _far_behind(process, min(turns), times)
    return max(turns) <= UNSTABLE * min(turns) and min(turns) > TOO_SLOW * _fastest(times)


def _far_behind(process: NetworkProcess, seconds: float, times: Rounds) -> bool:
    """Whether a network that compiles nothing in its turns is hopeless after one of them."""
    return process.is_precompiled and seconds > DISTURBED * TOO_SLOW * _fastest(times)


def _fastest(times: Rounds) -> float:
    return min((min(turns) for turns in times.values() if turns), default=math.inf)


def median_seconds(
    processes: Sequence[NetworkProcess], inputs: Arrays, *, threads: int
) -> dict[str, float | None]:
    """The median seconds over the turns of each network, by name; None for one that fails."""
    return medians_of(time_in_turns(processes, inputs, threads=threads))


def medians_of(turns: Rounds) -> dict[str, float | None]:
    """The median over the turns of each network, by name; None for one that failed."""
    return {name: statistics.median(own) if own else None for name, own in turns.items()}
