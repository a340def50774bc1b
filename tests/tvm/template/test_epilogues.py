"""Templates with an epilogue in registers compute the reference, and pack a user's constants."""

from functools import partial

import computing
import numpy as np
import pytest
from chameleon_tvm.building.kernel import Program, TVMKernel
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.base import operator_of
from chameleon_tvm.operators.spec import leaky_relu
from chameleon_tvm.operators.specs import ACTIVATIONS, Conv2dSpec, DenseSpec, DepthwiseConv2dSpec
from chameleon_tvm.quick_tvm import te
from chameleon_tvm.spaces.template.options import TemplateOptions
from chameleon_tvm.spaces.template.provider import template_of
from computing import EPILOGUES, NATIVE, convolutions, few, first_of, shapes_of
from hypothesis import given, settings
from hypothesis import strategies as st

check = partial(computing.check, options=TemplateOptions(algorithms=("direct",)))
FEW = few(16)


@FEW
@given(convolutions(EPILOGUES), st.integers(0, 1000))
def test_convolutions(spec, seed):
    check(spec, seed)


@settings(FEW, max_examples=6)
@given(st.integers(16, 40), st.sampled_from(["NCHW", "NHWC"]), EPILOGUES, st.integers(0, 99))
def test_depthwise(channels, layout, epilogue, seed):
    spec = DepthwiseConv2dSpec(
        input=[1, channels, 9, 8], kernel=3, padding=1, layout=layout, **epilogue
    )
    check(spec, seed)


@settings(FEW, max_examples=8)
@given(
    st.integers(1, 20),
    st.integers(1, 60),
    EPILOGUES,
    st.sampled_from(ACTIVATIONS),
    st.integers(0, 99),
)
def test_dense(rows, units, epilogue, activation, seed):
    check(DenseSpec(input=[rows, 24], units=units, **{**epilogue, "activation": activation}), seed)


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
