"""The last round of a search: what was nearly as fast alone is timed inside the network.

Alone, a kernel has the caches and the memory to itself and meets its activations where the last
run left them. In the network its input comes from the kernel before, on other cores, and what it
reads next is in nobody's cache. Which of two nearly equal kernels is faster there, only the
network tells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import structlog
from chameleon_core.stages import Arrays
from chameleon_system.cores import CoreWatch, usable_cores

from chameleon_tvm.graph.kernels import Kernels
from chameleon_tvm.graph.processes import NetworkProcess

log = structlog.get_logger()

ROUNDS = 4
LEAST_GAIN = 0.015
"""A kernel that was slower alone has to be this much faster in the network: less is noise."""

Seconds = Mapping[str, float]


@attrs.frozen(kw_only=True, eq=False)
class Trial:
    """The network with one choice of kernels.

    Attributes:
        kernels: the choice.
        folder: the compiled network.
        process: runs it.
    """

    kernels: Kernels
    folder: Path
    process: NetworkProcess


def choices(kernels: Kernels) -> Iterator[Kernels]:
    """The kernels as they are, then each time all tasks' next alternatives at once.

    Tasks that have no further alternative keep their winner.
    """
    yield kernels
    most = max((len(winner.alternatives) for winner in kernels.winners.values()), default=0)
    for place in range(most):
        yield kernels.replaced(
            {
                key: winner.alternatives[place]
                for key, winner in kernels.winners.items()
                if place < len(winner.alternatives)
            }
        )


def seconds_in_place(trials: Sequence[Trial], inputs: Arrays, *, threads: int) -> list[Seconds]:
    """Of each trial the seconds of its tuned kernels by task name, the least of some rounds.

    Args:
        trials: timed in turns, so that all meet the same stretches of a disturbed machine.
        inputs: of one inference.
        threads: that the networks compute with.
    """
    found: list[dict[str, float]] = [defaultdict(lambda: float("inf")) for _ in trials]
    for trial in trials:
        trial.process.pause()
    with CoreWatch(usable_cores()[:threads]) as watch:
        for _ in range(ROUNDS):
            for trial, best in zip(trials, found, strict=True):
                watch.settle()
                for kernel in trial.process.profile(str(trial.folder), inputs):
                    if kernel["tuned"]:
                        best[kernel["name"]] = min(best[kernel["name"]], kernel["seconds"])
                trial.process.pause()
    return list(found)


def fastest(trials: Sequence[Trial], seconds: Sequence[Seconds]) -> dict[str, tuple[int, ...]]:
    """The configurations, by ``Task.key``, that are faster in the network than the first trial's.

    Args:
        trials: the first one holds the winners.
        seconds: what ``seconds_in_place`` found.
    """
    better = {}
    for key, winner in trials[0].kernels.winners.items():
        name = winner.task.name
        times = [one.get(name, float("inf")) for one in seconds]
        place = min(range(len(times)), key=times.__getitem__)
        if times[place] < (1.0 - LEAST_GAIN) * times[0]:
            better[key] = trials[place].kernels.winners[key].config
            log.info(
                "another_kernel_in_the_network",
                task=name,
                microseconds=round(times[place] * 1e6),
                instead_of=round(times[0] * 1e6),
            )
    return better
