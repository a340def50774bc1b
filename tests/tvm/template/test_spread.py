"""What first guesses are chosen from is spread over the whole space."""

import math

import numpy as np
import pytest
from chameleon_core.space import Choice, DesignSpace
from chameleon_testing.conformance_cases import grid
from chameleon_tvm.spaces.template.estimates import first_guesses, spread
from chameleon_tvm.spaces.template.tiling import ConvolutionTiling
from hypothesis import given
from hypothesis import strategies as st


@given(cards=st.lists(st.integers(1, 12), min_size=1, max_size=7), count=st.integers(50, 5_000))
def test_choices_of_the_last_knobs_occur_equally_often(cards, count):
    space = grid(*cards)
    rows = spread(space, count)
    assert 0 < len(rows) < 2 * count
    assert len(space.distinct(rows)) == len(rows)
    assert len(rows) == space.size or space.size > count
    # A stride that shares no factor with the numbers of choices meets those of the last knobs in
    # turn, whichever of them are taken together.
    for knobs in range(1, len(cards) + 1):
        together = np.unique(rows[:, -knobs:], axis=0, return_counts=True)[1]
        assert together.max() - together.min() <= 1
        assert len(together) == min(len(rows), math.prod(cards[-knobs:]))


@pytest.mark.parametrize("size", [120_000, 150_000, 239_999])
def test_the_last_knob_is_not_always_the_same_in_spaces_of_this_size(size):
    """A stride of 3 once met one of three choices."""
    assert set(spread(grid(size // 60, 2, 2, 5, 3), 60_000)[:, -1]) == {0, 1, 2}
    unrolls = DesignSpace(
        [
            *(Choice(name=n, options=(0, 1)) for n in ("tile_rows", "tile_columns")),
            *(Choice(name=n, options=(0, 1)) for n in ("tile_vectors", "input")),
            Choice(name="channel_block", options=tuple(range(size // 48))),
            Choice(name="unroll", options=(1, 2, 4)),
        ]
    )
    start = first_guesses(
        unrolls,
        lambda values: np.asarray(values["channel_block"], float),
        ConvolutionTiling.tile_knobs,
    )
    assert set(start[:, unrolls.index["unroll"]]) == {0, 1, 2}
