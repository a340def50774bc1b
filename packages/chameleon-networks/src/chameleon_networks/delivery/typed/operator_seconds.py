"""The seconds of each operator of a network in each type: timed alone, and in whole networks.

Alone a kernel finds its weights in the caches. In a network the weights of all other operators have
driven them out, so that the bytes that a type reads count as well. The filter that Winograd's
algorithm has transformed is four times as large as the filter, and one in eight bits a quarter of
it. Types are ranked by what holds in networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from chameleon_tvm.types import FLOAT32

from chameleon_networks.compile.kernels import Kernels
from chameleon_networks.delivery.in_network import Seconds
from chameleon_networks.precision.networks import TypedNetwork, TypedNetworks, Types
from chameleon_networks.quantize.eligibility import reading_as


@attrs.frozen(kw_only=True, eq=False)
class BuiltNetwork:
    """A network with types, compiled.

    Attributes:
        types: of its chains that are not in float32, by their places in the network in float32.
        tasks: names of the tasks that chains with tuned kernels are occurrences of, by place.
        folder: its folder.
    """

    types: Types
    tasks: Mapping[int, str]
    folder: Path

    @classmethod
    def of(
        cls, types: Types, network: TypedNetwork, kernels: Kernels, folder: Path
    ) -> BuiltNetwork:
        """A network of a folder.

        Args:
            types: of its chains.
            network: it, prepared.
            kernels: that it was compiled with.
            folder: where it is.
        """
        tasks = {
            index: winner.task.name
            for index in range(len(network.places))
            if (chain := network.chain(index)) is not None
            and (winner := kernels.like(chain)) is not None
        }
        return cls(types=types, tasks=tasks, folder=folder)

    def seconds(self, seconds: Seconds) -> dict[int, float]:
        """Seconds of each chain, by its place in the network in float32.

        Args:
            seconds: seconds of all calls of each task in one inference, by the task's name.

        Returns:
            Chains that share a task get the mean; chains without a tuned kernel are left out.
        """
        counts = Counter(self.tasks.values())
        means = {task: total / counts[task] for task, total in seconds.items() if task in counts}
        return {index: means[task] for index, task in self.tasks.items() if task in means}


class OperatorSeconds:
    """The seconds of each chain in each type: as measured alone until it is seen in a network.

    Args:
        networks: of the types.
        kinds: types beside float32.
        kernels: the winners, those of other types among them.

    Attributes:
        kinds: all types, float32 first.
        times: of shape (chains, types); infinite if not measured. A chain that was not measured in
            float32 has 0 and stays in it: nothing is known to be faster.
    """

    def __init__(self, networks: TypedNetworks, kinds: Sequence[str], kernels: Kernels) -> None:
        self.kinds = (FLOAT32, *kinds)
        self._seen: dict[tuple[int, int], float] = {}
        self.times = np.full((len(networks.chains), len(self.kinds)), np.inf)
        for index, chain in enumerate(networks.chains):
            winner = kernels.like(chain)
            alone = None if winner is None else winner.seconds
            self.times[index, 0] = 0.0 if alone is None else alone
        for column, kind in enumerate(kinds, start=1):
            network = networks.uniform(kind)
            for index in networks.able(kind):
                here = network.chain(index)
                winner = None if here is None else kernels.like(here)
                if winner is not None and winner.seconds is not None and self.times[index, 0] > 0.0:
                    self.times[index, column] = winner.seconds

    def uniform(self, kind: str) -> Types:
        """The types of a network with each chain in one type that was measured in it.

        In seven bits, chains that were not measured in fewer have eight.
        """
        return {
            int(index): variant
            for variant in reading_as(kind)
            for index in np.flatnonzero(np.isfinite(self.times[:, self.kinds.index(variant)]))
        }

    def observe(self, networks: Sequence[BuiltNetwork], profiles: Sequence[Seconds]) -> bool:
        """Take over what chains took in networks, in the types that they have there.

        Args:
            networks: compiled; if one type of a chain is in several, the first one counts.
            profiles: of each, as for ``BuiltNetwork.seconds``.

        Returns:
            Whether all times are of networks now. If a time of a chain alone would remain, nothing
            is taken over: a kernel timed alone seems faster.
        """
        here: dict[tuple[int, int], float] = {}
        for network, tasks in zip(networks, profiles, strict=True):
            for index, seconds in network.seconds(tasks).items():
                column = self.kinds.index(network.types.get(index, FLOAT32))
                here.setdefault((index, column), seconds)
        seen = self._seen | here
        known = zip(*np.nonzero((self.times > 0.0) & np.isfinite(self.times)), strict=True)
        wanted = [(int(index), int(column)) for index, column in known]
        if not all(cell in seen for cell in wanted):
            return False
        for cell in wanted:
            self.times[cell] = seen[cell]
        self._seen = seen
        return True


__all__ = ["BuiltNetwork", "OperatorSeconds"]
