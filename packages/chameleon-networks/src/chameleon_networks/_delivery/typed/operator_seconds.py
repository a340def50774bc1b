"""The seconds of each operator of a network in each dtype, timed alone and inside networks.

A kernel that runs alone finds its weights in the caches. In a network, the weights of other
operators have evicted these weights. So the number of bytes of the weights counts as well. Compared
with a convolution's filter in float32, an 8-bit filter has a quarter of the bytes. A filter that
was transformed for Winograd's algorithm has four times the bytes. Dtypes are ranked by the times
inside networks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32

from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._delivery.in_network import Seconds
from chameleon_networks._precision.typed_networks import TypedNetwork, TypedNetworks, Types
from chameleon_networks._quantize.eligibility import dtypes_with_same_data


@attrs.frozen(kw_only=True, eq=False)
class BuiltNetwork:
    """A compiled network with chosen dtypes.

    Attributes:
        types: The dtypes of the fusion groups that are not in float32, by their index in the
            network in float32.
        tasks: The task name of each fusion group with a tuned kernel, by index.
        folder: The folder of the network.
    """

    types: Types
    tasks: Mapping[int, str]
    folder: Path

    @classmethod
    def of(
        cls, types: Types, network: TypedNetwork, kernels: Kernels, folder: Path
    ) -> BuiltNetwork:
        """Describe the compiled network of a folder.

        Args:
            types: The dtypes of its fusion groups.
            network: The prepared network with these dtypes.
            kernels: The kernels that the network was compiled with.
            folder: The folder of the network.
        """
        tasks = {
            index: winner.task.name
            for index in range(len(network.replacements))
            if (fusion := network.fusion(index)) is not None
            and (winner := kernels.like(fusion)) is not None
        }
        return cls(types=types, tasks=tasks, folder=folder)

    def seconds(self, seconds: Seconds) -> dict[int, float]:
        """The seconds of each fusion group, from the seconds of each task in this network.

        Args:
            seconds: Seconds of all calls of each task in one inference, by the task's name.

        Returns:
            The seconds by the index of the fusion group. If several operators share a task, each
            gets the task's seconds divided by their number. Operators without a tuned kernel are
            left out.
        """
        counts = Counter(self.tasks.values())
        means = {task: total / counts[task] for task, total in seconds.items() if task in counts}
        return {index: means[task] for index, task in self.tasks.items() if task in means}


class OperatorSeconds:
    """The seconds of each fusion group in each dtype.

    The times are those of kernels that ran alone, until ``observe`` replaces them by times inside
    networks.

    Args:
        networks: The object that makes networks with reduced dtypes.
        kinds: The dtypes other than float32.
        kernels: The fastest kernel of each tuned operator in each dtype.

    Attributes:
        kinds: All dtypes, float32 first.
        times: Array of shape (operators, dtypes); infinite where no time was measured. An operator
            without a time in float32 has 0 there and stays in float32.
    """

    def __init__(self, networks: TypedNetworks, kinds: Sequence[str], kernels: Kernels) -> None:
        self.kinds = (FLOAT32, *kinds)
        self._seen: dict[tuple[int, int], float] = {}
        self.times = np.full((len(networks.fusions), len(self.kinds)), np.inf)
        for index, fusion in enumerate(networks.fusions):
            winner = kernels.like(fusion)
            alone = None if winner is None else winner.seconds
            self.times[index, 0] = 0.0 if alone is None else alone
        for column, kind in enumerate(kinds, start=1):
            network = networks.uniform(kind)
            for index in networks.reducible(kind):
                here = network.fusion(index)
                winner = None if here is None else kernels.like(here)
                if winner is not None and winner.seconds is not None and self.times[index, 0] > 0.0:
                    self.times[index, column] = winner.seconds

    def uniform(self, kind: str) -> Types:
        """The dtype of each operator if the whole network has dtype ``kind``, as far as possible.

        Operators without a measured time in this dtype stay in float32. ``int7`` is a variant of
        int8: for ``int7``, an operator that has a time in int8 but none in int7 gets int8.
        """
        return {
            int(index): variant
            for variant in dtypes_with_same_data(kind)
            for index in np.flatnonzero(np.isfinite(self.times[:, self.kinds.index(variant)]))
        }

    def observe(self, networks: Sequence[BuiltNetwork], profiles: Sequence[Seconds]) -> bool:
        """Replace the times of kernels that ran alone by times that were measured inside networks.

        Args:
            networks: Compiled networks. If several have an operator in the same dtype, the first
                counts.
            profiles: For each network, the seconds of its tasks, as for ``BuiltNetwork.seconds``.

        Returns:
            Whether the times were replaced. Nothing is replaced if ``times`` has a time for some
            operator and dtype that was not measured inside a network. Then times of both kinds
            would be compared, but a kernel that runs alone seems faster than inside a network.
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
