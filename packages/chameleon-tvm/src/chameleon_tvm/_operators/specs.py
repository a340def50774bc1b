"""The arguments of all kinds of operators of this package in a pipeline file."""

from __future__ import annotations

from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._operators.convolution_specs import (
    CONVOLUTIONS,
    Conv1dSpec,
    Conv2dSpec,
    Conv3dSpec,
    ConvolutionSpec,
    DepthwiseConv1dSpec,
    DepthwiseConv2dSpec,
    DepthwiseConv3dSpec,
    DepthwiseSpec,
    GroupedSpec,
    convolution_of,
)
from chameleon_tvm._operators.layouts import (
    LAYOUT_HINT,
    channel_block,
    physical_index,
    physical_shape,
)
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec, DenseSpec
from chameleon_tvm._operators.primfunc_spec import PrimFuncSpec
from chameleon_tvm._operators.spec import ACTIVATIONS, FusedSpec, OperatorSpec, TypedSpec

__all__ = [
    "ACTIVATIONS",
    "CONVOLUTIONS",
    "LAYOUT_HINT",
    "AttentionSpec",
    "BatchMatmulSpec",
    "Conv1dSpec",
    "Conv2dSpec",
    "Conv3dSpec",
    "ConvolutionSpec",
    "DenseSpec",
    "DepthwiseConv1dSpec",
    "DepthwiseConv2dSpec",
    "DepthwiseConv3dSpec",
    "DepthwiseSpec",
    "FusedSpec",
    "GroupedSpec",
    "OperatorSpec",
    "PrimFuncSpec",
    "TypedSpec",
    "channel_block",
    "convolution_of",
    "physical_index",
    "physical_shape",
]
