"""The replacement of a convolution: consecutive stages of loop nests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from chameleon_transforms._nest.domain import Extent, Nest

Shape = tuple[int, int, int]
"""Numbers of channels, rows and columns of a tensor."""


@attrs.frozen(kw_only=True)
class Stage:
    """Loop nests that read one tensor and write disjoint parts of another.

    Attributes:
        input: Shape of the tensor that the nests read, without the batch.
        output: Shape of the tensor that the nests write, without the batch.
        nests: The nests, which write each element of the output once.
    """

    input: Shape
    output: Shape
    nests: tuple[Nest, ...]

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds of all nests, for one sample."""
        return sum(nest.multiply_adds for nest in self.nests)

    @property
    def in_order(self) -> list[Nest]:
        """The nests, sorted by their first row, and then by their first output channel."""
        return sorted(self.nests, key=lambda nest: (nest.rows.start, nest.outputs.start))


@attrs.frozen(kw_only=True)
class Program:
    """A convolution after any number of transformations, as stages of loop nests.

    Attributes:
        stages: The stages in order. Each stage reads the output of the stage before it. The first
            reads the convolution's input, and the last writes an output of the convolution's shape.
        bias: Whether a bias is added to the last stage's output.
    """

    stages: tuple[Stage, ...]
    bias: bool = False

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds of all stages, for one sample."""
        return sum(stage.multiply_adds for stage in self.stages)

    @property
    def parameters(self) -> int:
        """Number of weights, those of the bias included."""
        weights = sum(nest.parameters for stage in self.stages for nest in stage.nests)
        return weights + (self.stages[-1].output[0] if self.bias else 0)

    @property
    def main(self) -> int:
        """Index of the stage with the most work, which transformations change."""
        return max(range(len(self.stages)), key=lambda index: self.stages[index].multiply_adds)

    def map_main(self, change: Callable[[Nest], Sequence[Nest] | None]) -> Program | None:
        """Replace each nest of the program's main stage by nests that write the same outputs.

        Args:
            change: A function that returns the nests that replace a nest, or None if the
                transformation is illegal.

        Returns:
            The program, or None if the transformation is illegal for one of the nests.
        """
        at = self.main
        nests: list[Nest] = []
        for nest in self.stages[at].nests:
            changed = change(nest)
            if changed is None:
                return None
            nests += changed
        return self.with_stages(at, (attrs.evolve(self.stages[at], nests=tuple(nests)),))

    def with_stages(self, at: int, stages: Sequence[Stage]) -> Program:
        """A copy of the program in which other stages replace one stage."""
        return attrs.evolve(self, stages=(*self.stages[:at], *stages, *self.stages[at + 1 :]))


def single_nest(  # noqa: PLR0917 - in the order of torch's own arguments
    channels: int,
    outputs: int,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    *,
    size: tuple[int, int],
    groups: int = 1,
    bias: bool = False,
) -> Program:
    """The program of an untransformed convolution: one stage with one nest."""
    nest = Nest(
        outputs=Extent(start=0, length=outputs),
        inputs=Extent(start=0, length=channels),
        rows=Extent(start=0, length=1),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        size=size,
        groups=groups,
    )
    nest = attrs.evolve(nest, rows=Extent(start=0, length=nest.all_rows))
    stage = Stage(
        input=(channels, *size), output=(outputs, nest.all_rows, nest.columns), nests=(nest,)
    )
    return Program(stages=(stage,), bias=bias)


def pointwise(input_shape: Shape, outputs: int) -> Stage:
    """A stage that is a 1x1 convolution, which combines the channels at each position."""
    channels, *size = input_shape
    return single_nest(
        channels, outputs, (1, 1), (1, 1), (0, 0, 0, 0), (1, 1), size=(size[0], size[1])
    ).stages[0]
