"""Inputs of a network, and the part of its outputs that belongs to them."""

from __future__ import annotations

import attrs
from chameleon_core.stages import Arrays

Cut = tuple[int, int, int]
"""Number of an output, number of one of its axes, and how much of that is kept."""


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """Inputs of one inference.

    Attributes:
        inputs: one array each, of the shapes that the network is compiled for.
        cuts: the parts of outputs that belong to the inputs, if these were filled up to a bucket
            of shapes. Other outputs are kept whole.
    """

    inputs: Arrays
    cuts: tuple[Cut, ...] = ()

    def cut(self, outputs: Arrays) -> Arrays:
        """The part of the outputs that belongs to the inputs.

        Args:
            outputs: of the network for the inputs.
        """
        parts = list(outputs)
        for number, axis, extent in self.cuts:
            parts[number] = parts[number][(slice(None),) * axis + (slice(extent),)]
        return parts


__all__ = ["Cut", "Sample"]
