"""CUDA templates of convolutions, with the knobs of the CHAMELEON paper's table 1.

In half precision, convolutions are matrix products on tensor cores (implicit GEMM). Rows are pixels
of the output, columns are output channels. Each block of threads computes its part of the matrix of
inputs in shared memory.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

from chameleon_core.plugin_api import ConfigError, Task

from chameleon_tvm._instructions.fragments import SIDE
from chameleon_tvm._operators.convolution_specs import Conv2dSpec, DepthwiseConv2dSpec
from chameleon_tvm._operators.epilogues import Epilogue
from chameleon_tvm._operators.layouts import channel_block, physical_shape
from chameleon_tvm._quick_tvm import Schedule, te, tirx
from chameleon_tvm._spaces.cuda.base import NestTemplate
from chameleon_tvm._spaces.cuda.fragments import Product
from chameleon_tvm._spaces.cuda.nest import Axis, Nest, Operand
from chameleon_tvm._spaces.cuda.schedule import Blocks
from chameleon_tvm._spaces.cuda.tensor_core import Sizes, TensorCoreTemplate
from chameleon_tvm._spaces.template.base import Template
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._types import HALVES

_OUTPUTS = {"NCHW": ("n", "f", "y", "x"), "NHWC": ("n", "y", "x", "f")}


class ConvolutionTemplate(NestTemplate):
    """Template of all convolutions in NCHW or NHWC, including grouped and dilated ones.

    Weights are packed as (I, rows, columns, O), so that a block loads contiguous weights.
    """

    kind: ClassVar[type[Conv2dSpec | DepthwiseConv2dSpec]] = Conv2dSpec
    weight_axes = (1, 2, 3, 0)

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.spec = self.kind.of(task)
        for layout in (self.spec.layout, self.spec.output_layout):
            if channel_block(layout):
                raise ConfigError(
                    f"the CUDA templates know no blocked layout such as {layout} of task "
                    f"{task.name!r}",
                    hint="Use NCHW or NHWC, or `space: sketch`.",
                )
        # A depthwise convolution counts as one group: each channel is an output, with all taps in
        # one step.
        self._depthwise = self.kind is DepthwiseConv2dSpec
        self._groups = 1 if self._depthwise else self.spec.group_count
        super().__init__(task, options)

    def make_nest(self) -> Nest:
        spec = self.spec
        n, oc, oh, ow = spec.output_shape
        reductions = zip(("rc", "ry", "rx"), spec.filter_shape[1:], strict=True)
        extents = {"f": oc // self._groups, "y": oh, "x": ow}
        order = _OUTPUTS[spec.output_layout][1:]
        return Nest(
            outputs=tuple(Axis(name=name, extent=extents[name]) for name in order),
            reductions=self._order(
                *(
                    Axis(name=name, extent=extent, untiled=self._depthwise)
                    for name, extent in reductions
                )
            ),
            copies=n * self._groups,
            operands=(self._data({"f" if self._depthwise else "rc": 1}), self._weights()),
            flop=spec.flop,
        )

    def _order(self, channel: Axis, row: Axis, column: Axis) -> tuple[Axis, ...]:
        """The reduction axes in the order of the operator's function."""
        if self.spec.layout == "NHWC":
            return (row, column, channel)
        return (channel, row, column)

    def _data(self, channel: dict[str, int]) -> Operand:
        spec = self.spec
        (sh, sw), (dh, dw) = spec.strides, spec.dilations
        row, column = {"y": sh, "ry": dh}, {"x": sw, "rx": dw}
        if spec.layout == "NHWC":
            return Operand(
                name="data", dimensions=({}, row, column, channel), vector_axis=next(iter(channel))
            )
        # Without padding, taps and strides along a row, rows are contiguous and aligned to vectors.
        aligned = not any(spec.pads) and spec.kernel_size[1] == 1 and sw == 1
        return Operand(
            name="data", dimensions=({}, channel, row, column), vector_axis="x" if aligned else None
        )

    def _weights(self) -> Operand:
        dimensions: tuple[dict[str, int], ...] = ({"rc": 1}, {"ry": 1}, {"rx": 1}, {"f": 1})
        return Operand(name="weights", dimensions=dimensions, vector_axis="f")

    @property
    def blocks(self) -> Blocks:
        spec = self.spec
        return Blocks(
            anchor="conv2d",
            loops=(*_OUTPUTS[spec.output_layout], *(axis.name for axis in self.nest.reductions)),
            groups=self._groups,
            inlined=("padded",) if any(spec.pads) else (),
            epilogue=None if spec.plain else "out",
        )

    @cached_property
    def unscheduled(self) -> tirx.PrimFunc:
        schedule = Schedule(super().unscheduled)
        anchor = schedule.get_sblock("conv2d")
        if self.spec.layout == "NHWC":
            schedule.transform_layout(anchor, ("read", 1), lambda h, w, i, o: (i, h, w, o))
        else:
            schedule.transform_layout(anchor, ("read", 1), lambda o, i, h, w: (i, h, w, o))
        return schedule.mod["main"]


class DepthwiseTemplate(ConvolutionTemplate):
    """Template of depthwise convolutions with one filter per channel, whose taps have no knobs."""

    kind = DepthwiseConv2dSpec

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        spec = DepthwiseConv2dSpec.of(task)
        if spec.multiplier != 1:
            raise ConfigError(
                f"the depthwise template needs one filter per channel; task {task.name!r} has "
                f"{spec.multiplier}",
                hint="Use `space: sketch` for it.",
            )
        super().__init__(task, options)


def convolution_template(task: Task, options: TemplateOptions) -> Template:
    """Choose the template of a convolution on a GPU; half precision uses tensor cores."""
    if Conv2dSpec.of(task).dtype in HALVES:
        return ImplicitGemmTemplate(task, options)
    return ConvolutionTemplate(task, options)


class ImplicitGemmTemplate(TensorCoreTemplate):
    """Template of convolutions on tensor cores: NHWC, any strides, dilations and padding."""

    weight_axes = (2, 3, 1, 0)

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        self.spec = Conv2dSpec.of(task)
        super().__init__(task, options)

    def matrices(self) -> tuple[Sizes, Product]:
        spec = self.spec
        if spec.group_count > 1 or {spec.layout, spec.output_layout} != {"NHWC"}:
            raise ConfigError(
                f"tensor cores are for convolutions in NHWC without groups; task "
                f"{self.task.name!r} is in {spec.layout} with {spec.group_count} groups",
                hint="Use `layout: NHWC`, or `space: sketch`.",
            )
        kh, kw = spec.kernel_size
        sizes = Sizes(
            rows=SIDE * _fragments(self.pixels),
            columns=spec.output_channels,
            taps=(kh, kw),
            inner=spec.input[1],
        )
        product = Product(
            anchor="sums",
            reductions=("ry", "rx", "rc"),
            names=("data", "weights"),
            dtype=spec.dtype,
            producer="pixels",
        )
        return sizes, product

    @property
    def pixels(self) -> int:
        """Number of output pixels in all images of the batch."""
        n, _, oh, ow = self.spec.output_shape
        return n * oh * ow

    @cached_property
    def unscheduled(self) -> tirx.PrimFunc:
        """The convolution as a TensorIR function that multiplies a matrix of inputs by weights."""
        spec, sizes = self.spec, self.sizes
        kh, kw = spec.kernel_size
        data = te.placeholder(physical_shape(spec.input, "NHWC"), spec.dtype, name="data")
        shape = (kh, kw, sizes.inner, sizes.columns)
        weights = te.placeholder(shape, spec.dtype, name="weights")
        pixels = te.compute(
            (kh, kw, sizes.rows, sizes.inner),
            lambda ry, rx, m, c: self._pixel(data, (ry, rx), m, c),
            name="pixels",
        )
        row, column = te.reduce_axis((0, kh), name="ry"), te.reduce_axis((0, kw), name="rx")
        channel = te.reduce_axis((0, sizes.inner), name="rc")
        sums = te.compute(
            (sizes.rows, sizes.columns),
            lambda m, n: te.sum(
                pixels[row, column, m, channel].astype("float32")
                * weights[row, column, channel, n].astype("float32"),
                axis=[row, column, channel],
            ),
            name="sums",
        )
        more, out = Epilogue(spec).apply(
            sums, lambda indices: indices[1], ["m", "n"], shape=(self.pixels, sizes.columns)
        )
        return self._as_image(te.create_prim_func([data, weights, *more, out]))

    def _pixel(self, data: te.Tensor, tap: tuple[Any, Any], m: Any, channel: Any) -> Any:
        """The input value at a filter position for an output pixel; zero in the padding."""
        spec = self.spec
        _, _, oh, ow = spec.output_shape
        _, _, h, w = spec.input
        (sh, sw), (dh, dw), (top, left, *_) = spec.strides, spec.dilations, spec.pads
        image, y, x = m // (oh * ow), m // ow % oh, m % ow
        y, x = y * sh + tap[0] * dh - top, x * sw + tap[1] * dw - left
        value = data[image, y, x, channel]
        inside = []
        if any(spec.pads):
            inside += [y >= 0, y < h, x >= 0, x < w]
        if self.pixels < self.sizes.rows:
            inside.append(m < self.pixels)
        zero = te.const(0, spec.dtype)
        return te.if_then_else(te.all(*inside), value, zero) if inside else value

    def _as_image(self, function: tirx.PrimFunc) -> tirx.PrimFunc:
        """The function with its output and residual in the layout of images."""
        schedule = Schedule(function)
        _, _, oh, ow = self.spec.output_shape

        def image(m: Any, n: Any) -> tuple[Any, ...]:
            return m // (oh * ow), m // ow % oh, m % ow, n

        output = schedule.get_sblock("out")
        schedule.transform_layout(output, ("write", 0), image)
        if self.spec.residual:
            schedule.transform_layout(output, ("read", 2 if self.spec.bias else 1), image)
        return schedule.mod["main"]


def _fragments(rows: int) -> int:
    """Number of fragments that hold ``rows`` rows: even, so that warps can share them, or one."""
    count = -(-rows // SIDE)
    return count if count == 1 else count + count % 2
