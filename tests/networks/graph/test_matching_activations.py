"""Activations are found by what they compute, and padding ends up in convolutions."""

import numpy as np
import pytest
import torch
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import fold_pads, prepare_module
from chameleon_networks._graph.relax_utils import relax

from ..modules import module_of  # noqa: TID252 - shared by folders

op = relax.op


def _number(value):
    return relax.const(np.float32(value))


def _hardswish(emit, x):
    clipped = emit(op.clip(emit(op.add(x, _number(3.0))), 0, 6))
    return op.divide(emit(op.multiply(x, clipped)), _number(6.0))


def _gelu_tanh(emit, x):
    cube = emit(op.multiply(emit(op.multiply(x, x)), x))
    inner = emit(op.add(x, emit(op.multiply(cube, _number(0.044715)))))
    bent = emit(op.tanh(emit(op.multiply(inner, _number(np.sqrt(2 / np.pi))))))
    half = emit(op.multiply(x, _number(0.5)))
    return op.multiply(half, emit(op.add(bent, _number(1.0))))


def _mish(emit, x):
    """As torch decomposes it: its softplus is the number itself above 20."""
    soft = emit(op.log(emit(op.add(emit(op.exp(x)), _number(1.0)))))
    whole = emit(op.where(emit(op.greater(x, _number(20.0))), x, soft))
    return op.multiply(x, emit(op.tanh(whole)))


def _elu(emit, x):
    below = emit(op.subtract(emit(op.exp(emit(op.minimum(x, _number(0.0))))), _number(1.0)))
    return op.add(emit(op.nn.relu(x)), below)


WRITTEN = {
    "gelu_sigmoid": lambda emit, x: op.multiply(
        x, emit(op.sigmoid(emit(op.multiply(x, _number(1.702)))))
    ),
    "leaky_relu(0.1)": lambda _, x: op.nn.leakyrelu(x, 0.1),
    "leaky_relu(0.25)": lambda emit, x: op.where(
        emit(op.greater(x, _number(0.0))), x, emit(op.multiply(x, _number(0.25)))
    ),
    "relu_squared": lambda emit, x: op.square(emit(op.nn.relu(x))),
    "mish": _mish,
    "elu": _elu,
    "hardswish": _hardswish,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda emit, x: op.multiply(x, emit(op.sigmoid(x))),
    "sigmoid": lambda _, x: op.sigmoid(x),
    "tanh": lambda _, x: op.tanh(x),
    "relu": lambda _, x: op.maximum(x, _number(0.0)),
    "relu6": lambda _, x: op.clip(x, 0, 6),
    "gelu": lambda _, x: op.nn.gelu(x),
    "hardsigmoid": lambda emit, x: op.divide(
        emit(op.clip(emit(op.add(x, _number(3.0))), 0, 6)), _number(6.0)
    ),
    "none": lambda _, x: op.multiply(x, x),
}


def _network(build, *, also=False):
    weights = np.random.default_rng(0).standard_normal((16, 8, 3, 3)).astype(np.float32)
    bias = relax.const(weights[:, :1, :1, :1].reshape(1, 16, 1, 1))

    def whole(emit, x):
        value = emit(op.add(emit(op.nn.conv2d(x, relax.const(weights))), bias))
        result = emit(build(emit, value))
        return op.add(result, value) if also else op.negative(result)

    return module_of(whole, (1, 8, 6, 6))


@pytest.mark.parametrize("name", sorted(WRITTEN))
def test_an_activation_becomes_part_of_the_kernel_before_it(name):
    [fusion] = find_fusions(prepare_module(_network(WRITTEN[name]), "NHWC"))
    assert fusion.spec.bias
    assert fusion.spec.activation == name


def _below(value):
    return lambda _, x: op.maximum(x, _number(value))


def _shifted(emit, x):
    return op.maximum(emit(op.add(x, _number(1e-8))), _number(1e-8))


def _bounded(bound):
    return lambda _, x: op.clip(x, 0, bound)


def _threshold(least):
    """As ``ThresholdedRelu`` of ONNX."""
    return lambda emit, x: op.where(emit(op.greater(x, _number(least))), x, _number(0.0))


def _mask(emit, x):
    chosen = emit(op.where(emit(op.greater(x, _number(1e-3))), _number(1.0), _number(0.0)))
    return op.multiply(x, chosen)


def _scaled_threshold(emit, x):
    """The threshold, one 200th, is no constant."""
    over = emit(op.greater(emit(op.multiply(x, _number(200.0))), _number(1.0)))
    return op.where(over, x, _number(0.0))


def _hundredths(emit, x):
    whole = emit(op.floor(emit(op.add(emit(op.multiply(x, _number(100.0))), _number(0.5)))))
    return op.nn.relu(emit(op.divide(whole, _number(100.0))))


def _late_threshold(emit, x):
    """Hard swish, but for the numbers around one of its bounds."""
    below = emit(op.less(x, _number(2.999)))
    return op.where(below, emit(_hardswish(emit, x)), x)


THRESHOLDS = [_threshold(0.005), _threshold(1e-30), _threshold(-1e-12)]
THRESHOLDS += [_mask, _scaled_threshold, _hundredths, _late_threshold]
BOUNDS = [_below(1e-7), _below(1e-12), _shifted, _bounded(5.999999), _bounded(255)]


@pytest.mark.parametrize("build", BOUNDS + THRESHOLDS)
def test_small_and_large_bounds_are_no_rounding(build):
    [fusion] = find_fusions(prepare_module(_network(build), "NHWC"))
    assert fusion.spec.activation == "none"


def test_what_is_read_before_its_activation_keeps_it_outside():
    [fusion] = find_fusions(prepare_module(_network(WRITTEN["silu"], also=True), "NHWC"))
    assert fusion.spec.activation == "none"


@pytest.mark.parametrize(("value", "operators"), [(0.0, 1), (1.0, 2)])
def test_zeros_around_an_image_are_padding_of_its_convolution(value, operators):
    def build(emit, x):
        padded = emit(op.nn.pad(x, [0, 0, 0, 0, 0, 1, 2, 3], pad_value=value))
        return op.nn.conv2d(padded, relax.const(np.ones((4, 8, 3, 3), np.float32)), padding=(1, 0))

    module = fold_pads(module_of(build, (1, 8, 6, 6)))
    calls = [binding.value for binding in module["main"].body.blocks[0].bindings]
    assert len(calls) == operators
    wanted = (1, 2, 2, 3) if operators == 1 else (1, 0, 1, 0)
    assert tuple(map(int, calls[-1].attrs.padding)) == wanted


def test_what_is_repeated_for_every_place_is_no_residual():
    """As where a step's embedding is added to all pixels of an image."""

    def build(emit, step, image):
        embedded = emit(op.matmul(step, relax.const(np.ones((8, 16), np.float32))))
        return op.add(image, emit(op.reshape(embedded, (1, 1, 1, 16))))

    [fusion] = find_fusions(prepare_module(module_of(build, (1, 8), (1, 5, 5, 16)), "NHWC"))
    assert not fusion.spec.residual


def test_equal_layers_may_have_an_activation_that_names_its_parts(deliver):
    rng = np.random.default_rng(0)
    layers = [rng.standard_normal((512, 512)).astype(np.float32) / 32 for _ in range(2)]

    def build(emit, x):
        for weights in layers:
            biased = emit(op.add(emit(op.matmul(x, relax.const(weights))), _number(0.1)))
            x = emit(op.nn.gelu(biased))
        return x

    x = rng.standard_normal((64, 512)).astype(np.float32)
    got = deliver(prepare_module(module_of(build, x.shape), "NCHW"), ready=True, guesses=True).run(
        x
    )
    for weights in layers:
        x = torch.nn.functional.gelu(torch.from_numpy(x @ weights + 0.1)).numpy()
    np.testing.assert_allclose(got, x, atol=1e-5 * np.abs(x).max())
