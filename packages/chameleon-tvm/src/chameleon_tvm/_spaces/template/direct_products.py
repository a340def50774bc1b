"""The direct algorithm of convolutions and matrix products: design space and packed weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import Arrays, DesignSpace, divisors

from chameleon_tvm import _emit as emit
from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.specs import FusedSpec, channel_block
from chameleon_tvm._spaces.template.algorithms import (
    KNOB,
    Algorithm,
    rounding_error,
    with_stored_weights,
)
from chameleon_tvm._spaces.template.arithmetic import FLOAT32, Arithmetic, finishing_constants
from chameleon_tvm._spaces.template.direct import DirectConvolution
from chameleon_tvm._spaces.template.geometry import (
    Geometry,
    Tile,
    block_diagonal,
    pack_weights,
    rows_as_channels,
)
from chameleon_tvm._spaces.template.options import DIRECT, WEIGHTS
from chameleon_tvm._spaces.template.tiling import ConvolutionTiling

MOST = 4.0
"""Bound of the largest of many outputs' errors, as a multiple of the expected error."""

SMALLEST_CHANNEL_BLOCK = 8
"""Smallest number of channels of a block. Shorter blocks do too little work between two jumps to
the next tap."""


def filled(channels: int, depth: int) -> int:
    """Number of input channels of a group, with zeros up to a multiple of ``depth``."""
    return -(-channels // depth) * depth


def channel_blocks(filled_up: int, channels: int, depth: int) -> tuple[int, ...]:
    """The choices for the number of input channels of a block, as values of a knob."""
    if filled_up > channels:
        return (filled_up,)
    least = min(filled_up, SMALLEST_CHANNEL_BLOCK)
    return tuple(d for d in divisors(filled_up) if d >= least and d % depth == 0)


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
    constants: Arrays, geometry: Geometry, tile: Tile, arithmetic: Arithmetic = FLOAT32
) -> Arrays:
    """Pack an operator's constants for a tile."""
    weights, *rest = constants
    channels = max(geometry.oc, tile.vectors * geometry.lanes)
    more = finishing_constants(weights, rest, geometry.groups, channels, arithmetic)
    ordered = pack_weights(arithmetic.weights(weights), geometry, tile, arithmetic.dot.depth)
    return [arithmetic.stored(ordered), *more]


@attrs.frozen(kw_only=True, eq=False)
class DirectProducts(Algorithm):
    """The direct algorithm of a convolution, or of a matrix product as a convolution.

    If it has several arithmetics, they differ in the dtype of the stored weights. Weights in 16
    bits are faster if the data have few rows, because reading the weights then takes longer than
    multiplying.

    Attributes:
        geometry: The sizes of the convolution, with zeros that pad the input channels.
        spec: The operator's arguments.
        info: The description of the CPU.
        channels: Number of input channels of all groups, without the zeros.
        arithmetics: The dtypes of the inner loop, by the value of the knob ``algorithm``.
        staging: The original sizes, if ``geometry`` treats the taps of a filter's row as channels
            (see ``row_runs``); otherwise None.
        groups: Number of groups of the operator, of which ``together`` form one of ``geometry``.
        together: Number of groups of the operator in a group of ``geometry``.
    """

    leads = False

    geometry: Geometry
    spec: FusedSpec
    info: TargetInfo
    channels: int
    arithmetics: Mapping[str, Arithmetic]
    staging: Geometry | None = None
    groups: int = 1
    together: int = 1

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        return tuple(self.arithmetics)

    def space(self) -> DesignSpace:
        spaces = {name: self._space(arithmetic) for name, arithmetic in self.arithmetics.items()}
        return with_stored_weights(spaces) if len(spaces) > 1 else spaces[DIRECT]

    def _space(self, arithmetic: Arithmetic) -> DesignSpace:
        g, channels = self.geometry, self.channels // self.geometry.groups
        depth = arithmetic.dot.depth
        blocks = (g.ic,) if self.staging is not None else channel_blocks(g.ic, channels, depth)
        size = channel_block(g.layout)
        if size and arithmetic.as_they_are:
            # A block of the loop lies within a block of the layout, so that it is contiguous.
            within = [d for d in divisors(g.ic) if size % d == 0 and d % depth == 0]
            blocks = tuple(within[-3:]) or blocks
        return ConvolutionTiling(
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
        # What stands for zero is in the copy's padding alone.
        skipped = not (arithmetic.quantized and any(g.padded))
        return contiguous and skipped and arithmetic.as_they_are

    @property
    def tolerance(self) -> float:
        """The error that weights stored in 16 bits may cause.

        It is a few times the expected error, because the largest of many errors is compared.
        """
        stored = [WEIGHTS[name] for name in self.arithmetics if name != DIRECT]
        return MOST * max(map(rounding_error, stored), default=0.0)

    def function(
        self, values: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]
    ) -> tirx.PrimFunc:
        loops = DirectConvolution(
            self.geometry,
            tile_of(values),
            self.spec,
            arithmetic=self._arithmetic(values),
            channels=self.channels,
            staging=self.staging,
        )
        return emit.with_shapes(loops.function(), shapes)

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        weights, *rest = constants
        weights = block_diagonal(weights, self.groups, self.together)
        if self.staging is not None:
            weights = rows_as_channels(weights)
        packed = [weights, *rest]
        return pack_constants(packed, self.geometry, tile_of(values), self._arithmetic(values))

    def _arithmetic(self, values: Mapping[str, Any]) -> Arithmetic:
        return self.arithmetics[values.get(KNOB, DIRECT)]
