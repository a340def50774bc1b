"""Arithmetic on data is that of IEEE 754 and of two's complement, as NumPy's is."""

import os

import numpy as np
import pytest
from chameleon_networks._graph.constants import evaluate
from chameleon_networks._graph.relax_utils import relax
from marks import full

from ...modules import module_of  # noqa: TID252 - shared by folders
from . import expressions

op = relax.op
AT_ONCE = 40
"""Expressions that are compiled as one network."""
MANY = int(os.environ.get("CHAMELEON_EXPRESSIONS", "6")) * AT_ONCE
"""Expressions of each dtype in the long test; 20,000 of all dtypes are 84 networks for each."""


def _wrong(deliver, dtype, seed, count):
    """Expressions whose delivered numbers have other bits than NumPy's, with an example."""
    rng = np.random.default_rng([seed, expressions.DTYPES.index(dtype)])
    drawing = expressions.Drawing(dtype, rng)
    drawn = [drawing.expression() for _ in range(count)]
    inputs = expressions.inputs_of(dtype, rng)
    outputs = deliver(expressions.module_of(drawn, dtype)).run(*inputs.values())
    wrong = {}
    for each, output in zip(drawn, outputs, strict=True):
        with np.errstate(all="ignore"):
            wanted = each.value(inputs)
        got = output.view(wanted.dtype)
        places = expressions.differing(got, wanted)
        if places.size:
            values = {name: array[places[0]] for name, array in inputs.items()}
            wrong[each.text] = values, got[places[0]], wanted[places[0]]
    return wrong


EACH_KIND = {"bfloat16", "float32", "uint8"}


@pytest.mark.parametrize(
    "dtype", [one if one in EACH_KIND else full(one) for one in expressions.DTYPES]
)
def test_random_expressions_give_numpys_bits(deliver, dtype):
    assert _wrong(deliver, dtype, 0, 6) == {}


@pytest.mark.long
@pytest.mark.parametrize("dtype", expressions.DTYPES)
def test_many_random_expressions_give_numpys_bits(deliver, dtype):
    for seed in range(1, 1 + MANY // AT_ONCE):
        assert _wrong(deliver, dtype, seed, AT_ONCE) == {}


def _floats(emit, x, y):
    number = relax.const(12582912.0)
    return (
        emit(emit(x + number) - number),
        emit(emit(x + y) - x),
        emit(emit(x * y) - emit(x * y)),
        emit(x * relax.const(0.0)),
        emit(x + relax.const(0.0)),
        emit(emit(emit(relax.const(0.0) - x) + relax.const(0.0)) + relax.const(-0.0)),
        emit(op.equal(x, x)),
        emit(op.not_equal(x, x)),
        emit(op.isfinite(x)),
        emit(emit(x * y) + y),
        emit(emit(op.minimum(emit(x * y), emit(x * y))) - y),
        emit(emit(op.where(emit(x > y), emit(x * y), emit(y * x))) - y),
        emit(emit(emit(x * y) / relax.const(1.0)) - y),
    )


def test_floats_are_no_real_numbers(deliver):
    x = 3 * np.random.default_rng(0).standard_normal(100, np.float32)
    y = np.random.default_rng(1).standard_normal(100, np.float32)
    x[:5] = np.nan, np.inf, -np.inf, -0.0, 0.0
    number, zero = np.float32(12582912), np.float32(0)
    with np.errstate(all="ignore"):
        wanted = (
            *((x + number) - number, (x + y) - x, x * y - x * y, x * zero, x + zero),
            zero - x + zero,
            *(x == x, x != x, np.isfinite(x), x * y + y),  # noqa: PLR0124 - false for NaN
            *[x * y - y] * 3,
        )
    network = deliver(module_of(_floats, (x.shape, "float32"), (x.shape, "float32")))
    for output, numbers in zip(network.run(x, y), wanted, strict=True):
        np.testing.assert_array_equal(output, numbers)
        assert (np.signbit(output) == np.signbit(numbers))[3:].all()


def _integers(emit, n):
    one, three, seven = (relax.const(each, str(n.ty.dtype)) for each in (1, 3, 7))
    return (
        emit(op.floor_divide(emit(n * three), three)),
        emit(op.floor_mod(emit(n * seven), seven)),
        emit(emit(n + one) > n),
        emit(op.maximum(n, emit(n + one))),
        emit(op.greater_equal(emit(op.abs(n)), emit(n - n))),
        emit(op.negative(emit(op.floor_divide(emit(op.negative(n)), three)))),
    )


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_wrap(deliver, dtype):
    ends = np.iinfo(dtype)
    n = np.array([ends.min, ends.max, ends.max // 2 + 5, 7, -7, 0], dtype)
    with np.errstate(all="ignore"):
        wanted = (
            *((n * 3) // 3, (n * 7) % 7, n + 1 > n, np.maximum(n, n + 1)),
            *(np.abs(n) >= 0, -(-n // 3)),
        )
    network = deliver(module_of(_integers, (n.shape, dtype)))
    for output, numbers in zip(network.run(n), wanted, strict=True):
        np.testing.assert_array_equal(output, numbers)


def _places(emit, n):
    places = emit(op.arange(0, 12, 1, "int64"))
    large = relax.const(2**31, "int64")
    return emit(emit(places * large) + n), emit(op.equal(n, places))


def test_places_may_be_numbers(deliver):
    n = np.arange(12) % 5 + 2**60 * (np.arange(12) % 3)
    product, equal = deliver(module_of(_places, (n.shape, "int64"))).run(n)
    np.testing.assert_array_equal(product, np.arange(12) * 2**31 + n)
    np.testing.assert_array_equal(equal, n == np.arange(12))


@pytest.mark.parametrize("dtype", expressions.FLOATS)
def test_constants_are_divided_as_floats(dtype):
    ten = relax.const(expressions.array_dtype(dtype).type(10), dtype)
    three = relax.const(expressions.array_dtype(dtype).type(3), dtype)
    assert float(evaluate(op.divide(ten, three), {})) == pytest.approx(10 / 3, rel=0.01)
