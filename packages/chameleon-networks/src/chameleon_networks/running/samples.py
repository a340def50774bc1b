"""Inputs of a network, and the parts of its outputs that belong to unpadded inputs."""

from __future__ import annotations

from collections.abc import Callable

import attrs
from chameleon_core.stages import Arrays

Cut = tuple[int, int, int]
"""Number of an output, number of one of its axes, and the extent to keep along that axis."""


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """The inputs of one inference, with which a network is checked or calibrated.

    Attributes:
        inputs: One array for each input, with the shapes that the network is compiled for.
        cuts: If the inputs were padded, the parts of the outputs that belong to the unpadded
            inputs. Outputs that no cut names are kept whole.
    """

    inputs: Arrays
    cuts: tuple[Cut, ...] = ()

    def cut(self, outputs: Arrays) -> Arrays:
        """Cut the outputs to the part that belongs to the unpadded inputs.

        Args:
            outputs: The outputs of the network for ``inputs``.
        """
        parts = list(outputs)
        for number, axis, extent in self.cuts:
            parts[number] = parts[number][(slice(None),) * axis + (slice(extent),)]
        return parts

    def run(self, network: Callable[[Arrays], Arrays]) -> Arrays:
        """Run a network on the inputs, and cut its outputs to the part for the unpadded inputs."""
        return self.cut(network(self.inputs))
