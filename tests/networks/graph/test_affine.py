"""Scales and shifts of channels end up in the weights before them."""

import numpy as np
import pytest
import torch
from chameleon_networks._graph.fold_scales import fold_scales
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax
from hypothesis import given, settings
from hypothesis import strategies as st

from ..modules import expected, module_of, operators_of  # noqa: TID252 - shared by folders

RNG = np.random.default_rng(0)
ONES = np.ones((1, 4, 1, 1), np.float32)
STEPS = ("add", "subtract", "multiply", "divide")


def _constant(*shape):
    return RNG.uniform(0.5, 1.5, shape).astype(np.float32)


def _built(base, shape, steps):
    def build(emit, x):
        value = emit(base(x)) if base else x
        for name, constant, turned in steps:
            pair = (value, relax.const(constant))
            value = emit(getattr(relax.op, name)(*(pair[::-1] if turned else pair)))
        return value

    return module_of(build, shape)


def _convolution(source):
    return relax.op.nn.conv2d(source, relax.const(_constant(4, 3, 3, 3)))


def _product(source):
    return relax.op.matmul(source, relax.const(_constant(6, 4)))


BASES = {
    "convolution": (_convolution, (1, 3, 5, 5), (1, 4, 1, 1)),
    "product": (_product, (2, 3, 6), (4,)),
}


@settings(max_examples=8)
@given(
    base=st.sampled_from(sorted(BASES)),
    steps=st.lists(
        st.tuples(st.sampled_from(STEPS), st.booleans(), st.booleans()), min_size=2, max_size=5
    ),
)
def test_the_network_computes_the_same(base, steps):
    make, shape, channels = BASES[base]
    layers = [
        (name, _constant(*(channels if many else (1,))), turned and name != "divide")
        for name, many, turned in steps
    ]
    module = _built(make, shape, layers)
    folded = fold_scales(module)
    array = RNG.standard_normal(shape).astype(np.float32)
    [wanted], [got] = expected(module, array), expected(folded, array)
    assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()
    # A shift of all channels alike stays by itself, because activations begin with one.
    alone = [
        not many and (name == "add" or (name == "subtract" and not turned))
        for name, many, turned in steps
    ]
    rest = len(steps) - (alone.index(True) if True in alone else len(steps))
    assert len(operators_of(folded)) <= min(2 + rest, len(operators_of(module)))


@pytest.mark.parametrize(
    "last",
    [
        [(name, _constant(1, 4, 1, 1)) for name in (*STEPS[1:], "add")],
        # As of networks that nobody has trained yet: it neither scales nor shifts.
        [("divide", _constant(1, 4, 1, 1)), ("multiply", ONES), ("add", 0 * ONES)],
    ],
)
def test_a_normalisation_behind_a_biased_convolution_is_a_bias(last):
    steps = [(*step, False) for step in [("add", _constant(1, 4, 1, 1)), *last]]
    module = fold_scales(_built(_convolution, (1, 3, 5, 5), steps))
    assert operators_of(module) == ["nn.conv2d", "add"]


def test_a_bias_alone_stays_as_it_is():
    module = _built(_convolution, (1, 3, 5, 5), [("add", _constant(1, 4, 1, 1), False)])
    assert fold_scales(module) is module


def test_arithmetic_on_other_data_stays_as_it_is():
    steps = [(name, _constant(1, 4, 1, 1), False) for name in STEPS]
    module = _built(None, (1, 4, 3, 3), steps)
    assert fold_scales(module) is module


def test_shifts_that_round_stay_as_they_are():
    large = np.full((1, 4, 1, 1), 12582912, np.float32)
    steps = [("add", large, False), ("subtract", large, False)]
    module = fold_scales(_built(_convolution, (1, 3, 5, 5), steps))
    assert operators_of(module) == ["nn.conv2d", "add", "subtract"]


@pytest.mark.parametrize(
    ("dtype", "least"), [("float32", None), ("float16", None), ("float32", 1e-10)]
)
def test_a_batch_normalization_is_a_scaled_distance_and_a_shift(dtype, least):
    """Torch itself loses the digits of a small distance, and so computes in float64."""
    gamma, beta, mean, variance = (_constant(4) for _ in range(4))
    array = RNG.standard_normal((1, 4, 3, 3)).astype(dtype)
    if least:
        variance = least * variance
        array = array * np.float32(least**0.5) + mean[:, None, None]

    def build(emit, x):
        parameters = [relax.const(each.astype(dtype)) for each in (gamma, beta, mean, variance)]
        call = relax.op.nn.batch_norm(x, *parameters, axis=1, momentum=1.0, training=False)
        return emit(relax.TupleGetItem(emit(call), 0))

    module = prepare_module(module_of(build, ((1, 4, 3, 3), dtype)), "NCHW")
    steps = ["add", "multiply", "add"]
    assert operators_of(module) == (steps if dtype == "float32" else ["astype", *steps, "astype"])
    [got] = expected(module, array)
    rounded = (each.astype(dtype).astype("d") for each in (array, mean, variance, gamma, beta))
    wanted = torch.nn.functional.batch_norm(*map(torch.from_numpy, rounded))
    largest = np.abs(wanted.numpy()).max()
    np.testing.assert_allclose(got, wanted.numpy(), rtol=0, atol=2 * np.finfo(dtype).eps * largest)


@pytest.mark.parametrize("name", ["multiply", "divide"])
def test_what_others_read_unscaled_keeps_its_weights(name):
    def build(emit, x):
        value = emit(_convolution(x))
        scaled = getattr(relax.op, name)(value, relax.const(_constant(1, 4, 1, 1)))
        return relax.op.add(emit(scaled), value)

    module = fold_scales(module_of(build, (1, 3, 5, 5)))
    assert operators_of(module) == ["nn.conv2d", name, "add"]
