"""Int8 templates: every drawn configuration computes the integers of the reference."""

import numpy as np
import pytest
from chameleon_core._errors import ChameleonError
from chameleon_tvm._instructions.base import Dot
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._operators.convolution_specs import Conv1dSpec, Conv3dSpec, DepthwiseConv3dSpec
from chameleon_tvm._operators.spec import ACTIVATIONS
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.sketch.options import SketchOptions
from chameleon_tvm._spaces.sketch.provider import SketchSpace
from chameleon_tvm._spaces.template import arithmetic
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm.api import Conv2dSpec, DenseSpec, DepthwiseConv2dSpec
from computing import (
    NATIVE,
    PROVIDER,
    X86,
    arithmetic_in,
    check,
    convolutions,
    few,
    first_of,
    require_reference,
    resolved,
    shapes_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import full

PLAIN = resolved("llvm -mcpu=x86-64 -num-cores=2")
INT8 = {"dtype": "int8", "output_dtype": "uint8"}
FEW = few(25)
TYPES = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["int8", "int7"]),
        "output_dtype": st.sampled_from(["uint8", "uint8", "float32"]),
        "residual": st.booleans(),
        "activation": st.sampled_from(["none", "relu", "relu6"]),
    }
)


@pytest.mark.full
@FEW
@given(convolutions(TYPES), st.integers(0, 1000))
def test_convolutions(spec, seed):
    check(spec, seed)


@settings(FEW, max_examples=8)
@given(
    st.integers(1, 40), st.integers(1, 70), TYPES, st.sampled_from(ACTIVATIONS), st.integers(1, 9)
)
def test_dense(features, units, types, activation, seed):
    spec = DenseSpec(
        input=[seed % 4 + 1, features], units=units, **{**types, "activation": activation}
    )
    check(spec, seed)


@pytest.mark.full
@settings(FEW, max_examples=10)
@given(
    st.sampled_from(["NCHW", "NHWC", "NCHW8c"]),
    st.sampled_from([8, 16, 24, 40]),
    st.fixed_dictionaries(
        {
            "kernel": st.integers(1, 4),
            "stride": st.integers(1, 2),
            "multiplier": st.sampled_from([1, 1, 2]),
        }
    ),
    TYPES,
)
def test_depthwise(layout, channels, sizes, types):
    spec = DepthwiseConv2dSpec(
        input=[1, channels, 9, 7], padding=1, layout=layout, **sizes, **types
    )
    check(spec, channels)


@pytest.mark.parametrize(
    "spec",
    [
        Conv1dSpec(input=[1, 21, 30], filters=16, kernel=5, padding=2, layout="NWC", **INT8),
        full(
            Conv3dSpec(
                input=[1, 5, 4, 7, 7], filters=24, kernel=3, padding=1, layout="NDHWC", **INT8
            )
        ),
        DepthwiseConv3dSpec(input=[1, 16, 4, 7, 7], kernel=3, padding=1, layout="NDHWC", **INT8),
        full(
            Conv2dSpec(
                input=[1, 3, 33, 33],
                filters=64,
                kernel=7,
                stride=2,
                padding=3,
                layout="NHWC",
                **INT8,
            )
        ),
        Conv2dSpec(input=[1, 16, 9, 9], filters=16, kernel=3, groups=8, layout="NHWC", **INT8),
        # More taps than float32 adds up exactly.
        full(DepthwiseConv2dSpec(input=[1, 8, 27, 27], kernel=25, layout="NHWC", **INT8)),
    ],
    ids=lambda spec: f"{spec.kind}-{spec.kernel}",
)
def test_other_ranks_and_filters(spec):
    check(spec, seed=0, count=2)


@pytest.mark.parametrize(
    "spec",
    [
        Conv2dSpec(input=[1, 10, 9, 9], filters=24, kernel=3, padding=1, layout="NHWC", **INT8),
        full(DepthwiseConv2dSpec(input=[1, 16, 9, 9], kernel=3, padding=1, layout="NHWC", **INT8)),
        DenseSpec(input=[3, 33], units=20, **INT8),
    ],
    ids=lambda spec: spec.kind,
)
def test_cpus_without_an_instruction_for_integers_compute_the_same(spec):
    assert arithmetic_in(template_of(spec.task("t", PLAIN))).dot.depth == 1
    check(spec, seed=0, count=2, target=PLAIN)


@pytest.mark.parametrize(
    ("dtype", "weight"), [("int8", -128), ("int8", 127), ("int7", -64), ("int7", 64)]
)
@pytest.mark.parametrize(("data", "zero"), [(0, 255), (255, 0)])
def test_the_largest_sums_are_exact(data, zero, dtype, weight):
    depth = 65793
    spec = DenseSpec(input=[1, depth], units=8, dtype=dtype)
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=2)
    inputs = operator_of(builder.task).inputs()
    inputs[0][:], inputs[1][:], inputs[4][0] = data, weight, zero
    inputs[3][:] = 0
    builder.use(inputs)
    (got,) = builder.build(builder.space.first_guesses[0].tolist()).outputs()
    total = np.float32(depth * (data - zero) * weight)
    np.testing.assert_array_equal(got, total * inputs[2][None])


def test_outputs_are_those_of_float32_arithmetic_bit_by_bit():
    """What QLinearConv of ONNX says, where ``scale`` holds one over the output's scale."""
    spec = Conv2dSpec(input=[1, 24, 12, 12], filters=32, kernel=3, layout="NHWC", **INT8)
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=2)
    data, weights, scale, bias, numbers = builder.operator.inputs()
    numbers[3] = 1.0
    scale = scale * np.float32(40.0)
    builder.use([data, weights, scale, bias, numbers])
    windows = np.lib.stride_tricks.sliding_window_view(data.astype(np.int32) - 113, (3, 3), (2, 3))
    sums = np.einsum("nchwyx,ocyx->nohw", windows, weights.astype(np.int32))
    channel = (1, -1, 1, 1)
    real = (sums + bias.reshape(channel)).astype(np.float32) * scale.reshape(channel)
    expected = np.clip(np.rint(real) + numbers[4], 0, 255)
    for config in builder.space.first_guesses[:3]:
        (got,) = builder.build(config.tolist()).outputs()
        np.testing.assert_array_equal(got, expected)


def test_both_output_types_have_the_same_knobs():
    result = [
        PROVIDER.design_space(
            Conv2dSpec(
                input=[1, 16, 8, 8], filters=32, kernel=3, dtype="int8", output_dtype=output
            ).task("t", NATIVE)
        )
        for output in ("float32", "uint8")
    ]
    assert result[0].fingerprint == result[1].fingerprint


class Bytes(Dot):
    """What VNNI and ARM's dot products compute, on any CPU: bytes by signed bytes."""

    name = "bytes"
    summary = "groups of four bytes"
    mnemonics = ("pmulld",)
    data = "uint8"
    weights = "int8"
    sums = "int32"
    depth = 4
    vectors = {16: frozenset(), 32: frozenset(), 64: frozenset()}
    signed = False

    def meaning(self, sums, data, weights):
        return sums + weights.astype(np.int32) @ data.astype(np.int32)

    def emit(self, sums, data, weights, lanes):
        words = tirx.reinterpret(f"int32x{lanes}", weights)

        def byte(vector, place, *, signed):
            top = vector << tirx.Broadcast(tirx.IntImm("int32", 24 - 8 * place), lanes)
            shifted = top >> tirx.Broadcast(tirx.IntImm("int32", 24), lanes)
            return shifted if signed else shifted & tirx.Broadcast(tirx.IntImm("int32", 255), lanes)

        for place in range(self.depth):
            left = byte(data, place, signed=self.signed)
            sums += left * byte(words, place, signed=True)
        return sums


class SignedBytes(Bytes):
    name = "signed-bytes"
    data = "int8"
    signed = True


@pytest.mark.full
@pytest.mark.parametrize("dot", [Bytes, SignedBytes])
@pytest.mark.parametrize(
    "spec",
    [
        Conv2dSpec(input=[1, 16, 9, 9], filters=24, kernel=3, padding=1, layout="NHWC", **INT8),
        Conv2dSpec(input=[1, 16, 9, 9], filters=24, kernel=3, stride=2, layout="NCHW8c", **INT8),
        Conv2dSpec(input=[1, 3, 19, 19], filters=24, kernel=7, padding=3, stride=2, **INT8),
        Conv2dSpec(input=[1, 6, 9, 9], filters=48, kernel=3, padding=1, groups=2, **INT8),
        Conv2dSpec(input=[1, 5, 9, 9], filters=9, kernel=2, padding=2, dilation=2, **INT8),
        Conv3dSpec(input=[1, 8, 4, 7, 7], filters=24, kernel=3, padding=1, layout="NDHWC", **INT8),
        DenseSpec(input=[3, 64], units=20, **INT8),
        DenseSpec(input=[3, 33], units=20, dtype="int8"),
    ],
    ids=lambda spec: f"{spec.kind}-{spec.sizes}",
)
def test_bytes_are_multiplied_as_they_are(dot, spec, monkeypatch):
    """The zero point is in the padding and in the bias then."""
    monkeypatch.setattr(arithmetic, "integer_dots_of", lambda target, weights: [dot()])
    result = template_of(spec.task("t", NATIVE))
    # Planes in the padding are no part of a copy, so that zero has to be zero there.
    assert isinstance(arithmetic_in(result).dot, dot) == (spec.kind != "conv3d")
    check(spec, seed=3, count=2)


def test_data_are_read_in_place_where_there_is_nothing_to_fill_up(monkeypatch):
    monkeypatch.setattr(arithmetic, "integer_dots_of", lambda target, weights: [Bytes()])

    def inputs(**changes):
        spec = Conv2dSpec(
            **{"input": [1, 16, 9, 9], "filters": 24, "kernel": 3, "layout": "NHWC", **INT8}
            | changes
        )
        space = PROVIDER.design_space(spec.task("t", NATIVE))
        return space.knobs[space.index["input"]].options

    assert inputs() == ("copy", "in_place")
    assert inputs(layout="NCHW8c") == ("copy", "in_place")
    for changes in ({"padding": 1}, {"input": [1, 6, 9, 9]}, {"layout": "NCHW"}):
        assert inputs(**changes) == ("copy",)


@pytest.mark.parametrize(
    ("cpu", "dtype", "name"),
    [
        ("x86_64-linux-gnu -mcpu=znver4", "int8", "vpdpbusd"),
        ("x86_64-linux-gnu -mcpu=znver4", "int7", "vpdpbusd"),
        ("x86_64-linux-gnu -mcpu=alderlake", "int8", "vpdpbusd-vex"),
        ("x86_64-linux-gnu -mcpu=skylake-avx512", "int8", "vpmaddwd"),
        ("x86_64-linux-gnu -mcpu=skylake-avx512", "int7", "vpmaddubsw"),
        ("aarch64-linux-gnu -mcpu=neoverse-n1", "int8", "sdot"),
        ("aarch64-linux-gnu -mcpu=neoverse-n1", "int7", "sdot"),
        ("aarch64-linux-gnu -mcpu=neoverse-v1", "int8", "usdot"),
        ("aarch64-linux-gnu -mcpu=cortex-a72", "int8", "integer-multiply-add"),
        ("aarch64-linux-gnu -mcpu=cortex-a72", "int7", "integer-multiply-add"),
    ],
)
def test_first_guesses_of_every_cpu_are_legal_functions(cpu, dtype, name):
    target = resolved(f"llvm -mtriple={cpu} -num-cores=2")
    types = {**INT8, "dtype": dtype}
    for spec in (
        Conv2dSpec(input=[1, 8, 6, 6], filters=32, kernel=3, padding=1, layout="NHWC", **types),
        DenseSpec(input=[1, 16], units=40, **types),
    ):
        task = spec.task("t", target)
        template, space = template_of(task), PROVIDER.design_space(task)
        assert arithmetic_in(template).dot.name == name
        assert space.legal(space.first_guesses).all()
        values, function = first_of(template)
        weights, _, bias, _ = template.pack(values, operator_of(task).inputs()[1:])
        assert shapes_of(function)[1] == weights.shape
        assert (str(weights.dtype), str(bias.dtype)) == (
            arithmetic_in(template).dot.weights,
            "int32",
        )


@pytest.mark.parametrize("weight", [-65, -64, 64, 65])
def test_weights_that_an_instruction_does_not_multiply_exactly_are_refused(weight):
    task = DenseSpec(input=[1, 16], units=40, dtype="int7").task("t", resolved(f"{X86}haswell"))
    template = template_of(task)
    values, _ = first_of(template)
    constants = operator_of(task).inputs()[1:]
    constants[0][3, 5] = weight
    if abs(weight) == 64:
        assert template.pack(values, constants)[0].dtype == np.int8
        return
    with pytest.raises(ChameleonError, match="vpmaddubsw is exact with weights between -64 and 64"):
        template.pack(values, constants)


def test_generated_schedules_compute_the_same():
    spec = DenseSpec(input=[4, 64], units=32, dtype="int8")
    provider, task = SketchSpace(SketchOptions()), spec.task("t", NATIVE)
    builder = provider.builder(task, threads=2)
    require_reference(builder, provider.design_space(task).sample(2, np.random.default_rng(0)))
