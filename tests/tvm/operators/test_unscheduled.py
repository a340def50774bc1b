"""Every operator's TensorIR computes what NumPy's float64 reference does."""

import numpy as np
import pytest
from chameleon_tvm import api as specs
from chameleon_tvm._baselines.unscheduled import UnscheduledBuilder
from chameleon_tvm._operators import convolution_specs
from chameleon_tvm._operators.base import operator_of
from computing import NATIVE, naive_convolution, require_reference

from ..two_bytes import IN_TWO_BYTES, PRODUCTS, in_type  # noqa: TID252 - shared by folders

TARGET = '{"kind": "llvm", "num-cores": 2}'
FULL = {"bias": True, "residual": True}
INT8 = {"dtype": "int8", "output_dtype": "uint8"}
BSHD = dict.fromkeys(("query_layout", "key_layout", "value_layout", "output_layout"), "BSHD")


def conv(**changes):
    return specs.Conv2dSpec(**{"input": [1, 16, 6, 5], "filters": 32, "kernel": 3, **changes})


PLAIN = [
    conv(input=[2, 8, 7, 6], filters=4, padding=1, stride=2),
    conv(input=[1, 8, 7, 6], filters=6, kernel=[1, 3], groups=2, layout="NHWC"),
    conv(input=[1, 8, 9, 9], filters=8, dilation=2, layout="NCHW4c", output_layout="NHWC"),
    conv(input=[1, 4, 5, 5], filters=8, padding=[0, 1, 2, 0], layout="NHWC"),
    specs.DepthwiseConv2dSpec(input=[1, 6, 5, 7], kernel=3, padding=1, multiplier=2, layout="NHWC"),
    specs.DepthwiseConv2dSpec(input=[1, 8, 5, 7], kernel=3, stride=2, layout="NCHW8c"),
    convolution_specs.Conv1dSpec(
        input=[2, 6, 11], filters=4, kernel=3, stride=2, padding=[0, 2], layout="NWC"
    ),
    convolution_specs.Conv1dSpec(input=[1, 6, 11], filters=4, kernel=4, dilation=2, groups=2),
    convolution_specs.Conv3dSpec(
        input=[1, 4, 3, 5, 4],
        filters=6,
        kernel=[2, 3, 1],
        layout="NDHWC",
        padding=[1, 0, 0, 0, 1, 2],
        stride=[1, 2, 1],
    ),
    convolution_specs.Conv3dSpec(
        input=[1, 8, 3, 5, 4], filters=8, kernel=3, padding=1, groups=2, layout="NCDHW4c"
    ),
    convolution_specs.DepthwiseConv1dSpec(input=[1, 5, 9], kernel=3, multiplier=2, layout="NWC"),
    convolution_specs.DepthwiseConv3dSpec(
        input=[1, 5, 3, 4, 5], kernel=[1, 2, 3], dilation=[1, 2, 1]
    ),
    specs.DenseSpec(input=[3, 5], units=7),
    specs.BatchMatmulSpec(a=[2, 3, 4], b=[2, 4, 5]),
    specs.BatchMatmulSpec(a=[2, 3, 4], b=[2, 5, 4], transpose_b=True),
    specs.AttentionSpec(
        query=[2, 4, 5, 3],
        key=[2, 2, 6, 3],
        value=[2, 2, 6, 7],
        scale=0.5,
        **{**BSHD, "key_layout": "BHDS", "value_layout": "BHSD", "mask": [2, 1, 5, 6]},
    ),
    specs.AttentionSpec(
        **dict.fromkeys(("query", "key", "value"), (1, 2, 5, 3)),
        **{**BSHD, "output_layout": "BHSD", "causal": True, "packed": True},
    ),
]
FUSED = [
    conv(**FULL, activation="relu", layout="NHWC"),
    conv(**FULL, activation="relu6", layout="NCHW16c"),
    conv(**FULL, layout="NCHW", output_layout="NHWC"),
    conv(activation="relu"),
    conv(activation="hardswish"),
    specs.DepthwiseConv2dSpec(input=[1, 16, 6, 6], kernel=3, bias=True, activation="relu6"),
    specs.DenseSpec(input=[5, 9], units=7, **FULL, activation="gelu"),
    specs.DenseSpec(input=[5, 9], units=7, bias=True),
]
TYPED = [
    conv(padding=1, layout="NHWC", **INT8),
    conv(padding=1, residual=True, activation="relu", **INT8),
    conv(input=[1, 8, 6, 5], layout="NCHW4c", residual=True, dtype="int8"),
    conv(groups=2, stride=2, padding=(2, 0, 1, 1), activation="hardswish", **INT8),
    convolution_specs.Conv1dSpec(
        input=[2, 4, 9], filters=5, kernel=3, padding=1, dilation=2, **INT8
    ),
    convolution_specs.Conv3dSpec(input=[1, 3, 4, 4, 4], filters=5, kernel=2, padding=1, **INT8),
    specs.DepthwiseConv2dSpec(input=[1, 7, 6, 6], kernel=3, padding=1, layout="NHWC", **INT8),
    specs.DenseSpec(input=[5, 9], units=7, dtype="int8", residual=True, activation="gelu"),
    specs.DenseSpec(input=[1, 65793], units=3, dtype="int8"),
    specs.DenseSpec(input=[5, 9], units=7, dtype="int7", output_dtype="uint8"),
    *(in_type(spec, "bfloat16") for spec in IN_TWO_BYTES),
    *(in_type(spec, "float16", "float32") for spec in IN_TWO_BYTES[::3]),
    in_type(PRODUCTS[0], "float16"),
    in_type(PRODUCTS[1], "bfloat16", "float32"),
]
SPECS = [*PLAIN, *FUSED, *TYPED]
CONVOLUTIONS = [spec for spec in PLAIN if isinstance(spec, specs.ConvolutionSpec)]


def name_of(spec):
    return f"{spec.kind}-{spec.dtype}-{SPECS.index(spec)}"


@pytest.mark.full
@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_unscheduled_function_agrees_with_the_reference(spec):
    builder = UnscheduledBuilder(spec.task("t", NATIVE), threads=1)
    require_reference(builder, [()], most=1e-5 if spec in PLAIN else 1.0)


@pytest.mark.parametrize("spec", CONVOLUTIONS, ids=name_of)
def test_reference_agrees_with_nested_loops(spec):
    operator = operator_of(spec.task("t", TARGET))
    data, weights = (array.astype(np.float64) for array in operator.inputs())
    want = naive_convolution(data, weights, spec)
    np.testing.assert_allclose(operator.reference(operator.inputs())[0], want, atol=1e-12)


def test_inputs_are_the_same_every_time_and_in_every_layout():
    tasks = [
        specs.Conv2dSpec(input=[1, 8, 4, 4], filters=8, kernel=1, layout=layout).task("t", TARGET)
        for layout in ("NCHW", "NHWC", "NCHW8c")
    ]
    first, *others = [operator_of(task).inputs() for task in tasks]
    for other in others:
        for row, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(row, two)
