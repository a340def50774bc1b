"""Times nearly equal kernels inside the network, as the last round of a search.

A kernel that runs alone has the caches and the memory to itself, and its last run left the
activations in the caches. In a network, the previous kernel wrote the activations, perhaps on other
cores, and the weights are in no cache. Only the network shows which of two nearly equal kernels is
faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import structlog
from chameleon_core.plugin_api import Arrays
from chameleon_system.api import CoreWatch, usable_cores

from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._evaluation.processes import NetworkProcess

log = structlog.get_logger()

ROUNDS = 4
QUANTILE = 0.1
"""The quantile of the inferences of a round that counts, near the fastest ones. Disturbances only
make kernels slower, and most inferences on a busy machine are disturbed."""

LEAST_GAIN = 0.015
"""How much faster in the network a kernel must be that was slower alone. Less is noise."""

Seconds = Mapping[str, float]


def choices(kernels: Kernels) -> Iterator[Kernels]:
    """Yield the winners, then each task's first alternative or winner, and so on."""
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


def kernel_seconds_in_networks(
    networks: Sequence[NetworkProcess], inputs: Arrays, *, threads: int
) -> list[Seconds]:
    """The shortest seconds of each task inside each network, over ``ROUNDS`` turns."""
    least: list[dict[str, float]] = [defaultdict(lambda: float("inf")) for _ in networks]
    for network in networks:
        network.pause()
    with CoreWatch(usable_cores()[:threads]) as watch:
        for _ in range(ROUNDS):
            for network, best in zip(networks, least, strict=True):
                watch.wait()
                for kernel in network.profile(inputs, quantile=QUANTILE):
                    if kernel.tuned:
                        best[kernel.name] = min(best[kernel.name], kernel.seconds)
                network.pause()
    return list(least)


def fastest(variants: Sequence[Kernels], seconds: Sequence[Seconds]) -> dict[str, tuple[int, ...]]:
    """The alternatives, by ``Task.key``, that are clearly faster in the network."""
    better = {}
    for key, winner in variants[0].winners.items():
        name = winner.task.name
        times = [profile.get(name, float("inf")) for profile in seconds]
        best = min(range(len(times)), key=times.__getitem__)
        if times[best] < (1.0 - LEAST_GAIN) * times[0]:
            better[key] = variants[best].winners[key].config
            log.info(
                "kernel_replaced",
                task=name,
                microseconds=round(times[best] * 1e6),
                instead_of=round(times[0] * 1e6),
            )
    return better
