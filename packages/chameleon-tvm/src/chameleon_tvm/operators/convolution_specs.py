"""What a pipeline file says about convolutions, checked, and the shapes that follow from it.

Cheap to import: a pipeline file is checked without TVM or NumPy.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import attrs
from chameleon_core.task import Task

from chameleon_tvm.operators.layouts import LAYOUT_HINT, channel_block
from chameleon_tvm.operators.spec import (
    HALVES,
    FusedSpec,
    float_type,
    helped,
    on_gpu,
    only_float32,
    positive,
)

Pair = int | tuple[int, int]
Padding = int | tuple[int, int] | tuple[int, int, int, int]


def _pair(value: Any) -> Any:
    return (value, value) if isinstance(value, int) else tuple(value)


def _four(value: Any) -> Any:
    if isinstance(value, int):
        return (value,) * 4
    return (*value, *value) if len(value) == 2 else tuple(value)  # noqa: PLR2004


@attrs.frozen(kw_only=True)
class _ConvolutionSpec(FusedSpec):
    """What every convolution has; sizes are logical (N, C, H, W) whatever the layout."""

    input: tuple[int, int, int, int] = attrs.field(
        converter=tuple, metadata=helped("input shape as [N, C, H, W], whatever the layout")
    )
    kernel: Pair = attrs.field(converter=_pair, metadata=helped("filter height and width"))
    stride: Pair = attrs.field(default=1, converter=_pair, metadata=helped("steps down, right"))
    padding: Padding = attrs.field(
        default=0,
        converter=_four,
        metadata=helped("one number, [height, width], or [top, left, bottom, right]"),
    )
    dilation: Pair = attrs.field(
        default=1, converter=_pair, metadata=helped("distance between taps down, right")
    )
    layout: str = attrs.field(default="NCHW", metadata=helped("input layout. " + LAYOUT_HINT))
    output_layout: str = attrs.field(
        default="", metadata=helped("output layout; the input's where missing")
    )
    dtype: str = attrs.field(
        default="float32",
        metadata=helped("element type: float32; conv2d on GPUs also " + " or ".join(HALVES)),
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not self.output_layout:
            object.__setattr__(self, "output_layout", self.layout)
        self._check_dtype()
        if len(self.input) != 4 or len(self.kernel_size) != 2 or len(self.pads) != 4:  # noqa: PLR2004
            raise self.fail(
                "input needs 4 numbers, kernel 2, padding 1, 2 or 4",
                "Write input as [N, C, H, W] whatever the layout.",
            )
        positive(
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
            h, w = self.input[2:]
            kh, kw = self.reach
            raise self.fail(
                f"a filter that covers {kh}x{kw} does not fit into an input of {h}x{w} "
                f"with padding {self.pads}",
                "Enlarge the input or the padding, or shrink kernel or dilation.",
            )
        for layout, channels, what in (
            (self.layout, self.input[1], "input"),
            (self.output_layout, self.output_channels, "output"),
        ):
            block = channel_block(layout)
            if block and channels % block:
                raise self.fail(
                    f"{channels} {what} channels do not divide into the blocks of {layout}",
                    "Choose a block that divides them, or NCHW or NHWC.",
                )

    def _check_dtype(self) -> None:
        """Refuse element types that nothing here computes with."""
        only_float32(self, self.dtype)

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self.output_shape

    @property
    @abstractmethod
    def group_count(self) -> int:
        """Number of groups."""

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Filter height and width."""
        return _pair(self.kernel)  # type: ignore[no-any-return]

    @property
    def strides(self) -> tuple[int, int]:
        """Steps down and right."""
        return _pair(self.stride)  # type: ignore[no-any-return]

    @property
    def dilations(self) -> tuple[int, int]:
        """Distances between taps, down and right."""
        return _pair(self.dilation)  # type: ignore[no-any-return]

    @property
    def pads(self) -> tuple[int, int, int, int]:
        """Zeros added at the top, left, bottom, right."""
        return _four(self.padding)  # type: ignore[no-any-return]

    @property
    def reach(self) -> tuple[int, int]:
        """Height and width that a dilated filter covers."""
        (kh, kw), (dh, dw) = self.kernel_size, self.dilations
        return ((kh - 1) * dh + 1, (kw - 1) * dw + 1)

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """The output's logical (N, C, H, W)."""
        n, _, h, w = self.input
        (kh, kw), (sh, sw), (top, left, bottom, right) = self.reach, self.strides, self.pads
        height = (h + top + bottom - kh) // sh + 1
        width = (w + left + right - kw) // sw + 1
        return (n, self.output_channels, height, width)

    @property
    def filter_shape(self) -> tuple[int, int, int, int]:
        """The weights' logical (output channels, input channels of a group, height, width)."""
        return (self.output_channels, self.input[1] // self.group_count, *self.kernel_size)

    @property
    def flop(self) -> float:
        n, oc, oh, ow = self.output_shape
        _, ic, kh, kw = self.filter_shape
        return 2.0 * n * oc * oh * ow * ic * kh * kw


@attrs.frozen(kw_only=True)
class Conv2dSpec(_ConvolutionSpec):
    """A 2-D convolution (cross-correlation), possibly grouped."""

    kind: ClassVar[str] = "conv2d"

    filters: int = attrs.field(metadata=helped("number of output channels"))
    groups: int = attrs.field(default=1, metadata=helped("number of groups"))

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.input[1] % self.groups or self.filters % self.groups:
            raise self.fail(
                f"{self.input[1]} input and {self.filters} output channels "
                f"do not divide into {self.groups} groups",
                "Choose a number of groups that divides both.",
            )

    def _check_dtype(self) -> None:
        float_type(self, self.dtype)

    def task(self, name: str, target: str) -> Task:
        on_gpu(self, self.dtype, target)
        return super().task(name, target)

    @property
    def output_channels(self) -> int:
        return self.filters

    @property
    def group_count(self) -> int:
        return self.groups


@attrs.frozen(kw_only=True)
class DepthwiseConv2dSpec(_ConvolutionSpec):
    """A convolution of every channel with filters of its own."""

    kind: ClassVar[str] = "depthwise_conv2d"

    multiplier: int = attrs.field(default=1, metadata=helped("output channels per input channel"))

    @property
    def output_channels(self) -> int:
        return self.input[1] * self.multiplier

    @property
    def group_count(self) -> int:
        return self.input[1]


__all__ = ["Conv2dSpec", "DepthwiseConv2dSpec"]
