"""The direct algorithm of convolutions and matrix products: design space and packed weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import Arrays, DesignSpace, Factorization

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.layouts import channel_block
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._spaces.template.algorithms import Algorithm, join_weight_dtypes, rounding_error
from chameleon_tvm._spaces.template.arithmetic import (
    FLOAT32_ARITHMETIC,
    Arithmetic,
    epilogue_constants,
)
from chameleon_tvm._spaces.template.direct import DirectConvolution
from chameleon_tvm._spaces.template.direct_tiling import DirectTiling
from chameleon_tvm._spaces.template.geometry import (
    Geometry,
    Tile,
    block_diagonal,
    pack_weights,
    rows_as_channels,
)
from chameleon_tvm._spaces.template.options import ALGORITHM, DIRECT, WEIGHT_DTYPES

_LARGEST_ERROR = 4.0
"""Bound of the largest of many outputs' errors, as a multiple of the expected error."""

SMALLEST_CHANNEL_BLOCK = 8
"""Smallest number of channels of a block. Shorter blocks do too little work between two jumps to
the next tap."""


def padded_channels(channels: int, depth: int) -> int:
    """Number of input channels of a group, rounded up to a multiple of ``depth``."""
    return -(-channels // depth) * depth


def channel_blocks(padded: int, channels: int, depth: int) -> tuple[int, ...]:
    """The options for the number of input channels of a block."""
    if padded > channels:
        return (padded,)
    least = min(padded, SMALLEST_CHANNEL_BLOCK)
    return tuple(d for d in Factorization.divisors(padded) if d >= least and d % depth == 0)


def tile_of(values: Mapping[str, Any]) -> Tile:
    """The tile of a decoded configuration."""
    return Tile(
        rows=values["tile_rows"],
        columns=values["tile_columns"],
        vectors=values["tile_vectors"],
        channels=values["channel_block"],
        copy=values["input"] == "copy",
        channels_outermost=values["outermost"] == "channels",
        unroll=values.get("unroll", 1),
    )


def pack_constants(
    constants: Arrays, geometry: Geometry, tile: Tile, arithmetic: Arithmetic = FLOAT32_ARITHMETIC
) -> Arrays:
    """Pack an operator's constants for a tile."""
    weights, *rest = constants
    channels = max(geometry.oc, tile.vectors * geometry.lanes)
    more = epilogue_constants(weights, rest, geometry.groups, channels, arithmetic)
    ordered = pack_weights(arithmetic.weights(weights), geometry, tile, arithmetic.dot.depth)
    return [arithmetic.store_weights(ordered), *more]


@attrs.frozen(kw_only=True, eq=False)
class DirectAlgorithm(Algorithm):
    """The direct algorithm of a convolution, or of a matrix product as a convolution.

    Arithmetics differ in the dtype of the stored weights. Weights in 16 bits are faster if reading
    them takes longer than multiplying.

    Attributes:
        geometry: The sizes of the convolution, with padded input channels.
        channels: Number of input channels of all groups, without padding.
        arithmetics: The dtypes of the inner loop, by the value of the knob ``algorithm``.
        copy_geometry: The original sizes, if ``geometry`` treats the taps of a filter's row as
            channels (see ``taps_as_channels_pay``).
        groups: Number of groups of the operator.
        merged_groups: Number of groups of the operator in a group of ``geometry``.
    """

    preferred = False

    geometry: Geometry
    spec: FusedSpec
    info: TargetInfo
    channels: int
    arithmetics: Mapping[str, Arithmetic]
    copy_geometry: Geometry | None = None
    groups: int = 1
    merged_groups: int = 1

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        return tuple(self.arithmetics)

    def space(self) -> DesignSpace:
        spaces = {name: self._space(arithmetic) for name, arithmetic in self.arithmetics.items()}
        return join_weight_dtypes(spaces) if len(spaces) > 1 else spaces[DIRECT]

    def _space(self, arithmetic: Arithmetic) -> DesignSpace:
        g, channels = self.geometry, self.channels // self.geometry.groups
        depth = arithmetic.dot.depth
        blocks = (
            (g.ic,) if self.copy_geometry is not None else channel_blocks(g.ic, channels, depth)
        )
        size = channel_block(g.layout)
        if size and arithmetic.reads_storage_dtype:
            # A block of the loop lies within a block of the layout, so that it is contiguous.
            within = [d for d in Factorization.divisors(g.ic) if size % d == 0 and d % depth == 0]
            blocks = tuple(within[-3:]) or blocks
        return DirectTiling(
            g,
            self.info,
            in_place=self._in_place(arithmetic),
            channel_blocks=blocks,
            arithmetic=arithmetic,
        ).space()

    def _in_place(self, arithmetic: Arithmetic) -> bool:
        """Whether the input may be read in place, without a copy."""
        g, depth = self.geometry, arithmetic.dot.depth
        size = channel_block(g.layout)
        contiguous = g.layout != "NCHW" and (not size or g.ic % size == 0 or size % g.ic == 0)
        if depth > 1:
            contiguous &= self.channels == g.ic * g.groups and size % depth == 0
        # Only the padding of the copy contains the zero point.
        skipped = not (arithmetic.quantized and any(g.padded))
        return contiguous and skipped and arithmetic.reads_storage_dtype

    @property
    def tolerance(self) -> float:
        """The error of 16-bit weights: a few times the expected one, for the largest of many."""
        stored = {WEIGHT_DTYPES[name] for name in self.arithmetics if name != DIRECT}
        stored.discard(self.spec.exact_weights)
        return _LARGEST_ERROR * max(map(rounding_error, stored), default=0.0)

    def function(self, values: Mapping[str, Any]) -> tirx.PrimFunc:
        return DirectConvolution(
            self.geometry,
            tile_of(values),
            self.spec,
            arithmetic=self._arithmetic(values),
            channels=self.channels,
            copy_geometry=self.copy_geometry,
        ).function()

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *rest = constants
        weights = block_diagonal(weights, self.groups, self.merged_groups)
        if self.copy_geometry is not None:
            weights = rows_as_channels(weights)
        packed = [weights, *rest]
        return pack_constants(packed, self.geometry, tile_of(values), self._arithmetic(values))

    def _arithmetic(self, values: Mapping[str, Any]) -> Arithmetic:
        return self.arithmetics[values.get(ALGORITHM, DIRECT)]
