"""The last round of a search: kernels that were nearly as fast alone are timed in the network.

A kernel that runs alone has the caches and the memory to itself and its last run left the
activations in the caches. In a network the kernel before wrote its input, on other cores, and its
weights are in no cache. Only the network tells which of two nearly equal kernels is faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import structlog
from chameleon_core.stages import Arrays
from chameleon_system.cores import CoreWatch, usable_cores

from chameleon_networks.compile.kernels import Kernels
from chameleon_networks.running.processes import NetworkProcess

log = structlog.get_logger()

ROUNDS = 4
QUANTILE = 0.1
"""Of the inferences of a round, near the fastest few, which count for kernels alone as well:
disturbances make kernels slower, never faster, and on a busy machine most inferences meet one."""

LEAST_GAIN = 0.015
"""A kernel that was slower alone has to be this much faster in the network: less is noise."""

Seconds = Mapping[str, float]


@attrs.frozen(kw_only=True, eq=False)
class OpenNetwork:
    """A network whose kernels can be timed in it.

    Attributes:
        folder: the compiled network.
        process: runs it.
    """

    folder: Path
    process: NetworkProcess


@attrs.frozen(kw_only=True, eq=False)
class NetworkVariant(OpenNetwork):
    """The network with one choice of kernels.

    Attributes:
        kernels: the choice.
    """

    kernels: Kernels


def choices(kernels: Kernels) -> Iterator[Kernels]:
    """The kernels as they are, then each time all tasks' next alternatives at once.

    Tasks that have no further alternative keep their winner.
    """
    yield kernels
    most = max((len(winner.alternatives) for winner in kernels.winners.values()), default=0)
    for turn in range(most):
        yield kernels.replaced(
            {
                key: winner.alternatives[turn]
                for key, winner in kernels.winners.items()
                if turn < len(winner.alternatives)
            }
        )


def seconds_in_network(
    variants: Sequence[OpenNetwork], inputs: Arrays, *, threads: int
) -> list[Seconds]:
    """The seconds of each variant's tuned kernels by task name, the least of some rounds.

    Args:
        variants: timed in turns, so that all meet the same stretches of a disturbed machine.
        inputs: of one inference.
        threads: that the networks compute with.
    """
    least: list[dict[str, float]] = [defaultdict(lambda: float("inf")) for _ in variants]
    for variant in variants:
        variant.process.pause()
    with CoreWatch(usable_cores()[:threads]) as watch:
        for _ in range(ROUNDS):
            for variant, best in zip(variants, least, strict=True):
                watch.wait()
                profile = variant.process.profile(str(variant.folder), inputs, quantile=QUANTILE)
                for kernel in profile:
                    if kernel.tuned:
                        best[kernel.name] = min(best[kernel.name], kernel.seconds)
                variant.process.pause()
    return list(least)


def fastest(
    variants: Sequence[NetworkVariant], seconds: Sequence[Seconds]
) -> dict[str, tuple[int, ...]]:
    """The configurations, by ``Task.key``, that are faster in the network than the first variant's.

    Args:
        variants: the first one holds the winners.
        seconds: what ``seconds_in_network`` found.
    """
    better = {}
    for key, winner in variants[0].kernels.winners.items():
        name = winner.task.name
        times = [profile.get(name, float("inf")) for profile in seconds]
        best = min(range(len(times)), key=times.__getitem__)
        if times[best] < (1.0 - LEAST_GAIN) * times[0]:
            better[key] = variants[best].kernels.winners[key].config
            log.info(
                "another_kernel_in_the_network",
                task=name,
                microseconds=round(times[best] * 1e6),
                instead_of=round(times[0] * 1e6),
            )
    return better
