"""Random legal configurations of every template compute the reference's numbers, with epilogues.

Epilogues are in registers; a network packs its own constants for them.
"""

import platform
from functools import partial

import computing
import numpy as np
import pytest
from chameleon_core._errors import InvalidConfigurationError
from chameleon_tvm._building.kernel import Program, TVMKernel
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._operators.activations import activate
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._operators.spec import ACTIVATIONS, leaky_relu
from chameleon_tvm._quick_tvm import te
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec, DepthwiseConv2dSpec
from computing import (
    EPILOGUES,
    NATIVE,
    convolutions,
    few,
    first_of,
    provider_of,
    resolved,
    shapes_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import full

HASWELL = resolved("llvm -mcpu=haswell -num-cores=2")
RUNS_X86 = platform.machine() in {"x86_64", "AMD64"}
DIRECT = TemplateOptions(algorithms=("direct",))
PROVIDER = provider_of(DIRECT)
check = partial(computing.check, options=DIRECT)
FEW = few(28)


@pytest.mark.full
@FEW
@given(convolutions(EPILOGUES), st.integers(0, 1000))
def test_convolutions(spec, seed):
    check(spec, seed)


@st.composite
def depthwise(draw):
    layout = draw(st.sampled_from(["NCHW", "NHWC", "NCHW4c", "NCHW16c"]))
    channels = draw(st.integers(16, 50)) if "c" not in layout else 16 * draw(st.integers(1, 3))
    size = st.integers(5, 13)
    return DepthwiseConv2dSpec(
        input=[draw(st.integers(1, 2)), channels, draw(size), draw(size)],
        kernel=(draw(st.integers(1, 5)), draw(st.integers(1, 5))),
        stride=draw(st.integers(1, 2)),
        padding=draw(st.integers(0, 2)),
        layout=layout,
        **draw(EPILOGUES),
    )


@pytest.mark.full
@settings(FEW, max_examples=12)
@given(depthwise(), st.integers(0, 1000))
def test_depthwise_convolutions(spec, seed):
    check(spec, seed)


@settings(FEW, max_examples=6)
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 40), st.integers(1, 70)),
    EPILOGUES,
    st.sampled_from(ACTIVATIONS),
    st.integers(0, 1000),
)
def test_dense(sizes, epilogue, activation, seed):
    rows, features, units = sizes
    epilogue = {**epilogue, "activation": activation}
    check(DenseSpec(input=[rows, features], units=units, **epilogue), seed)


@settings(FEW, max_examples=6)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20), st.integers(1, 40)),
    st.booleans(),
    st.integers(0, 1000),
)
def test_batch_matmul(sizes, transpose, seed):
    batch, rows, inner, columns = sizes
    right = [batch, columns, inner] if transpose else [batch, inner, columns]
    check(BatchMatmulSpec(a=[batch, rows, inner], b=right, transpose_b=transpose), seed)


@pytest.mark.parametrize("layout", ["NHWC", full("NCHW")])
def test_the_stem_has_three_channels_and_a_large_filter(layout):
    check(
        Conv2dSpec(input=[1, 3, 33, 33], filters=64, kernel=7, stride=2, padding=3, layout=layout),
        seed=0,
        count=4,
    )


def test_an_illegal_configuration_is_refused_with_its_reason():
    task = DenseSpec(input=[64, 64], units=64).task("t", NATIVE)
    space = PROVIDER.design_space(task)
    everything = space.from_keys(np.arange(space.size))
    illegal = everything[~space.legal(everything)][0]
    with pytest.raises(InvalidConfigurationError, match=space.why_illegal(illegal)):
        PROVIDER.builder(task, threads=2).build(illegal.tolist())


@pytest.mark.skipif(
    not RUNS_X86 or target_info(NATIVE).vector_bytes < 32,
    reason="this machine cannot run AVX2 code",
)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW8c"])
def test_code_for_avx2_computes_the_same(layout):
    info = target_info(HASWELL)
    assert (info.lanes("float32"), info.vector_registers) == (8, 16)
    spec = Conv2dSpec(input=[1, 16, 9, 11], filters=24, kernel=3, padding=1, layout=layout)
    check(spec, seed=0, count=2, target=HASWELL)


def narrow(space, count, seed):
    """Tiles of two columns that read the input in place."""
    drawn = space.sample(count, np.random.default_rng(seed))
    wanted = {"tile_columns": 2, "input": "in_place"}
    return [config for config in drawn if space.decode(config).items() >= wanted.items()]


@pytest.mark.skipif(not RUNS_X86, reason="this machine cannot run x86 code")
@pytest.mark.parametrize("kind", [full(partial(Conv2dSpec, filters=16)), DepthwiseConv2dSpec])
def test_a_tile_may_read_padding_alone(kind):
    spec = kind(input=[1, 16, 3, 9], kernel=1, padding=2, layout="NHWC")
    check(spec, count=30, target=resolved("llvm -mcpu=nehalem -num-cores=2"), chosen=narrow)


@pytest.mark.parametrize(
    "spec",
    [
        Conv2dSpec(
            input=[1, 16, 7, 7],
            filters=40,
            kernel=3,
            groups=2,
            layout="NHWC",
            bias=True,
            residual=True,
            activation="relu",
        ),
        DenseSpec(input=[6, 20], units=24, bias=True, activation="gelu"),
    ],
    ids=["conv2d", "dense"],
)
def test_a_network_packs_its_own_weights(spec):
    """As a network does: the function and ``pack``, on arrays in the operator's own shapes."""
    task = spec.task("t", NATIVE)
    template, operator = template_of(task), operator_of(task)
    values, function = first_of(template)
    rng = np.random.default_rng(5)
    inputs = [rng.normal(size=array.shape).astype(np.float32) for array in operator.inputs()]
    constants = sorted(operator.constants)
    packed = template.pack(values, [inputs[index] for index in constants])
    arrays = list(operator.arrange(inputs))
    for index, array in zip(constants, packed, strict=True):
        arrays[index] = array
    assert shapes_of(function)[:-1] == [array.shape for array in arrays]
    kernel = TVMKernel(Program(function=function, inputs=arrays, plain_loops=True), NATIVE)
    (got,) = operator.logical(kernel.outputs())
    (expected,) = operator.reference(inputs)
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("activation", [*ACTIVATIONS, leaky_relu(0.2), leaky_relu(1e-05)])
def test_activations_are_good_to_float32(activation):
    """Far beyond the range of the fit of erf, too, and NaN stays NaN."""
    numbers = np.concatenate([np.linspace(-12, 12, 4001), [-1e4, 1e4, np.nan]]).astype(np.float32)
    data = te.placeholder(numbers.shape, "float32", name="data")
    out = te.compute(numbers.shape, lambda i: activate(data(i), activation), name="out")
    program = Program(function=te.create_prim_func([data, out]), inputs=[numbers])
    (got,) = TVMKernel(program, NATIVE).outputs()
    spec = DenseSpec(input=[1, 1], units=1, activation=activation)
    reference = operator_of(spec.task("t", NATIVE)).epilogue.reference
    with np.errstate(invalid="ignore"):
        expected = reference(numbers.astype(np.float64)[None], [])[0]
    np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-6)
