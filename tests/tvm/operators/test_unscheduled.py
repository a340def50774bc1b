"""Every operator's TensorIR computes what NumPy's float64 reference does."""

import numpy as np
import pytest
from chameleon_core.errors import ConfigError
from chameleon_core.task import Task
from chameleon_tvm.kernel import Program, TVMKernel
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.operators.specs import (
    AttentionSpec,
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
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


def naive_convolution(data, weights, spec):
    """Seven nested loops, so that the reference itself has something to be compared with."""
    (sh, sw), (dh, dw), (top, left, bottom, right) = spec.strides, spec.dilations, spec.pads
    padded = np.pad(data, ((0, 0), (0, 0), (top, bottom), (left, right)))
    out = np.zeros(spec.output_shape)
    per_group = spec.output_channels // spec.group_count
    _, ic, kh, kw = spec.filter_shape
    for n, o, y, x in np.ndindex(out.shape):
        for c, ry, rx in np.ndindex(ic, kh, kw):
            value = padded[n, o // per_group * ic + c, y * sh + ry * dh, x * sw + rx * dw]
            out[n, o, y, x] += value * weights[o, c, ry, rx]
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


@pytest.mark.parametrize("spec", SPECS[:6], ids=lambda spec: f"{spec.kind}-{SPECS.index(spec)}")
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
