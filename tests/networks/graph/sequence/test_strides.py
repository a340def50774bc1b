"""Strides of reshaped tensors are NumPy's, which refuses what has to be copied."""

import math

import numpy as np
from chameleon_networks._graph.strides import dense_strides, is_dense, reshaped_strides
from hypothesis import given
from hypothesis import strategies as st


def _factors(data, number, count):
    factors = []
    for _ in range(count - 1):
        divisors = [divisor for divisor in range(1, number + 1) if number % divisor == 0]
        factors.append(data.draw(st.sampled_from(divisors)))
        number //= factors[-1]
    return (*factors, number)


@given(st.sampled_from([1, 6, 12, 24, 36]), st.data())
def test_reshapes_without_a_copy_are_those_of_numpy(number, data):
    shape = _factors(data, number, data.draw(st.integers(1, 4)))
    wanted = _factors(data, number, data.draw(st.integers(1, 5)))
    gaps = [data.draw(st.sampled_from([0, 0, 3])) for _ in shape]
    whole = np.zeros([extent + gap for extent, gap in zip(shape, gaps, strict=True)], np.int8)
    part = whole[tuple(slice(extent) for extent in shape)]
    strides = reshaped_strides(shape, part.strides, wanted)
    moved = part.reshape(wanted)
    if not np.shares_memory(moved, whole):
        assert strides is None
        return
    assert strides is not None
    pairs = zip(strides, moved.strides, wanted, strict=True)
    assert all(ours == theirs for ours, theirs, extent in pairs if extent != 1)


@given(st.lists(st.integers(1, 4), max_size=4))
def test_dense_strides_are_those_of_a_new_array(shape):
    assert math.prod(shape) == 1 or dense_strides(shape) == np.zeros(shape, np.int8).strides
    assert is_dense(shape, dense_strides(shape))


def test_gaps_are_seen_and_strides_of_single_indices_are_free():
    assert is_dense((2, 1, 3), (3, 77, 1))
    assert not is_dense((2, 3), (4, 1))
    assert not is_dense((2, 3), (1, 2))
