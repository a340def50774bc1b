"""The CUDA template of convolutions in half precision: products on tensor cores.

Rows of the product are pixels of the output, columns its channels, and what is summed over are
the taps of a filter and the input's channels. The matrix of pixels and taps is never in memory:
each block of threads computes the part that it multiplies in shared memory (implicit GEMM).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.stages import Arrays
from chameleon_core.task import Task

from chameleon_tvm.instructions.fragments import SIDE
from chameleon_tvm.operators.epilogue import Epilogue
from chameleon_tvm.operators.specs import Conv2dSpec, physical_shape
from chameleon_tvm.quick_tvm import Schedule, te, tirx
from chameleon_tvm.spaces.cuda.convolution import ConvolutionTemplate
from chameleon_tvm.spaces.cuda.fragments import Product
from chameleon_tvm.spaces.cuda.tensor_core import Sizes, TensorCoreTemplate
from chameleon_tvm.spaces.template.base import Template
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.types import HALVES


def convolution_template(task: Task, options: TemplateOptions) -> Template:
    """The template of a convolution: half precision is for tensor cores."""
    if Conv2dSpec.of(task).dtype in HALVES:
        return ImplicitGemmTemplate(task, options)
    return ConvolutionTemplate(task, options)


class ImplicitGemmTemplate(TensorCoreTemplate):
    """Convolutions in NHWC, strided, dilated and padded as they may be."""

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
            computed="pixels",
        )
        return sizes, product

    @property
    def pixels(self) -> int:
        """Pixels of the output, of all images."""
        n, _, oh, ow = self.spec.output_shape
        return n * oh * ow

    @cached_property
    def unscheduled(self) -> tirx.PrimFunc:
        """Pixels by taps, times weights; the output has as many dimensions as the operator's."""
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
            sums, lambda place: place[1], ["m", "n"], shape=(self.pixels, sizes.columns)
        )
        return self._as_image(te.create_prim_func([data, weights, *more, out]))

    def _pixel(self, data: te.Tensor, tap: tuple[Any, Any], m: Any, channel: Any) -> Any:
        """What a tap of the filter sees for a pixel of the output; zero beyond the image."""
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
        """The function with the output, and what is added to it, as images."""
        schedule = Schedule(function)
        _, _, oh, ow = self.spec.output_shape

        def image(m: Any, n: Any) -> tuple[Any, ...]:
            return m // (oh * ow), m // ow % oh, m % ow, n

        output = schedule.get_sblock("out")
        schedule.transform_layout(output, ("write", 0), image)
        if self.spec.residual:
            schedule.transform_layout(output, ("read", 2 if self.spec.bias else 1), image)
        return schedule.mod["main"]

    def pack(self, values: Mapping[str, Any], constants: Arrays) -> Arrays:
        del values  # one order serves all
        weights, *bias = constants
        return [np.ascontiguousarray(weights.transpose(2, 3, 1, 0)), *bias]


def _fragments(rows: int) -> int:
    """Fragments that hold so many rows: an even number, which warps can share, unless it is one."""
    needed = -(-rows // SIDE)
    return needed if needed == 1 else needed + needed % 2
