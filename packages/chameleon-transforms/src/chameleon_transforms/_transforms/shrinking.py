"""Transforms that shorten a convolution's loops over channels or over the filter.

If a convolution gets fewer input or output channels, the rest of the network still has all of them.
So a 1x1 convolution before or after the convolution changes the number of channels.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import ClassVar

import attrs

from chameleon_transforms._contract import Transform
from chameleon_transforms._nest.domain import Extent, Nest
from chameleon_transforms._nest.program import Program, Stage, pointwise
from chameleon_transforms._transforms.grouping import Nests, NestTransform, Variants

Stages = tuple[Stage, Stage]


class _TwoStages(Transform):
    """Replaces a main stage that has one nest by two stages, if these do less work."""

    name: ClassVar[str]

    def variants(self, program: Program) -> Variants:
        at = program.main
        stage = program.stages[at]
        for factor in self.options.factors if len(stage.nests) == 1 else ():
            stages = self.stages(stage, stage.nests[0], factor)
            if stages and sum(part.multiply_adds for part in stages) < stage.multiply_adds:
                yield f"{self.name}({factor})", program.with_stages(at, stages)

    @abstractmethod
    def stages(self, stage: Stage, nest: Nest, factor: int) -> Stages | None:
        """Replace a stage by two stages with fewer channels, or return None if this is illegal."""


class Bottleneck(_TwoStages):
    """The transform ``bottleneck(B)``: 1 / B of the outputs, which a 1x1 stage restores."""

    name = "bottleneck"

    def stages(self, stage: Stage, nest: Nest, factor: int) -> Stages | None:
        shrunk = nest.shrunk(factor)
        if shrunk is None:
            return None
        channels, *size = stage.output
        inner = (shrunk.outputs.length, size[0], size[1])
        return attrs.evolve(stage, output=inner, nests=(shrunk,)), pointwise(inner, channels)


class InputBottleneck(_TwoStages):
    """The transform ``input-bottleneck(B)``: a 1x1 stage to 1 / B of the inputs."""

    name = "input-bottleneck"

    def stages(self, stage: Stage, nest: Nest, factor: int) -> Stages | None:
        length = nest.inputs.length // factor
        if nest.inputs.length % factor or nest.groups > 1:
            return None
        inner = (length, *stage.input[1:])
        less = attrs.evolve(nest, inputs=Extent(start=0, length=length))
        return pointwise(stage.input, length), attrs.evolve(stage, input=inner, nests=(less,))


class LowRank(_TwoStages):
    """The transform ``low-rank(B)``: column then row filters (Jaderberg et al. 2014)."""

    name = "low-rank"

    def stages(self, stage: Stage, nest: Nest, factor: int) -> Stages | None:
        part = nest.groups > 1 or nest.rows.length < nest.all_rows
        if part or min(nest.kernel) == 1 or nest.outputs.length % factor:
            return None
        return _separated(stage, nest, nest.outputs.length // factor)


def _separated(stage: Stage, nest: Nest, rank: int) -> tuple[Stage, Stage]:
    """Filters of (kernel rows, 1) into ``rank`` channels, then filters of (1, kernel columns)."""
    top, left, bottom, right = nest.padding
    inner = (rank, nest.all_rows, nest.size[1])
    vertical = attrs.evolve(
        nest,
        outputs=Extent(start=0, length=rank),
        kernel=(nest.kernel[0], 1),
        stride=(nest.stride[0], 1),
        dilation=(nest.dilation[0], 1),
        padding=(top, 0, bottom, 0),
    )
    horizontal = attrs.evolve(
        nest,
        inputs=Extent(start=0, length=rank),
        kernel=(1, nest.kernel[1]),
        stride=(1, nest.stride[1]),
        dilation=(1, nest.dilation[1]),
        padding=(0, left, 0, right),
        size=(inner[1], inner[2]),
    )
    return (
        attrs.evolve(stage, output=inner, nests=(vertical,)),
        attrs.evolve(stage, input=inner, nests=(horizontal,)),
    )


class KernelShrink(NestTransform):
    """The transform ``kernel-shrink(K)``: a filter of K x K around the same centre."""

    def changes(self) -> Iterator[tuple[str, Callable[[Nest], Nests]]]:
        for size in self.options.sizes:
            yield f"kernel-shrink({size})", partial(_with_kernel, size)


def _with_kernel(size: int, nest: Nest) -> tuple[Nest] | None:
    """The nest with a smaller filter; None if it is no smaller, or has another centre."""
    less = [kernel - size for kernel in nest.kernel]
    if min(less) < 0 or max(less) == 0 or any(taps % 2 for taps in less):
        return None
    rows, columns = (taps // 2 * d for taps, d in zip(less, nest.dilation, strict=True))
    top, left, bottom, right = nest.padding
    if min(top, bottom) < rows or min(left, right) < columns:
        return None
    padding = (top - rows, left - columns, bottom - rows, right - columns)
    smaller = attrs.evolve(nest, kernel=(size, size), padding=padding)
    return (
        (smaller,)
        if smaller.all_rows == nest.all_rows and smaller.columns == nest.columns
        else None
    )
