"""CUDA templates of convolutions: the paper's for conv2d (CHAMELEON, Table 1), and depthwise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.operators.specs import Conv2dSpec, DepthwiseConv2dSpec, channel_block
from chameleon_tvm.quick_tvm import Schedule, tirx
from chameleon_tvm.spaces.cuda.base import CudaTemplate
from chameleon_tvm.spaces.cuda.nest import Axis, Nest, Operand
from chameleon_tvm.spaces.cuda.schedule import Blocks
from chameleon_tvm.spaces.template.options import TemplateOptions

_OUTPUTS = {"NCHW": ("n", "f", "y", "x"), "NHWC": ("n", "y", "x", "f")}


class ConvolutionTemplate(CudaTemplate):
    """Any convolution, grouped and dilated ones included, in NCHW or NHWC.

    Weights are packed as (input channel, row, column, output channel) beforehand, so that what
    a block loads of them is contiguous.
    """

    spec: Conv2dSpec | DepthwiseConv2dSpec

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.spec = self._specification(task)
        for layout in (self.spec.layout, self.spec.output_layout):
            if channel_block(layout):
                raise ConfigError(
                    f"the CUDA templates know no blocked layout such as {layout} of task "
                    f"{task.name!r}",
                    hint="Use NCHW or NHWC, or `space: sketch`.",
                )
        super().__init__(task, options)

    @staticmethod
    def _specification(task: Task) -> Conv2dSpec | DepthwiseConv2dSpec:
        return Conv2dSpec.of(task)

    def make_nest(self) -> Nest:
        spec = self.spec
        n, oc, oh, ow = spec.output_shape
        _, ic, kh, kw = spec.filter_shape
        extents = {"f": oc // spec.group_count, "y": oh, "x": ow}
        order = _OUTPUTS[spec.output_layout][1:]
        return Nest(
            outputs=tuple(Axis(name=name, extent=extents[name]) for name in order),
            reductions=self._order(
                Axis(name="rc", extent=ic), Axis(name="ry", extent=kh), Axis(name="rx", extent=kw)
            ),
            copies=n * spec.group_count,
            operands=(self._data({"rc": 1}), self._weights()),
            flop=spec.flop,
        )

    def _order(self, channel: Axis, row: Axis, column: Axis) -> tuple[Axis, ...]:
        """The reduction axes as the operator's function orders them."""
        if self.spec.layout == "NHWC":
            return (row, column, channel)
        return (channel, row, column)

    def _data(self, channel: dict[str, int]) -> Operand:
        spec = self.spec
        (sh, sw), (dh, dw) = spec.strides, spec.dilations
        row, column = {"y": sh, "ry": dh}, {"x": sw, "rx": dw}
        if spec.layout == "NHWC":
            return Operand(
                name="data",
                dimensions=({}, row, column, channel),
                vector_axis=next(iter(channel)),
            )
        # Rows are contiguous and start at a multiple of the vector only where nothing is added.
        plain = not any(spec.pads) and spec.kernel_size[1] == 1 and sw == 1
        return Operand(
            name="data",
            dimensions=({}, channel, row, column),
            vector_axis="x" if plain else None,
        )

    def _weights(self) -> Operand:
        dimensions: tuple[dict[str, int], ...] = ({"rc": 1}, {"ry": 1}, {"rx": 1}, {"f": 1})
        return Operand(name="weights", dimensions=dimensions, vector_axis="f")

    @property
    def blocks(self) -> Blocks:
        spec = self.spec
        return Blocks(
            anchor="conv2d",
            loops=(*_OUTPUTS[spec.output_layout], *(axis.name for axis in self._reductions)),
            groups=self._groups,
            inlined=("padded",) if any(spec.pads) else (),
            epilogue=None if spec.plain else "out",
        )

    @property
    def _reductions(self) -> tuple[Axis, ...]:
        one = Axis(name="rc", extent=1), Axis(name="ry", extent=1), Axis(name="rx", extent=1)
        return self._order(*one)

    @property
    def _groups(self) -> int:
        return self.spec.group_count

    @cached_property
    def unscheduled(self) -> tirx.PrimFunc:
        schedule = Schedule(super().unscheduled)
        anchor = schedule.get_sblock("conv2d")
        if self.spec.layout == "NHWC":
            schedule.transform_layout(anchor, ("read", 1), lambda h, w, i, o: (i, h, w, o))
        else:
            schedule.transform_layout(anchor, ("read", 1), lambda o, i, h, w: (i, h, w, o))
        return schedule.mod["main"]

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # one order serves all
        weights, *bias = constants
        return [np.ascontiguousarray(weights.transpose(1, 2, 3, 0)), *bias]


class DepthwiseTemplate(ConvolutionTemplate):
    """Depthwise convolutions with one filter per channel, all of whose taps are staged at once."""

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        spec = DepthwiseConv2dSpec.of(task)
        if spec.multiplier != 1:
            raise ConfigError(
                f"the depthwise template needs one filter per channel; task {task.name!r} has "
                f"{spec.multiplier}",
                hint="Use `space: sketch` for it.",
            )
        super().__init__(task, options)

    @staticmethod
    def _specification(task: Task) -> DepthwiseConv2dSpec:
        return DepthwiseConv2dSpec.of(task)

    def make_nest(self) -> Nest:
        spec = self.spec
        n, oc, oh, ow = spec.output_shape
        kh, kw = spec.kernel_size
        extents = {"f": oc, "y": oh, "x": ow}
        order = _OUTPUTS[spec.output_layout][1:]
        return Nest(
            outputs=tuple(Axis(name=name, extent=extents[name]) for name in order),
            reductions=self._order(
                Axis(name="rc", extent=1, whole=True),
                Axis(name="ry", extent=kh, whole=True),
                Axis(name="rx", extent=kw, whole=True),
            ),
            copies=n,
            operands=(self._data({"f": 1}), self._weights()),
            flop=spec.flop,
        )

    @property
    def _groups(self) -> int:
        return 1
