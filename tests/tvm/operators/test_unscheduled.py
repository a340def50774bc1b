"""Every operator's TensorIR computes what NumPy's float64 reference does."""

import numpy as np
import pytest
from chameleon_core.errors import ConfigError
from chameleon_core.task import Task
from chameleon_tvm.building.kernel import Program, TVMKernel
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.operators.specs import (
    AttentionSpec,
    BatchMatmulSpec,
    Conv1dSpec,
    Conv2dSpec,
    Conv3dSpec,
    ConvolutionSpec,
    DenseSpec,
    DepthwiseConv1dSpec,
    DepthwiseConv2dSpec,
    DepthwiseConv3dSpec,
)

TARGET = '{"kind": "llvm", "num-cores": 2}'

SPECS = [
    Conv2dSpec(input=[2, 8, 7, 6], filters=4, kernel=3, padding=1, stride=2),
    Conv2dSpec(input=[1, 8, 7, 6], filters=6, kernel=[1, 3], groups=2, layout="NHWC"),
    Conv2dSpec(
        input=[1, 8, 9, 9], filters=8, kernel=3, dilation=2, layout="NCHW4c", output_layout="NHWC"
    ),
    Conv2dSpec(input=[1, 4, 5, 5], filters=8, kernel=3, padding=[0, 1, 2, 0], layout="NHWC"),
    DepthwiseConv2dSpec(input=[1, 6, 5, 7], kernel=3, padding=1, multiplier=2, layout="NHWC"),
    DepthwiseConv2dSpec(input=[1, 8, 5, 7], kernel=3, stride=2, layout="NCHW8c"),
    Conv1dSpec(input=[2, 6, 11], filters=4, kernel=3, stride=2, padding=[0, 2], layout="NWC"),
    Conv1dSpec(input=[1, 6, 11], filters=4, kernel=4, dilation=2, groups=2),
    Conv3dSpec(
        input=[1, 4, 3, 5, 4],
        filters=6,
        kernel=[2, 3, 1],
        padding=[1, 0, 0, 0, 1, 2],
        stride=[1, 2, 1],
        layout="NDHWC",
    ),
    Conv3dSpec(input=[1, 8, 3, 5, 4], filters=8, kernel=3, padding=1, groups=2, layout="NCDHW4c"),
    DepthwiseConv1dSpec(input=[1, 5, 9], kernel=3, multiplier=2, layout="NWC"),
    DepthwiseConv3dSpec(input=[1, 5, 3, 4, 5], kernel=[1, 2, 3], dilation=[1, 2, 1]),
    DenseSpec(input=[3, 5], units=7),
    BatchMatmulSpec(a=[2, 3, 4], b=[2, 4, 5]),
    BatchMatmulSpec(a=[2, 3, 4], b=[2, 5, 4], transpose_b=True),
    AttentionSpec(
        query=[2, 4, 5, 3],
        key=[2, 2, 6, 3],
        value=[2, 2, 6, 7],
        scale=0.5,
        mask=[2, 1, 5, 6],
        query_layout="BSHD",
        key_layout="BHDS",
        output_layout="BSHD",
    ),
    AttentionSpec(
        query=[1, 2, 5, 3],
        key=[1, 2, 5, 3],
        value=[1, 2, 5, 3],
        causal=True,
        query_layout="BSHD",
        key_layout="BSHD",
        value_layout="BSHD",
        packed=True,
    ),
]


CONVOLUTIONS = [spec for spec in SPECS if isinstance(spec, ConvolutionSpec)]


def naive_convolution(data, weights, spec):
    """Nested loops, so that the reference itself has something to be compared with."""
    sides = zip(spec.pads[: spec.rank], spec.pads[spec.rank :], strict=True)
    padded = np.pad(data, ((0, 0), (0, 0), *sides))
    out = np.zeros(spec.output_shape)
    per_group = spec.output_channels // spec.group_count
    ic = spec.filter_shape[1]
    for n, o, *at in np.ndindex(out.shape):
        for c, *tap in np.ndindex(ic, *spec.kernel_size):
            place = np.multiply(at, spec.strides) + np.multiply(tap, spec.dilations)
            value = padded[(n, o // per_group * ic + c, *place)]
            out[(n, o, *at)] += value * weights[(o, c, *tap)]
    return out


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.kind}-{SPECS.index(spec)}")
def test_unscheduled_function_agrees_with_the_reference(spec):
    operator = operator_of(spec.task("t", TARGET))
    inputs = operator.inputs()
    program = Program(
        function=operator.prim_func(), inputs=operator.arrange(inputs), unpack=operator.logical
    )
    expected = operator.reference(inputs)
    for got, want in zip(TVMKernel(program, TARGET).outputs(), expected, strict=True):
        assert got.shape == want.shape
        assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("spec", CONVOLUTIONS, ids=lambda spec: f"{spec.kind}-{SPECS.index(spec)}")
def test_reference_agrees_with_nested_loops(spec):
    operator = operator_of(spec.task("t", TARGET))
    data, weights = (array.astype(np.float64) for array in operator.inputs())
    want = naive_convolution(data, weights, spec)
    np.testing.assert_allclose(operator.reference(operator.inputs())[0], want, atol=1e-12)


def test_inputs_are_the_same_every_time_and_in_every_layout():
    tasks = [
        Conv2dSpec(input=[1, 8, 4, 4], filters=8, kernel=1, layout=layout).task("t", TARGET)
        for layout in ("NCHW", "NHWC", "NCHW8c")
    ]
    first, *others = [operator_of(task).inputs() for task in tasks]
    for other in others:
        for one, two in zip(first, other, strict=True):
            np.testing.assert_array_equal(one, two)


def test_an_unknown_operator_is_an_error_with_a_hint():
    task = Task(name="t", operator="fft", arguments={}, target=TARGET, flop=1.0)
    with pytest.raises(ConfigError, match="'fft'") as caught:
        operator_of(task)
    assert "conv2d" in caught.value.hint
