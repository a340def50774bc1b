"""Int8 operators: what they refuse, their reference against plain loops, their extremes."""

import math

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm._baselines.unscheduled import UnscheduledBuilder
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._operators.epilogues import Quantization
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec
from computing import NATIVE, naive_convolution
from hypothesis import given, settings
from hypothesis import strategies as st

CUDA = '{"kind": "cuda", "arch": "sm_90"}'
INT8 = {"dtype": "int8", "output_dtype": "uint8"}


def conv(**changes):
    return Conv2dSpec(
        **{"input": [1, 6, 6, 5], "filters": 8, "kernel": 3, "dtype": "int8"} | changes
    )


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: conv(output_dtype="int8"), "output_dtype 'int8' is not supported"),
        (lambda: conv(dtype="float32", output_dtype="uint8"), "is for int8 operators"),
        (lambda: conv(bias=True), "always adds an int32 bias"),
        (lambda: DenseSpec(input=[1, 65794], units=1, dtype="int8"), "could overflow 32 bits"),
        (lambda: conv(input=[1, 7311, 6, 6]), "sums of 65799 products"),
        (lambda: conv(dtype="bfloat16", output_dtype="uint8"), "is for int8 operators"),
        (lambda: conv(output_dtype="float16"), "is for float16 operators, and dtype is 'int8'"),
        (
            lambda: BatchMatmulSpec(a=[1, 1, 33026], b=[1, 33026, 1], dtype="int8"),
            "sums of 33026 products",
        ),
        (lambda: conv(dtype="uint8"), "dtype 'uint8' is not supported"),
        (
            lambda: BatchMatmulSpec(a=[1, 2, 3], b=[1, 3, 2], dtype="int7"),
            "dtype 'int7' is not supported",
        ),
        (lambda: conv(dtype="int7").task("t", CUDA), "is for llvm targets"),
        (lambda: conv().task("t", CUDA), "is for llvm targets, and the target is 'cuda'"),
        (lambda: conv().task("t", '{"kind": "vulkan"}'), "the target is 'vulkan'"),
    ],
)
def test_what_cannot_be_computed_is_said_in_a_sentence(make, said):
    with pytest.raises(ConfigError, match=said) as caught:
        make()
    assert caught.value.hint


def test_tasks_of_float32_say_nothing_of_output_types():
    plain = Conv2dSpec(input=[1, 16, 8, 8], filters=32, kernel=3)
    assert "output_dtype" not in plain.arguments()
    both = {spec.task("x", NATIVE).key for spec in (conv(), conv(output_dtype="uint8"))}
    assert len(both) == 2
    assert Conv2dSpec.of(conv(**INT8).task("t", NATIVE)).output_dtype == "uint8"


def test_inputs_fill_their_ranges_and_outputs_most_of_theirs():
    operator = operator_of(
        conv(input=[1, 64, 16, 16], filters=64, residual=True, **INT8).task("t", NATIVE)
    )
    data, weights, scale, bias, numbers, residual = inputs = operator.inputs()
    types = ["uint8", "int8", "float32", "int32", "float32", "uint8"]
    assert [str(array.dtype) for array in inputs] == types
    assert (data.min(), data.max(), weights.min(), weights.max()) == (0, 255, -128, 127)
    assert (scale > 0).all()
    assert np.abs(bias).max() > 1000
    assert residual.shape == operator.spec.output_shape
    assert (numbers != 0).all()
    (expected,) = operator.reference(inputs)
    assert 0.0 < np.mean((expected == 0) | (expected == 255)) < 0.2
    assert len(np.unique(expected)) == 256
    assert operator.constants == {1, 2, 3, 4}


def test_weights_of_seven_bits_fill_their_range():
    spec = conv(input=[1, 64, 16, 16], filters=64, dtype="int7", output_dtype="uint8")
    operator = operator_of(spec.task("t", NATIVE))
    inputs = operator.inputs()
    assert (inputs[1].dtype, inputs[1].min(), inputs[1].max()) == (np.int8, -64, 64)
    (expected,) = operator.reference(inputs)
    assert len(np.unique(expected)) > 200


@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "relu6", "hardswish"])
def test_bounded_activations_do_not_collapse(activation):
    operator = operator_of(
        conv(input=[1, 6, 20, 20], activation=activation, **INT8).task("t", NATIVE)
    )
    assert len(np.unique(operator.reference(operator.inputs())[0])) > 40


def by_loops(spec, inputs):
    """The definition: one integer after the other, and what follows from their sums."""
    data, weights, scale, bias, numbers, *residual = inputs
    known, channel = Quantization.of(numbers), (-1, 1, 1)
    centred = data.astype(np.int64) - int(known.data_zero_point)
    sums = naive_convolution(centred, weights.astype(np.int64), spec) + bias.reshape(channel)
    real = (sums.astype(np.float32) * scale.reshape(channel)).astype(np.float64)
    if residual and spec.output_dtype == "uint8":
        real += (residual[0].astype(int) - known.residual_zero_point) * known.residual_scale
    elif residual:
        real += residual[0]
    if spec.activation == "relu":
        real = np.maximum(real, 0.0)
    if spec.output_dtype == "uint8":
        real = np.clip(np.rint(real * known.out_multiplier) + known.out_zero_point, 0, 255)
    return real


@settings(max_examples=20, deadline=None, derandomize=True)
@given(
    st.integers(1, 3),
    st.integers(0, 2),
    st.fixed_dictionaries(
        {
            "groups": st.sampled_from([1, 1, 3]),
            "stride": st.integers(1, 2),
            "output_dtype": st.sampled_from(["float32", "uint8"]),
            "residual": st.booleans(),
            "activation": st.sampled_from(["none", "relu"]),
        }
    ),
)
def test_the_reference_is_what_loops_compute(kernel, padding, more):
    spec = Conv2dSpec(
        input=[2, 3, 4, 3],
        filters=3,
        kernel=kernel,
        padding=(padding, 1, 0, padding),
        dilation=(1, 2) if kernel == 2 else 1,
        dtype="int8",
        **more,
    )
    operator = operator_of(spec.task("t", NATIVE))
    inputs = operator.inputs()
    (got,) = operator.reference(inputs)
    np.testing.assert_allclose(got, by_loops(spec, inputs), rtol=1e-12, atol=1e-12)


def require_both(spec, inputs, expected):
    """The reference and the unscheduled function give what is expected of logical inputs."""
    builder = UnscheduledBuilder(spec.task("t", NATIVE), threads=1)
    builder.use(inputs)
    with np.errstate(over="ignore"):
        answers = [*operator_of(builder.task).reference(inputs), *builder.build([]).outputs()]
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)


@pytest.mark.parametrize(
    ("data", "zero", "weight"), [(255, 0, -128), (0, 255, -128), (0, 255, 127)]
)
def test_the_largest_sums_stay_exact(data, zero, weight):
    depth = 65793
    spec = DenseSpec(input=[1, depth], units=2, dtype="int8")
    inputs = [
        np.full((1, depth), data, np.uint8),
        np.full((2, depth), weight, np.int8),
        np.array([1.0, 0.5], np.float32),
        np.array([0, 64], np.int32),
        Quantization(data_zero_point=zero).array,
    ]
    total = depth * (data - zero) * weight
    assert abs(total) < 2**31
    expected = [[np.float32(total), np.float32(total + 64) * np.float32(0.5)]]
    require_both(spec, inputs, expected)


@pytest.mark.parametrize("scale", [1e38, 1.0, 1e-30, -1e38])
def test_outputs_saturate_and_never_wrap_around(scale):
    """An infinite product is at the end of the range, too."""
    spec = DenseSpec(input=[2, 4], units=3, **INT8)
    inputs = [
        np.array([[200] * 4, [3] * 4], np.uint8),
        np.array([[127] * 4, [-128] * 4, [0] * 4], np.int8),
        np.full(3, scale, np.float32),
        np.zeros(3, np.int32),
        Quantization(data_zero_point=100.0, out_multiplier=1e3, out_zero_point=7.0).array,
    ]
    signs = math.copysign(1, scale) * np.array([[1, -1, 0], [-1, 1, 0]])
    # 1e-30 is far less than half of a step.
    expected = np.full((2, 3), 7.0)
    if abs(scale) >= 1.0:
        expected = np.where(signs > 0, 255.0, np.where(signs < 0, 0.0, 7.0))
    require_both(spec, inputs, expected)


def test_halves_are_rounded_to_even_numbers():
    spec = DenseSpec(input=[1, 1], units=6, **INT8)
    inputs = [
        np.array([[1]], np.uint8),
        np.array([[1], [2], [3], [5], [7], [-1]], np.int8),
        np.full(6, 0.5, np.float32),
        np.zeros(6, np.int32),
        Quantization(data_zero_point=0.0, out_zero_point=10.0).array,
    ]
    expected = [[10, 11, 12, 12, 14, 10]]
    require_both(spec, inputs, expected)
