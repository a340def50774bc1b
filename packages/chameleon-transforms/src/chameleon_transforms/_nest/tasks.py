"""The operators of ``chameleon_tvm`` that compute the nests of a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chameleon_tvm.api import Conv2dSpec, DepthwiseConv2dSpec

from chameleon_transforms._nest.domain import Nest
from chameleon_transforms._nest.program import Program

Spec = Conv2dSpec | DepthwiseConv2dSpec


def spec_of(nest: Nest, *, batch: int = 1) -> Spec:
    """The operator of a nest, whose input is the part of the stage's input that the nest reads."""
    common: dict[str, Any] = {
        "input": (batch, nest.inputs.length, nest.read_rows.length, nest.size[1]),
        "kernel": nest.kernel,
        "stride": nest.stride,
        "padding": nest.pads,
        "dilation": nest.dilation,
        "layout": "NHWC",
    }
    if nest.groups == nest.inputs.length and nest.groups > 1:
        return DepthwiseConv2dSpec(**common, multiplier=nest.outputs.length // nest.groups)
    return Conv2dSpec(**common, filters=nest.outputs.length, groups=nest.groups)


def specs_of(program: Program, *, batch: int = 1) -> Sequence[Spec]:
    """The operators of all nests of a program, stage by stage."""
    return [spec_of(nest, batch=batch) for stage in program.stages for nest in stage.nests]
