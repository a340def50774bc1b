"""Permutations that meet through element-wise operators vanish, and the numbers stay."""

import functools
import inspect

import numpy as np
import pytest
from chameleon_networks._graph.constants import _ELEMENTWISE
from chameleon_networks._graph.propagate_transposes import ELEMENTWISE, propagate_transposes
from chameleon_networks._graph.relax_utils import relax

from ..modules import expected, module_of  # noqa: TID252 - shared by folders

op = relax.op
SLOPES = np.array([0.5, -1.0, 2.0], np.float32)


def _network(emit, x):
    """What a layout's conversion leaves of ``PReLU(3)`` and a bias between NHWC convolutions."""
    slopes, bias = relax.const(SLOPES.reshape(1, 3, 1, 1)), relax.const(SLOPES.reshape(3, 1, 1))
    images = emit(op.permute_dims(x, [0, 3, 1, 2]))
    above = emit(op.greater(images, relax.const(np.float32(0.0))))
    below = emit(op.multiply(slopes, images))
    added = emit(op.add(emit(op.where(above, images, below)), bias))
    return op.negative(emit(op.permute_dims(added, [0, 2, 3, 1])))


def test_constants_of_channels_and_selections_stand_in_no_permutations_way():
    module = propagate_transposes(module_of(_network, (1, 4, 5, 3)))
    assert "permute_dims" not in str(module)
    images = np.random.default_rng(0).standard_normal((1, 4, 5, 3)).astype(np.float32)
    wanted = np.where(images > 0, images, SLOPES * images) + SLOPES
    [got] = expected(module, images)
    np.testing.assert_allclose(got, -wanted, rtol=1e-6)


_SHAPE, _DRAW = (2, 3, 4), np.random.default_rng(2)
_POSITIVE = _DRAW.uniform(0.2, 3.0, (2, *_SHAPE)).astype(np.float32)
_PAIRS = {
    "positive": _POSITIVE,
    "real": _POSITIVE * _DRAW.choice([-1, 1], _POSITIVE.shape).astype(np.float32),
    "bitwise": _DRAW.integers(-99, 99, _POSITIVE.shape).astype(np.int32),
    "logical": _DRAW.integers(0, 2, _POSITIVE.shape).astype(np.bool_),
}
"""Two arrays of each kind of numbers."""
_KINDS = dict.fromkeys(("sqrt", "rsqrt", "log", "power"), "positive")
_FURTHER = {"astype": ("int32",), "clip": (-1, 1), "nn.leakyrelu": (0.5,)}
_IN_NUMPY = {
    **_ELEMENTWISE,
    "relax.astype": np.ndarray.astype,
    "relax.nn.leakyrelu": lambda x, slope: np.where(x < 0, slope * x, x),
}


@pytest.mark.full
@pytest.mark.parametrize("axes", [(0, 2, 1), (1, 2, 0)])
@pytest.mark.parametrize("other", ["tensor", "vector", "first", "number"])
def test_every_element_wise_operator_lets_permutations_pass(axes, other):
    """Its other operand is a permuted tensor, or a constant, which may come first."""
    others = {"relax.where", "relax.quantize", "relax.dequantize"}
    names = sorted(name.removeprefix("relax.") for name in ELEMENTWISE - others)
    functions = [functools.reduce(getattr, name.split("."), op) for name in names]
    kinds = [_KINDS.get(name, name.split("_")[0]) for name in names]
    kinds = [kind if kind in _PAIRS else "real" for kind in kinds]
    inverse = [axes.index(axis) for axis in range(3)]
    part = {"tensor": ..., "number": (0, 0, 0)}.get(other, (0, 0))

    def arguments(name, function, x, y):
        if "x2" in inspect.signature(function).parameters:
            return [y, x] if other == "first" else [x, y]
        return [x, *_FURTHER.get(name, ())]

    def network(emit, *tensors):
        outputs = []
        for name, function, kind in zip(names, functions, kinds, strict=True):
            place = 2 * [*_PAIRS].index(kind)
            x, y = (emit(op.permute_dims(each, axes)) for each in tensors[place : place + 2])
            if other != "tensor":
                y = relax.const(_PAIRS[kind][1].transpose(axes)[part])
            value = emit(function(*arguments(name, function, x, y)))
            outputs.append(emit(op.permute_dims(value, inverse)))
        return tuple(outputs)

    inputs = [array for pair in _PAIRS.values() for array in pair]
    module = module_of(network, *[(_SHAPE, str(array.dtype)) for array in inputs])
    module = propagate_transposes(module)
    assert "permute_dims" not in str(module)
    got = expected(module, *inputs)
    for name, function, kind, result in zip(names, functions, kinds, got, strict=True):
        x, y = (array.transpose(axes) for array in _PAIRS[kind])
        wanted = _IN_NUMPY[f"relax.{name}"](*arguments(name, function, x, y[part]))
        np.testing.assert_allclose(result, wanted.transpose(inverse), rtol=1e-5, err_msg=name)


def _last_part(emit, x):
    """A part of a permuted tensor, which is the output itself."""
    parts = emit(op.split(emit(op.permute_dims(x, [1, 0])), [3], axis=1))
    return relax.TupleGetItem(parts, 1)


def test_a_part_of_a_permutation_may_be_the_output():
    numbers = np.arange(32, dtype=np.float32).reshape(8, 4)
    [got] = expected(propagate_transposes(module_of(_last_part, (8, 4))), numbers)
    np.testing.assert_array_equal(got, numbers.T[:, 3:])
