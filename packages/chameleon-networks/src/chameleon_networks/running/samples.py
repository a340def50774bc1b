"""Inputs of a network, and the part of its outputs that belongs to them."""

from __future__ import annotations

import attrs
from chameleon_core.stages import Arrays

Kept = tuple[int, int, int]
"""Number of an output, number of one of its axes, and how much of that is kept."""


@attrs.frozen(kw_only=True, eq=False)
class Sample:
    """Inputs of one inference.

    Attributes:
        inputs: one array each, of the shapes that the network is compiled for.
        kept: of outputs what belongs to the inputs, where these were filled up to a bucket of
            shapes; what is not named is kept whole.
    """

    inputs: Arrays
    kept: tuple[Kept, ...] = ()

    def cut(self, outputs: Arrays) -> Arrays:
        """The part of the outputs that whoever gave the inputs gets.

        Args:
            outputs: of the network for the inputs.
        """
        found = list(outputs)
        for place, axis, extent in self.kept:
            found[place] = found[place][(slice(None),) * axis + (slice(extent),)]
        return found


__all__ = ["Kept", "Sample"]
