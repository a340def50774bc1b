"""What each operator of a network takes in each type: timed alone, and in whole networks.

Alone a kernel finds its weights in the caches, where its last run left them. In a network they come
from wherever all the other operators' weights have driven them, so that types differ in the bytes
they read as well: the filter that Winograd's algorithm has transformed is four times as large as
the filter, and one in eight bits a quarter of it. Types are ranked by what holds in networks.
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
        folder: where it is.
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
            place: winner.task.name
            for place in range(len(network.places))
            if (chain := network.chain(place)) is not None
            and (winner := kernels.like(chain)) is not None
        }
        return cls(types=types, tasks=tasks, folder=folder)

    def seconds(self, told: Seconds) -> dict[int, float]:
        """Seconds of each chain, by its place in the network in float32.

        Args:
            told: seconds of all calls of each task in one inference, by the task's name.

        Returns:
            Of chains that are computed by one task the mean; none of those without a tuned kernel.
        """
        counts = Counter(self.tasks.values())
        return {
            place: told[name] / counts[name] for place, name in self.tasks.items() if name in told
        }


class OperatorSeconds:
    """The seconds of each chain in each type: as measured alone until it is seen in a network.

    Args:
        networks: of the types.
        kinds: types beside float32.
        kernels: the winners, those of other types among them.

    Attributes:
        kinds: all types, float32 first.
        found: of shape (chains, types); infinite where not measured. A chain that was not measured
            in float32 has 0 and stays in it: nothing is known to be faster.
    """

    def __init__(self, networks: TypedNetworks, kinds: Sequence[str], kernels: Kernels) -> None:
        self.kinds = (FLOAT32, *kinds)
        self._seen: dict[tuple[int, int], float] = {}
        self.found = np.full((len(networks.chains), len(self.kinds)), np.inf)
        for place, chain in enumerate(networks.chains):
            winner = kernels.like(chain)
            alone = None if winner is None else winner.seconds
            self.found[place, 0] = 0.0 if alone is None else alone
        for column, kind in enumerate(kinds, start=1):
            made = networks.uniform(kind)
            for place in networks.able(kind):
                here = made.chain(place)
                winner = None if here is None else kernels.like(here)
                if winner is not None and winner.seconds is not None and self.found[place, 0] > 0.0:
                    self.found[place, column] = winner.seconds

    def uniform(self, kind: str) -> Types:
        """The types of a network with each chain in one type that was measured in it.

        Of seven bits those of eight where chains were not measured in fewer.
        """
        return {
            int(place): one
            for one in reading_as(kind)
            for place in np.flatnonzero(np.isfinite(self.found[:, self.kinds.index(one)]))
        }

    def observe(self, networks: Sequence[BuiltNetwork], told: Sequence[Seconds]) -> bool:
        """Take over what chains took in networks, in the types that they have there.

        Args:
            networks: compiled; where one type of a chain is in several, the first one counts.
            told: of each, as for ``BuiltNetwork.seconds``.

        Returns:
            Whether all times are of networks now. Where any is known of a chain alone, nothing is
            taken over: what is timed alone seems faster than what is not.
        """
        here: dict[tuple[int, int], float] = {}
        for network, tasks in zip(networks, told, strict=True):
            for place, seconds in network.seconds(tasks).items():
                column = self.kinds.index(network.types.get(place, FLOAT32))
                here.setdefault((place, column), seconds)
        seen = self._seen | here
        known = zip(*np.nonzero((self.found > 0.0) & np.isfinite(self.found)), strict=True)
        wanted = [(int(place), int(column)) for place, column in known]
        if not all(one in seen for one in wanted):
            return False
        for one in wanted:
            self.found[one] = seen[one]
        self._seen = seen
        return True


__all__ = ["BuiltNetwork", "OperatorSeconds"]
