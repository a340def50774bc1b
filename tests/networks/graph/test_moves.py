"""Permutations that meet through element-wise operators vanish, and the numbers stay."""

import numpy as np
from chameleon_networks.graph.moves import without_moves
from chameleon_networks.graph.relaxed import relax

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
    module = without_moves(module_of(_network, (1, 4, 5, 3)))
    assert "permute_dims" not in str(module)
    images = np.random.default_rng(0).standard_normal((1, 4, 5, 3)).astype(np.float32)
    wanted = np.where(images > 0, images, SLOPES * images) + SLOPES
    [got] = expected(module, images)
    np.testing.assert_allclose(got, -wanted, rtol=1e-6)


def _last_part(emit, x):
    """A part of a permuted tensor, which is the output itself."""
    parts = emit(op.split(emit(op.permute_dims(x, [1, 0])), [3], axis=1))
    return relax.TupleGetItem(parts, 1)


def test_a_part_of_a_permutation_may_be_the_output():
    numbers = np.arange(32, dtype=np.float32).reshape(8, 4)
    [got] = expected(without_moves(module_of(_last_part, (8, 4))), numbers)
    np.testing.assert_array_equal(got, numbers.T[:, 3:])
