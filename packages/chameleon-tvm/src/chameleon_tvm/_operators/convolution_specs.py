"""The arguments of convolutions of one, two and three spatial axes: checks, shapes and kinds."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
from chameleon_core.plugin_api import Task, option

from chameleon_tvm._operators import layouts
from chameleon_tvm._operators.spec import (
    FusedSpec,
    check_dtype,
    check_positive,
    converted_option,
    format_extents,
)
from chameleon_tvm._types import FLOAT32, HALVES, INT7, INT8, WEIGHTED

PerAxis = int | tuple[int, ...]
"""One number for all spatial axes, or one for each."""


def _numbers(value: Any) -> Any:
    return value if isinstance(value, int) else tuple(value)


def _each(value: PerAxis, rank: int) -> tuple[int, ...]:
    return (value,) * rank if isinstance(value, int) else value


def _both_sides(value: PerAxis, rank: int) -> tuple[int, ...]:
    numbers = _each(value, rank)
    return numbers * 2 if len(numbers) == rank else numbers


@attrs.frozen(kw_only=True)
class ConvolutionSpec(FusedSpec):
    """The arguments of a convolution. Sizes are logical (N, C, spatial axes), whatever the layout.

    Spatial axes are in the order depth, height, width. A 2-D convolution has height and width, a
    1-D convolution has width.
    """

    rank: ClassVar[int]
    """Number of spatial axes."""

    input: tuple[int, ...] = converted_option(
        "input shape, channels second ([N, C, H, W]), whatever the layout"
    )
    kernel: PerAxis = converted_option(
        "filter size, one number or one for each axis", converter=_numbers
    )
    stride: PerAxis = converted_option("stride along each axis", default=1, converter=_numbers)
    padding: PerAxis = converted_option(
        "one number, one for each axis, or those before and those after "
        "([top, left, bottom, right])",
        default=0,
        converter=_numbers,
    )
    dilation: PerAxis = converted_option(
        "distance between taps along each axis", default=1, converter=_numbers
    )
    layout: str = option("", "input layout; NCHW, NCW or NCDHW if missing. " + layouts.LAYOUT_HINT)
    output_layout: str = option("", "output layout; the input's if missing")
    dtype: str = option(
        FLOAT32,
        f"dtype: float32; {', '.join(HALVES)}, {INT8} and {INT7} on CPUs; "
        f"{' and '.join(HALVES)} of conv2d on GPUs",
    )

    def __attrs_post_init__(self) -> None:
        check_dtype(self, self.dtype, WEIGHTED)
        super().__attrs_post_init__()
        # One number for all axes, and a list with this number for each axis, give the same
        # operator.
        for name, value in (
            ("kernel", self.kernel_size),
            ("stride", self.strides),
            ("padding", self.pads),
            ("dilation", self.dilations),
        ):
            object.__setattr__(self, name, value)
        if not self.layout:
            object.__setattr__(self, "layout", layouts.channels_first(self.rank))
        if not self.output_layout:
            object.__setattr__(self, "output_layout", self.layout)
        self._check_lengths()
        check_positive(
            self,
            input=self.input,
            kernel=self.kernel_size,
            stride=self.strides,
            dilation=self.dilations,
            filters=self.output_channels,
            groups=self.group_count,
        )
        if any(pad < 0 for pad in self.pads):
            raise self.fail(f"padding {self.pads} is negative", "Give padding of at least 0.")
        if min(self.output_shape[2:]) < 1:
            covered, size = (
                "x".join(map(str, sizes)) for sizes in (self.dilated_kernel, self.input[2:])
            )
            raise self.fail(
                f"a filter that covers {covered} does not fit into an input of {size} "
                f"with padding {self.pads}",
                "Enlarge the input or the padding, or shrink kernel or dilation.",
            )
        for layout, channels, what in (
            (self.layout, self.input[1], "input"),
            (self.output_layout, self.output_channels, "output"),
        ):
            self._check_layout(layout, channels, what)
        self._check_sums()

    def _check_lengths(self) -> None:
        """Refuse sizes whose number of axes does not fit the convolution's rank."""
        rank = self.rank
        per_axis = (self.kernel_size, self.strides, self.dilations)
        fits = len(self.input) == rank + 2 and len(self.pads) == 2 * rank
        if not fits or any(len(sizes) != rank for sizes in per_axis):
            raise self.fail(
                f"input needs {rank + 2} numbers; kernel, stride and dilation 1 or {rank}; "
                f"padding 1, {rank} or {2 * rank}",
                f"Write input as [N, C, {', '.join(layouts.SPATIAL[-rank:])}] whatever the layout.",
            )

    def _check_layout(self, layout: str, channels: int, what: str) -> None:
        """Refuse a layout that the input or the output cannot have."""
        if layouts.spatial_rank(layout) != self.rank:
            raise self.fail(
                f"{layout} is no layout of {self.rank} spatial axes", layouts.LAYOUT_HINT
            )
        block = layouts.channel_block(layout)
        if block and channels % block:
            raise self.fail(
                f"{channels} {what} channels do not divide into the blocks of {layout}",
                "Choose a block that divides them, or channels first or last.",
            )

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self.output_shape

    @property
    @abstractmethod
    def group_count(self) -> int:
        """Number of groups."""

    @property
    def kernel_size(self) -> tuple[int, ...]:
        """Filter size along each axis."""
        return _each(self.kernel, self.rank)

    @property
    def strides(self) -> tuple[int, ...]:
        """Stride along each axis."""
        return _each(self.stride, self.rank)

    @property
    def dilations(self) -> tuple[int, ...]:
        """Distance between taps along each axis."""
        return _each(self.dilation, self.rank)

    @property
    def pads(self) -> tuple[int, ...]:
        """Numbers of zeros around the image: before each axis, then after each axis.

        For two axes, the order is top, left, bottom, right.
        """
        return _both_sides(self.padding, self.rank)

    @property
    def dilated_kernel(self) -> tuple[int, ...]:
        """The extent of a dilated filter along each axis."""
        sizes = zip(self.kernel_size, self.dilations, strict=True)
        return tuple((kernel - 1) * dilation + 1 for kernel, dilation in sizes)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """The output's logical shape (N, C, spatial axes)."""
        before, after = self.pads[: self.rank], self.pads[self.rank :]
        spatial = (
            (size + first + last - dilated_kernel) // stride + 1
            for size, first, last, dilated_kernel, stride in zip(
                self.input[2:], before, after, self.dilated_kernel, self.strides, strict=True
            )
        )
        return (self.input[0], self.output_channels, *spatial)

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """The weights' logical shape (output channels, input channels of a group, spatial axes)."""
        return (self.output_channels, self.input[1] // self.group_count, *self.kernel_size)

    @property
    def tensors(self) -> Sequence[Sequence[int]]:
        return (self.input, self.filter_shape, self.output_shape)

    @property
    def reduced(self) -> int:
        return math.prod(self.filter_shape[1:])

    @property
    def sizes(self) -> str:
        batch = self.input[:1] if self.input[0] > 1 else ()
        channels = format_extents(self.input[1], self.output_channels)
        where = format_extents(*batch, *self.output_shape[2:])
        return f"{channels} {format_extents(*self.kernel_size)} @{where}"

    @property
    def flop(self) -> float:
        total = 2.0
        for extent in (*self.output_shape, *self.filter_shape[1:]):
            total *= extent
        return total


@attrs.frozen(kw_only=True)
class GroupedSpec(ConvolutionSpec):
    """A convolution (cross-correlation), possibly grouped."""

    filters: int = option(attrs.NOTHING, "number of output channels")
    groups: int = option(1, "number of groups")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.input[1] % self.groups or self.filters % self.groups:
            raise self.fail(
                f"{self.input[1]} input and {self.filters} output channels "
                f"do not divide into {self.groups} groups",
                "Choose a number of groups that divides both.",
            )

    @property
    def output_channels(self) -> int:
        return self.filters

    @property
    def group_count(self) -> int:
        return self.groups


@attrs.frozen(kw_only=True)
class Conv1dSpec(GroupedSpec):
    """A 1-D convolution."""

    kind: ClassVar[str] = "conv1d"
    rank: ClassVar[int] = 1


@attrs.frozen(kw_only=True)
class Conv2dSpec(GroupedSpec):
    """A 2-D convolution."""

    kind: ClassVar[str] = "conv2d"
    rank: ClassVar[int] = 2


@attrs.frozen(kw_only=True)
class Conv3dSpec(GroupedSpec):
    """A 3-D convolution."""

    kind: ClassVar[str] = "conv3d"
    rank: ClassVar[int] = 3


@attrs.frozen(kw_only=True)
class DepthwiseSpec(ConvolutionSpec):
    """A depthwise convolution, in which each channel has its own filters."""

    multiplier: int = option(1, "output channels per input channel")

    @property
    def output_channels(self) -> int:
        return self.input[1] * self.multiplier

    @property
    def group_count(self) -> int:
        return self.input[1]


@attrs.frozen(kw_only=True)
class DepthwiseConv1dSpec(DepthwiseSpec):
    """A 1-D depthwise convolution."""

    kind: ClassVar[str] = "depthwise_conv1d"
    rank: ClassVar[int] = 1


@attrs.frozen(kw_only=True)
class DepthwiseConv2dSpec(DepthwiseSpec):
    """A 2-D depthwise convolution."""

    kind: ClassVar[str] = "depthwise_conv2d"
    rank: ClassVar[int] = 2


@attrs.frozen(kw_only=True)
class DepthwiseConv3dSpec(DepthwiseSpec):
    """A 3-D depthwise convolution."""

    kind: ClassVar[str] = "depthwise_conv3d"
    rank: ClassVar[int] = 3


GROUPED: dict[int, type[GroupedSpec]] = {
    spec.rank: spec for spec in (Conv1dSpec, Conv2dSpec, Conv3dSpec)
}
"""Convolutions by their number of spatial axes."""
DEPTHWISE: dict[int, type[DepthwiseSpec]] = {
    spec.rank: spec for spec in (DepthwiseConv1dSpec, DepthwiseConv2dSpec, DepthwiseConv3dSpec)
}
"""Depthwise convolutions by their number of spatial axes."""
CONVOLUTIONS: dict[str, type[ConvolutionSpec]] = {
    spec.kind: spec for spec in (*GROUPED.values(), *DEPTHWISE.values())
}
"""Every kind of convolution."""


def convolution_of(task: Task) -> ConvolutionSpec:
    """The arguments of a convolution's task, as an object of the kind's class."""
    return CONVOLUTIONS[task.operator].of(task)
