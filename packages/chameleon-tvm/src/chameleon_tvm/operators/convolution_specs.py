"""The kinds of convolutions that a pipeline file can name.

This module does not import TVM, because a pipeline file is checked before a run imports TVM.
"""

from __future__ import annotations

from typing import ClassVar

import attrs
from chameleon_core.plugins.options import option
from chameleon_core.task import Task

from chameleon_tvm.operators.convolution_spec import ConvolutionSpec


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
