"""Shorter domains, with a pointwise stage where the shapes of the convolution ask for one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import attrs

from chameleon_transforms.contract import Transform
from chameleon_transforms.nest.domain import Extent, Nest
from chameleon_transforms.nest.program import Program, Stage, pointwise
from chameleon_transforms.transforms.options import BottleneckOptions, KernelOptions

Variants = Iterator[tuple[str, Program]]


def _single(program: Program) -> tuple[int, Stage, Nest] | None:
    """Place, stage and nest of the main stage where it has one nest; None otherwise."""
    at = program.main
    stage = program.stages[at]
    return (at, stage, stage.nests[0]) if len(stage.nests) == 1 else None


def _smaller(program: Program, at: int, stages: tuple[Stage, Stage], label: str) -> Variants:
    """The program with two stages instead of one, where they multiply less than that did.

    One of 1x1 that was small already would only grow.
    """
    if sum(one.multiply_adds for one in stages) < program.stages[at].multiply_adds:
        yield label, program.with_stages(at, stages)


class Bottleneck(Transform):
    """``bottleneck(B)``: the domain of co divided by B.

    What reads the convolution expects all channels, so a pointwise stage restores them. Where
    all readers take fewer, the network's space divides the channels without it (``widths``).
    """

    def __init__(self, options: BottleneckOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        found = _single(program)
        if found is None:
            return
        at, stage, nest = found
        for factor in self.options.factors:
            shrunk = nest.shrunk(factor)
            if shrunk is None:
                continue
            channels, *size = stage.output
            inner = (shrunk.outputs.length, size[0], size[1])
            stages = (
                attrs.evolve(stage, output=inner, nests=(shrunk,)),
                pointwise(inner, channels),
            )
            yield from _smaller(program, at, stages, f"bottleneck({factor})")


class InputBottleneck(Transform):
    """``input-bottleneck(B)``: a pointwise stage divides the domain of ci beforehand."""

    def __init__(self, options: BottleneckOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        found = _single(program)
        if found is None:
            return
        at, stage, nest = found
        for factor in self.options.factors:
            length = nest.inputs.length // factor
            if nest.inputs.length % factor or nest.tied > 1:
                continue
            _, *size = stage.input
            inner = (length, size[0], size[1])
            less = attrs.evolve(nest, inputs=Extent(start=0, length=length))
            stages = (
                pointwise(stage.input, length),
                attrs.evolve(stage, input=inner, nests=(less,)),
            )
            yield from _smaller(program, at, stages, f"input-bottleneck({factor})")


class LowRank(Transform):
    """``low-rank(B)``: columns of taps, then rows of taps (Jaderberg et al. 2014).

    The number of channels between the two is the convolution's divided by B.
    """

    def __init__(self, options: BottleneckOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        found = _single(program)
        if found is None:
            return
        at, stage, nest = found
        if nest.tied > 1 or min(nest.kernel) == 1 or nest.rows.length < nest.all_rows:
            return
        for factor in self.options.factors:
            rank = nest.outputs.length // factor
            if nest.outputs.length % factor:
                continue
            stages = _separated(stage, nest, rank)
            yield from _smaller(program, at, stages, f"low-rank({factor})")


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


class KernelShrink(Transform):
    """``kernel-shrink(K)``: shorter domains of kh and kw, around the same middle."""

    def __init__(self, options: KernelOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        for size in self.options.sizes:
            made = program.map_main(partial(_with_kernel, size))
            if made is not None:
                yield f"kernel-shrink({size})", made


def _with_kernel(size: int, nest: Nest) -> tuple[Nest] | None:
    """The nest with a filter of that size; None where it is no smaller or has another middle."""
    less = [kernel - size for kernel in nest.kernel]
    if min(less) < 0 or max(less) == 0 or any(one % 2 for one in less):
        return None
    rows, columns = (one // 2 * d for one, d in zip(less, nest.dilation, strict=True))
    top, left, bottom, right = nest.padding
    if min(top, bottom) < rows or min(left, right) < columns:
        return None
    padding = (top - rows, left - columns, bottom - rows, right - columns)
    made = attrs.evolve(nest, kernel=(size, size), padding=padding)
    return (made,) if made.all_rows == nest.all_rows and made.columns == nest.columns else None
