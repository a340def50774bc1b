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
from chameleon_networks._delivery.kernel_choice import Seconds
from chameleon_networks._precision.typed_networks import TypedNetwork, TypedNetworks, Types
from chameleon_networks._quantize.eligibility import dtypes_with_same_data


@attrs.frozen(kw_only=True, eq=False)
class CompiledCandidate:
    """A compiled network with chosen dtypes.

    Attributes:
        types: The dtypes of the fusion groups that are not in float32, by their index in the
            network in float32.
        tasks: The task name of each fusion group with a tuned kernel, by index.
    """

    types: Types
    tasks: Mapping[int, str]
    folder: Path

    @classmethod
    def of(
        cls, types: Types, network: TypedNetwork, kernels: Kernels, folder: Path
    ) -> CompiledCandidate:
        """Describe the compiled network of a folder."""
        tasks = {
            index: winner.task.name
            for index in range(len(network.replacements))
            if (fusion := network.fusion(index)) is not None
            and (winner := kernels.like(fusion)) is not None
        }
        return cls(types=types, tasks=tasks, folder=folder)

    def seconds(self, seconds: Seconds) -> dict[int, float]:
        """The seconds by operator index; operators that share a task get equal parts."""
        counts = Counter(self.tasks.values())
        means = {task: total / counts[task] for task, total in seconds.items() if task in counts}
        return {index: means[task] for index, task in self.tasks.items() if task in means}


class OperatorSeconds:
    """The seconds of each fusion group in each dtype, alone or inside networks.

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
        """The dtypes if all operators with a time in ``kind`` have it; int7 falls back to int8."""
        return {
            int(index): variant
            for variant in dtypes_with_same_data(kind)
            for index in np.flatnonzero(np.isfinite(self.times[:, self.kinds.index(variant)]))
        }

    def observe(self, networks: Sequence[CompiledCandidate], profiles: Sequence[Seconds]) -> bool:
        """Use times inside networks if all are known, and return whether they are."""
        here: dict[tuple[int, int], float] = {}
        for network, tasks in zip(networks, profiles, strict=True):
            for index, seconds in network.seconds(tasks).items():
                column = self.kinds.index(network.types.get(index, FLOAT32))
                here.setdefault((index, column), seconds)
        seen = self._seen | here
        known = zip(*np.nonzero((self.times > 0.0) & np.isfinite(self.times)), strict=True)
        wanted = [(int(index), int(column)) for index, column in known]
        # A kernel that runs alone seems faster than inside a network, so times are never mixed.
        if not all(cell in seen for cell in wanted):
            return False
        for cell in wanted:
            self.times[cell] = seen[cell]
        self._seen = seen
        return True
