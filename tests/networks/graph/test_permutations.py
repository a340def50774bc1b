"""Permutations change places with reshapes and reductions, and the numbers are the same."""

import itertools

import numpy as np
from chameleon_networks._graph.propagate_transposes import (
    keeps_memory_order,
    move_past_reduction,
    move_past_reshape,
)
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def _shapes(draw):
    """A shape, an order of its axes, and another shape of as many elements."""
    primes = draw(st.lists(st.sampled_from([1, 2, 2, 3]), min_size=1, max_size=6))
    shapes = []
    for _ in range(2):
        factors = draw(st.permutations(primes))
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=3)))
        bounds = [0, *cuts, len(factors)]
        shapes.append([int(np.prod(factors[low:high])) for low, high in itertools.pairwise(bounds)])
    return shapes[0], list(draw(st.permutations(range(len(shapes[0]))))), shapes[1]


@given(_shapes())
def test_a_permutation_and_a_reshape_in_the_other_order(case):
    shape, axes, reshaped = case
    numbers = np.arange(np.prod(shape)).reshape(shape)
    passed = move_past_reshape(shape, axes, reshaped)
    result = numbers.transpose(passed.first).reshape(passed.shape).transpose(passed.last)
    np.testing.assert_array_equal(result, numbers.transpose(axes).reshape(reshaped))


@given(_shapes(), st.data())
def test_a_permutation_and_a_reduction_in_the_other_order(case, data):
    shape, axes, _ = case
    reduced = data.draw(st.lists(st.sampled_from(range(len(shape))), unique=True))
    numbers = np.arange(np.prod(shape)).reshape(shape)
    dropped, order = move_past_reduction(axes, reduced)
    result = numbers.sum(axis=dropped).transpose(order)
    np.testing.assert_array_equal(result, numbers.transpose(axes).sum(axis=tuple(reduced)))


@given(_shapes())
def test_what_moves_nothing_is_a_reshape(case):
    shape, axes, _ = case
    numbers = np.arange(np.prod(shape)).reshape(shape)
    turned = numbers.transpose(axes)
    assert keeps_memory_order(axes, shape) <= np.array_equal(
        turned.reshape(-1), numbers.reshape(-1)
    )


def test_a_channel_shuffle_of_nhwc_images_needs_no_other_layout():
    split = move_past_reshape((1, 5, 3, 8), (0, 3, 1, 2), (1, 2, 4, 5, 3))
    assert (split.first, split.shape) == ((0, 1, 2, 3), (1, 5, 3, 2, 4))
    merged = move_past_reshape((1, 5, 3, 2, 4), (0, 4, 3, 1, 2), (1, 8, 5, 3))
    assert (merged.first, merged.shape) == ((0, 1, 2, 4, 3), (1, 5, 3, 8))
