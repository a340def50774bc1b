"""Ranges for eight bits: what they promise of every tensor, and which one is chosen."""

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_networks._quantize.ranges import (
    LEAST_SQUARES,
    LEVELS,
    MIN_MAX,
    Affine,
    Histogram,
    candidate_ranges,
    mean_squared_errors,
)
from chameleon_networks._quantize.weights import quantize_weights
from chameleon_tvm._types import STORAGE
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ..modules import in_eight_bits  # noqa: TID252 - shared by folders

NUMBERS = st.floats(-(2.0**100), 2.0**100, width=32)
BATCHES = arrays.arrays(np.float32, st.integers(1, 60), elements=NUMBERS)


def _counted(*batches):
    histogram = Histogram()
    for batch in batches:
        histogram.add(np.asarray(batch, np.float32))
    return histogram


def _ends(affine):
    """The least and the largest number that a range represents."""
    return affine.scale * -affine.zero_point, affine.scale * (LEVELS - affine.zero_point)


@given(NUMBERS, NUMBERS)
def test_zero_is_exact_in_every_range(first, second):
    affine = Affine.between(min(first, second), max(first, second))
    assert affine.scale > 0
    assert affine.scale == np.float32(affine.scale)
    assert in_eight_bits(affine, np.zeros(1, np.float32)).tolist() == [0.0]


@given(BATCHES)
def test_numbers_in_a_range_are_off_by_half_a_step_and_stay_in_order(batch):
    affine = candidate_ranges(_counted(batch))[MIN_MAX]
    inside = np.sort(np.clip(batch, *_ends(affine)))
    held = in_eight_bits(affine, inside).astype(np.float64)
    assert (np.diff(held) >= 0).all()
    off = np.abs(held - inside)
    # Dividing and multiplying are rounded, each to one part in 2**24, of up to 255 steps.
    assert (off <= affine.scale * (0.5 + LEVELS * 2.0**-22)).all()


@given(BATCHES)
def test_the_range_by_extremes_reaches_all_but_half_a_step(batch):
    affine = candidate_ranges(_counted(batch))[MIN_MAX]
    slack = affine.scale * (0.5 + LEVELS * 2.0**-22)
    low, high = _ends(affine)
    assert low - slack <= batch.min()
    assert batch.max() <= high + slack


@pytest.mark.parametrize("value", [0.0, 3.25, -7.5, 1e-30, -1e30])
def test_constant_tensors_are_exact(value):
    affine = candidate_ranges(_counted(np.full((2, 3), value)))[MIN_MAX]
    real = in_eight_bits(affine, np.full(4, value, np.float32))
    np.testing.assert_allclose(real, value, rtol=1e-6)


def test_numbers_that_are_all_negative_have_zero_at_the_upper_end():
    affine = candidate_ranges(_counted(-np.linspace(1, 5, 100)))[MIN_MAX]
    assert affine.zero_point == LEVELS
    assert _ends(affine) == (pytest.approx(-5.0), 0.0)


@pytest.mark.parametrize(
    ("bad", "said"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")]
)
def test_what_has_no_range_is_refused(bad, said):
    with pytest.raises(ConfigError, match=said) as raised:
        _counted([1.0, bad])
    assert "calibration" in str(raised.value.hint)
    with pytest.raises(ConfigError, match="infinities or NaN"):
        quantize_weights(np.array([[1.0, bad]], np.float32), STORAGE["int8"])
    with pytest.raises(ConfigError, match="range"):
        Affine.between(0.0, bad)


def test_no_values_are_no_range():
    histogram = _counted(np.zeros((0, 3)))
    assert histogram.count == 0
    with pytest.raises(ConfigError, match="never had a value"):
        candidate_ranges(histogram)


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 1e-60])
def test_a_scale_is_a_number_above_zero(scale):
    with pytest.raises(ValueError, match="above zero"):
        Affine(scale=scale, zero_point=0)


@given(st.lists(BATCHES, min_size=1, max_size=4))
def test_batches_are_counted_as_if_they_were_one(batches):
    numbers = np.concatenate(batches)
    grown, whole = _counted(*batches), _counted(numbers)
    assert (grown.count, grown.low, grown.high) == (whole.count, whole.low, whole.high)
    assert grown.bins()[1].sum() == np.count_nonzero(numbers)
    for ours, wanted in zip(grown.bins(), whole.bins(), strict=True):
        np.testing.assert_array_equal(ours, wanted)


def test_memory_does_not_grow_with_the_number_of_batches():
    histogram = Histogram()
    rng = np.random.default_rng(0)
    for step in range(200):
        histogram.add((rng.standard_normal(64) * 1.5**step).astype(np.float32))
    assert histogram.count == 200 * 64
    assert histogram.bins()[1].sum() == histogram.count
    assert histogram.bins()[1].size <= 2048


@given(BATCHES, st.floats(0.05, 1.5))
def test_errors_by_the_histogram_are_those_of_the_values(batch, clipped):
    rng = np.random.default_rng(0)
    largest = max(float(np.abs(batch).max()), 2.0**-60)
    values = (rng.choice(batch, 20_000) + rng.normal(0, largest / 5, 20_000)).astype(np.float32)
    histogram = _counted(values)
    affine = Affine.between(clipped * histogram.low, clipped * histogram.high)
    [error] = mean_squared_errors(histogram, [affine])
    real = in_eight_bits(affine, values).astype(np.float64)
    assert error == pytest.approx(np.mean((real - values) ** 2), rel=0.1)


def test_least_squares_clips_what_is_rare_and_far_away():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.standard_normal(100_000), [60.0]]).astype(np.float32)
    ranges = candidate_ranges(_counted(values))
    histogram = _counted(values)
    errors = dict(zip(ranges, mean_squared_errors(histogram, list(ranges.values())), strict=True))
    assert errors[LEAST_SQUARES] == min(errors.values()) < 0.9 * errors[MIN_MAX]
    assert _ends(ranges[LEAST_SQUARES])[1] < 57.0


def test_nothing_is_clipped_where_that_loses_more():
    values = np.random.default_rng(0).uniform(-1, 2, 50_000).astype(np.float32)
    ranges = candidate_ranges(_counted(values))
    assert ranges[LEAST_SQUARES] == ranges[MIN_MAX]


def test_percentiles_leave_their_share_at_either_end():
    values = np.linspace(-1.0, 3.0, 100_001).astype(np.float32)
    low, high = _counted(values).percentile(99.9)
    assert (values < low).mean() == pytest.approx(1e-3, abs=1e-4)
    assert (values > high).mean() == pytest.approx(1e-3, abs=1e-4)
    assert candidate_ranges(_counted(values))["percentile 99.9"] == Affine.between(low, high)


@given(
    arrays.arrays(np.float32, arrays.array_shapes(min_dims=2, max_dims=4), elements=NUMBERS),
    st.sampled_from(["int8", "int7"]),
)
def test_weights_are_off_by_half_a_step_of_their_channel(weights, kind):
    encoded = quantize_weights(weights, STORAGE[kind])
    assert encoded.values.dtype == np.int8
    assert np.abs(encoded.values.astype(int)).max() <= STORAGE[kind].symmetric
    off = np.abs(encoded.dequantized.astype(np.float64) - weights).reshape(len(weights), -1)
    assert (off <= 0.5001 * encoded.scales[:, None].astype(np.float64)).all()
    assert (encoded.values[weights == 0] == 0).all()
