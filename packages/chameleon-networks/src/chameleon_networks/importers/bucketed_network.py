"""A network for several input shapes: one network for each combination (bucket) of shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import attrs

from chameleon_networks.importers.imported_network import ImportedNetwork
from chameleon_networks.importers.options import NetworkOptions
from chameleon_networks.shapes import Bucket, bucket_with, buckets_of, dimensions_of


class BucketedNetwork:
    """A network for several input shapes, which is compiled separately for each shape.

    Args:
        make: A function that makes the network for options with fixed shapes.
        options: The options of the network, in which an axis may have several extents.

    Attributes:
        options: The argument ``options``.
        dimensions: The dimensions of the inputs that have several extents.
        networks: Pairs of a bucket and its network, the smallest shapes first.
    """

    def __init__(self, make: Callable[[Any], ImportedNetwork], options: NetworkOptions) -> None:
        self.options = options
        self.dimensions = dimensions_of(options.shapes)
        self._make = make
        self._known: dict[tuple[int, ...], ImportedNetwork] = {}
        self.networks = [
            (bucket, self._with_shapes(bucket)) for bucket in buckets_of(options.shapes)
        ]

    def _with_shapes(self, bucket: Bucket) -> ImportedNetwork:
        """The network for the shapes of a bucket.

        Each is made once, and the source is read once for all.
        """
        if bucket.extents not in self._known:
            network = self._make(attrs.evolve(self.options, shapes=dict(bucket.shapes)))
            network.sibling = next(iter(self._known.values()), None)
            self._known[bucket.extents] = network
        return self._known[bucket.extents]

    def with_extents(self, extents: Sequence[int]) -> ImportedNetwork:
        """The network for shapes between those of two buckets, to test padding.

        Args:
            extents: The extent of each dimension.
        """
        return self._with_shapes(bucket_with(self.options.shapes, self.dimensions, extents))

    def named(self, extents: Sequence[int]) -> str:
        """A phrase for messages with the extent of each dimension, such as "batch 8".

        Args:
            extents: The extent of each dimension.
        """
        pairs = zip(self.dimensions, extents, strict=True)
        return " and ".join(f"{dimension} {extent}" for dimension, extent in pairs)

    @cached_property
    def input_names(self) -> list[str]:
        """The names of all inputs, in order."""
        return self.networks[0][1].input_names()
