"""The template of convolutions: direct or Winograd's. Weights are packed before timing."""

from __future__ import annotations

import attrs
from chameleon_core.plugin_api import Task

from chameleon_tvm._device.targets import target_info
from chameleon_tvm._open_axes import INPUT_HEIGHT, INPUT_WIDTH
from chameleon_tvm._operators.convolution_specs import ConvolutionSpec, convolution_of
from chameleon_tvm._operators.layouts import physical_shape, with_rank
from chameleon_tvm._spaces.template.algorithms import (
    Layer,
    MultiAlgorithmTemplate,
    algorithms_of,
)
from chameleon_tvm._spaces.template.arithmetic import arithmetic_of
from chameleon_tvm._spaces.template.direct_algorithm import DirectAlgorithm, padded_channels
from chameleon_tvm._spaces.template.geometry import (
    Geometry,
    OuterAxis,
    groups_per_vector,
    taps_as_channels_pay,
)
from chameleon_tvm._spaces.template.options import DIRECT, TemplateOptions

PLANE = 2
"""Number of axes of a tile's positions: height and width."""


def geometry_of(spec: ConvolutionSpec, lanes: int) -> Geometry:
    """The sizes of a convolution, for vectors of ``lanes`` elements."""
    axes = [
        OuterAxis(size=size, out=out, kernel=kernel, stride=stride, dilation=dilation, pad=pad)
        for size, out, kernel, stride, dilation, pad in zip(
            spec.input[2:],
            spec.output_shape[2:],
            spec.kernel_size,
            spec.strides,
            spec.dilations,
            spec.pads[: spec.rank],
            strict=True,
        )
    ]
    missing = max(0, PLANE - len(axes))
    axes = [OuterAxis(size=1, out=1, kernel=1)] * missing + axes
    *outer, rows, columns = axes
    batch = spec.input[0]
    layouts = {with_rank(layout, PLANE) for layout in (spec.layout, spec.output_layout)}
    while layouts == {"NHWC"} and outer and outer[0].independent:
        batch *= outer.pop(0).size
    return Geometry(
        batch=batch,
        groups=spec.group_count,
        ic=spec.input[1] // spec.group_count,
        oc=spec.output_channels // spec.group_count,
        size=(rows.size, columns.size),
        out=(rows.out, columns.out),
        kernel=(rows.kernel, columns.kernel),
        stride=(rows.stride, columns.stride),
        dilation=(rows.dilation, columns.dilation),
        pads=(rows.pad, columns.pad),
        layout=with_rank(spec.layout, PLANE),
        out_layout=with_rank(spec.output_layout, PLANE),
        lanes=lanes,
        outer=tuple(outer),
    )


def parameter_shapes(spec: ConvolutionSpec) -> dict[str, tuple[int, ...]]:
    """The physical shapes of a convolution's data, residual and output, by name."""
    out = physical_shape(spec.output_shape, spec.output_layout)
    return {"data": physical_shape(spec.input, spec.layout), "residual": out, "out": out}


def image_places(spec: ConvolutionSpec) -> dict[str, int]:
    """The places of height and width among the physical axes of a convolution's data."""
    places = {INPUT_HEIGHT: spec.layout.find("H"), INPUT_WIDTH: spec.layout.find("W")}
    return {name: place for name, place in places.items() if place >= 0}


class ConvolutionTemplate(MultiAlgorithmTemplate):
    """Template of all convolutions on a CPU: any rank, grouped and dilated ones included.

    Several groups are computed together if one group is too small to fill a vector.
    """

    def __init__(self, task: Task, options: TemplateOptions) -> None:
        info = target_info(task.target)
        spec = convolution_of(task)
        # Sums have 32 bits for all dtypes.
        geometry = geometry_of(spec, info.lanes("float32"))
        self.shapes = parameter_shapes(spec)
        self.axes = image_places(spec)
        direct = _direct(geometry, spec, task.target)
        layer = Layer(
            geometry=geometry,
            direct=direct.geometry,
            spec=spec,
            target=task.target,
            options=options,
        )
        self.algorithms = algorithms_of(layer, direct)


def _direct(geometry: Geometry, spec: ConvolutionSpec, target: str) -> DirectAlgorithm:
    """The direct algorithm of a convolution."""
    # A copy contains no padded planes, so their taps are skipped.
    skipping = any(axis.padded for axis in geometry.outer)
    arithmetic = arithmetic_of(spec, target, skipping=skipping)
    depth = arithmetic.dot.depth
    merged = groups_per_vector(geometry)
    merged_geometry = attrs.evolve(
        geometry,
        groups=geometry.groups // merged,
        ic=padded_channels(geometry.ic * merged, depth),
        oc=geometry.oc * merged,
    )
    # Integers that are read beyond a row are multiplied by zero, and the product is zero. Floats
    # could be infinite or NaN.
    copy_geometry = None
    if arithmetic.quantized and taps_as_channels_pay(geometry, depth):
        copy_geometry = geometry
        run = padded_channels(geometry.ic * geometry.kernel[1], depth)
        merged_geometry = attrs.evolve(merged_geometry, ic=run, kernel=(geometry.kernel[0], 1))
    return DirectAlgorithm(
        geometry=merged_geometry,
        spec=spec,
        info=target_info(target),
        channels=spec.input[1],
        arithmetics={DIRECT: arithmetic},
        copy_geometry=copy_geometry,
        groups=spec.group_count,
        merged_groups=merged,
    )
