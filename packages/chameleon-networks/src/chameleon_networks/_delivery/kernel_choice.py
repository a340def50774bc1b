"""Chooses between kernels of a run when its network is delivered.

Nearly equal kernels are timed inside the network, as the last round of a search. A kernel that runs
alone has the caches and the memory to itself, and its last run left the activations in the caches.
In a network, the previous kernel wrote the activations, perhaps on other cores, and the weights are
in no cache. Only the network shows which of two nearly equal kernels is faster.

The buckets of a network have the same weights. The weight file holds them once for each order in
which kernels read them, and each order takes as much room as the weights. So kernels of several
buckets read weights in the same order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

import attrs
import numpy as np
import structlog
from chameleon_core.plugin_api import Arrays, Delivery, InvalidConfigurationError, SpaceProvider
from chameleon_system.api import CoreWatch, usable_cores
from chameleon_tvm.api import TVMBuilder

from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._compile.sequence.repacking import digest_of
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


MOST_SLOWER = 1.25
"""The time of a kernel that may replace a faster one, over the time of the faster one."""

REASON = "it reads weights in the same order as kernels of other buckets"
"""Says why an unmeasured kernel replaces a measured one."""


def with_shared_packings(
    winners: Sequence[Delivery.Winner], space: SpaceProvider
) -> list[Delivery.Winner]:
    """Replace kernels of some tasks, so that tasks with equal weights share their packed weights.

    Tasks have equal weights if the weights' operator, shape and dtype are equal. The order that
    most of these tasks have replaces other orders, unless a kernel gets slower than
    ``MOST_SLOWER``. The rest of the tasks then share the next order, and so on.
    """
    groups: dict[Hashable, list[_Task]] = defaultdict(list)
    for winner in winners:
        builder = space.builder(winner.task, threads=1)
        if isinstance(builder, TVMBuilder) and builder.operator.constants:
            task = _Task(winner, builder, space)
            groups[task.weights].append(task)
    replaced: dict[str, Delivery.Winner] = {}
    for tasks in groups.values():
        rest = tasks
        while rest:
            digests = Counter(task.digest(task.winner) for task in rest)
            [(digest, _)] = digests.most_common(1)
            chosen = {task.winner.task.key: task.with_digest(digest) for task in rest}
            rest = [task for task in rest if chosen[task.winner.task.key] is None]
            replaced |= {key: winner for key, winner in chosen.items() if winner is not None}
    return [replaced.get(winner.task.key, winner) for winner in winners]


class _Task:
    """A task whose kernels read weights, and the configurations that it may have."""

    def __init__(self, winner: Delivery.Winner, builder: TVMBuilder, space: SpaceProvider) -> None:
        self.winner = winner
        self._builder = builder
        self._space = space.design_space(winner.task)
        self._place = min(builder.operator.constants)
        weights = builder.inputs[self._place]
        self.weights = winner.task.operator, weights.shape, weights.dtype
        inputs = list(builder.inputs)
        # Equal numbers for all tasks tell orders apart.
        numbers = np.random.default_rng(0).integers(1, 64, weights.shape)
        inputs[self._place] = numbers.astype(weights.dtype)
        builder.use(inputs)

    def digest(self, winner: Delivery.Winner) -> bytes | None:
        """A digest of the order of packed weights; None if the kernel cannot be built."""
        try:
            return digest_of(self._builder.packed(winner.config)[0])
        except InvalidConfigurationError:
            return None

    def with_digest(self, digest: bytes | None) -> Delivery.Winner | None:
        """The fastest kernel that packs weights in an order; None if it is too slow."""
        for slower, candidate in sorted(self._candidates(), key=lambda pair: pair[0]):
            if slower > MOST_SLOWER:
                break
            if self.digest(candidate) == digest:
                if candidate is not self.winner:
                    log.info("kernel_shares_weights", task=candidate.task.name, slower=slower)
                return candidate
        return None

    def _candidates(self) -> Iterator[tuple[float, Delivery.Winner]]:
        """Kernels, each with its measured or estimated time over that of the fastest one."""
        winner = self.winner
        yield 1.0, winner
        for config in winner.alternatives:
            yield 1.0, attrs.evolve(winner, config=config, alternatives=())
        for other in winner.others:
            if other.seconds is not None and winner.seconds:
                guesses = (winner.config, *winner.guesses)
                yield other.seconds / winner.seconds, attrs.evolve(other, guesses=guesses)
        rows = self._space.first_guesses
        if self._space.guessed_cost is None or len(rows) == 0:
            return
        known = np.vstack([np.array(winner.config, rows.dtype), rows])
        costs = self._space.guessed_cost(self._space.values(known))
        for cost, config in zip((costs[1:] / costs[0]).tolist(), rows.tolist(), strict=True):
            further = (winner.config, *winner.guesses)
            yield (
                max(1.0, cost),
                Delivery.Winner(task=winner.task, config=tuple(config), guesses=further),
            )
