"""Which fusions are in integers, with which constants, and what is left in real numbers."""

import numpy as np
import pytest
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.operators import count_unfused_operators
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax
from marks import full

from ...modules import module_of  # noqa: TID252 - shared by folders
from .pieces import Affine, convolution, dense, dequantized, evaluated, weights_of

op = relax.op
DATA = Affine(scale=2.0**-4, zero_point=100)
OUT = Affine(scale=2.0**-2, zero_point=9)


def fusion_of(build, *shape):
    """The only fusion of a network."""
    [fusion] = find_fusions(prepare_module(module_of(build, (shape, "float32")), "NCHW"))
    return fusion


def rng():
    return np.random.default_rng(0)


def test_constants_of_a_chain():
    def build(emit, x):
        x = DATA.pair(emit, x)
        x = convolution(emit, x, 5, 3, DATA.scale, rng=rng())
        return OUT.pair(emit, emit(op.nn.relu(x)))

    weights, scale, bias, quantization = fusion_of(build, 1, 4, 6, 6).constants.arrays
    assert (weights.dtype, scale.dtype, bias.dtype) == (np.int8, np.float32, np.int32)
    assert weights.shape == (5, 4, 3, 3)
    # The output's scale is in the sums': a positive factor passes through a ReLU.
    np.testing.assert_array_equal(quantization, [100, 1, 0, 1, 9])
    state = rng()
    own = (2.0 ** state.integers(-7, -5, 5)).astype(np.float32)
    np.testing.assert_array_equal(scale, own * DATA.scale / OUT.scale)
    state.integers(-128, 128, (5, 4, 3, 3))
    np.testing.assert_array_equal(bias, state.integers(-3000, 3000, (5,)))


def test_what_a_factor_does_not_pass_through_is_multiplied_behind_it():
    def build(emit, x):
        x = convolution(emit, DATA.pair(emit, x), 5, 3, DATA.scale, rng=rng())
        return OUT.pair(emit, emit(op.sigmoid(x)))

    fusion = fusion_of(build, 1, 4, 6, 6)
    assert fusion.spec.activation == "sigmoid"
    assert fusion.constants.quantization[3] == 1 / OUT.scale
    assert fusion.constants.scale.max() == DATA.scale * 2.0**-6


def test_a_result_that_others_read_as_well_is_real():
    def build(emit, x):
        sums = convolution(emit, DATA.pair(emit, x), 5, 3, DATA.scale, rng=rng())
        return OUT.pair(emit, sums), sums

    fusion = fusion_of(build, 1, 4, 6, 6)
    assert (fusion.spec.dtype, fusion.spec.output_dtype) == ("int8", "float32")


def test_with_a_real_residual_the_result_is_real():
    def build(emit, x):
        sums = convolution(emit, DATA.pair(emit, x), 4, 3, DATA.scale, rng=rng(), padding=1)
        return OUT.pair(emit, emit(op.add(sums, x)))

    fusion = fusion_of(build, 1, 4, 6, 6)
    assert fusion.spec.residual
    assert fusion.spec.output_dtype == "float32"


@pytest.mark.parametrize("residual", [False, True])
def test_a_bias_that_may_pass_32_bits_is_added_to_real_numbers(*, residual):
    def build(emit, x):
        data = DATA.pair(emit, x)
        weights, scale = weights_of(emit, rng(), (4, 4, 3, 3), 0)
        sums = emit(op.nn.conv2d(data, weights, padding=1))
        large = np.full((1, 4, 1, 1), 2.0**31 * DATA.scale * scale.max(), np.float32)
        sums = emit(op.add(sums, relax.const(large)))
        return OUT.pair(emit, emit(op.add(sums, data)) if residual else sums)

    fusion = fusion_of(build, 1, 4, 6, 6)
    assert (fusion.spec.dtype, fusion.spec.output_dtype) == ("int8", "float32")
    assert not fusion.constants.bias.any()


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
def test_wider_data_are_computed_in_float32(dtype):
    def build(emit, x):
        wide = Affine(scale=2.0**-8, zero_point=0, dtype=dtype)
        return convolution(emit, wide.pair(emit, x), 5, 3, wide.scale, rng=rng())

    fusions = find_fusions(prepare_module(module_of(build, ((1, 4, 6, 6), "float32")), "NCHW"))
    assert {fusion.spec.dtype for fusion in fusions} == {"float32"}


def test_sums_that_may_pass_32_bits_are_computed_in_float32():
    def build(emit, x):
        return dense(emit, DATA.pair(emit, x), 3, DATA.scale, rng=rng())

    assert fusion_of(build, 1, 66_000).spec.dtype == "float32"


@pytest.mark.parametrize(("zero", "kind"), [(128, "int8"), (100, "float32")])
def test_weights_of_uint8(zero, kind):
    def build(emit, x):
        numbers = np.arange(256, dtype=np.uint8).reshape(16, 16)
        weights = dequantized(emit, numbers, np.float32(0.5), np.uint8(zero), 1)
        return emit(op.matmul(DATA.pair(emit, x), weights))

    assert fusion_of(build, 3, 16).spec.dtype == kind


def test_a_scale_below_zero_keeps_no_order(deliver):
    turned = Affine(scale=-0.5, zero_point=3)

    def build(emit, x):
        return emit(op.nn.relu(emit(op.nn.max_pool2d(turned.pair(emit, x), (2, 2)))))

    module = module_of(build, ((1, 4, 6, 6), "float32"))
    image = np.random.default_rng(1).normal(0, 3, (1, 4, 6, 6)).astype(np.float32)
    np.testing.assert_array_equal(deliver(module).run(image), evaluated(module, image))


def test_transposed_convolutions_are_computed_in_float32():
    def build(emit, x):
        weights, _ = weights_of(emit, rng(), (4, 3, 2, 2), 1)
        return emit(op.nn.conv2d_transpose(DATA.pair(emit, x), weights, strides=(2, 2)))

    fusions = find_fusions(prepare_module(module_of(build, ((1, 4, 6, 6), "float32")), "NCHW"))
    assert {fusion.spec.dtype for fusion in fusions} == {"float32"}


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_padding_between_steps_is_the_convolutions(layout, kind):
    data = Affine(scale=2.0**-4, zero_point=100, dtype=kind)

    def build(emit, x):
        padded = emit(op.nn.pad(data.pair(emit, x), [0, 0, 0, 0, 1, 0, 2, 1]))
        return convolution(emit, data.pair(emit, padded), 5, 3, data.scale, rng=rng())

    module = prepare_module(module_of(build, ((1, 4, 6, 6), "float32")), layout)
    [fusion] = find_fusions(module)
    assert fusion.spec.dtype == "int8"
    assert fusion.spec.padding == (1, 2, 0, 1)
    assert set(count_unfused_operators(module, [fusion])) <= {"quantize", "permute_dims"}


def test_a_tensor_is_quantized_once():
    def build(emit, x):
        left = convolution(emit, DATA.pair(emit, x), 5, 1, DATA.scale, rng=rng())
        return left, convolution(emit, DATA.pair(emit, x), 5, 1, DATA.scale, rng=rng())

    module = prepare_module(module_of(build, ((1, 4, 6, 6), "float32")), "NCHW")
    fusions = find_fusions(module)
    assert count_unfused_operators(module, fusions) == {"quantize": 1}
    assert fusions[0].inputs == fusions[1].inputs


@pytest.mark.parametrize(
    ("rank", "layout"), [(1, "NCHW"), full(1, "NHWC"), full(3, "NCHW"), full(3, "NHWC")]
)
def test_other_ranks(deliver, rank, layout):
    def build(emit, x):
        x = DATA.pair(emit, x)
        more = {"strides": [2] * rank, "padding": [1] * rank}
        x = convolution(emit, x, 8, 3, DATA.scale, rng=rng(), groups=2, **more)
        x = OUT.pair(emit, x)
        x = convolution(emit, x, 16, 2, OUT.scale, rng=rng(), groups=8, dilation=[2] * rank)
        return OUT.pair(emit, emit(op.nn.relu(x)))

    shape = (2, 4, 9, 8, 7)[: rank + 2]
    module = module_of(build, (shape, "float32"))
    image = np.random.default_rng(1).normal(0, 3, shape).astype(np.float32)
    rewritten = prepare_module(module, layout)
    assert [fusion.spec.dtype for fusion in find_fusions(rewritten)] == ["int8", "int8"]
    network = deliver(module, layout=layout, guesses=True)
    np.testing.assert_array_equal(network.run(image), evaluated(module, image))


def test_products_of_several_rows(deliver):
    def build(emit, x):
        x = DATA.pair(emit, x)
        y = OUT.pair(emit, dense(emit, x, 24, DATA.scale, rng=rng()))
        y = emit(op.permute_dims(emit(op.reshape(y, [2, 5, 4, 6])), [0, 2, 1, 3]))
        y = OUT.pair(emit, y)
        return y, OUT.pair(emit, emit(op.add(dense(emit, x, 16, DATA.scale, rng=rng()), x)))

    module = module_of(build, ((2, 5, 16), "float32"))
    image = np.random.default_rng(1).normal(0, 3, (2, 5, 16)).astype(np.float32)
    network = deliver(module, guesses=True)
    for got, wanted in zip(network.run(image), evaluated(module, image), strict=True):
        np.testing.assert_array_equal(got, wanted)
