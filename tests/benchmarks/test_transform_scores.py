"""The statistics of what scores of untrained networks are worth."""

import numpy as np
import pytest
import transform_digits as digits
import transform_scores as scores


def test_what_costs_alone_explain_is_no_merit():
    """Cost foretells the accuracy, and within bands of equal cost nothing does."""
    rng = np.random.default_rng(3)
    bands = np.repeat(np.arange(4.0), 20)
    cost = 10.0**-bands + 1e-9 * rng.random(80)
    accuracy = 0.99 - 0.1 * bands + 0.001 * rng.random(80)
    inside, chance = scores.within_bands(bands, cost, accuracy)
    assert abs(inside) < 0.3
    assert chance > 0.01
    # One that follows the accuracy inside of bands does, whatever the cost says.
    inside, chance = scores.within_bands(bands, accuracy + 10.0 * bands, accuracy)
    assert inside == pytest.approx(1.0)
    assert chance < 0.01


def test_networks_of_a_band_cost_what_it_says():
    space = digits.space_of(digits.untrained("digits_plain"))
    before = space.candidate(space.original).multiply_adds
    result = list(scores.chosen(space, 8))
    assert [band for band, _, _ in result] == [0, 1, 2, 3] * 2
    assert len({config for _, config, _ in result}) == 8
    for band, config, candidate in result:
        low, high = scores.BANDS[band]
        assert low <= before / candidate.multiply_adds < high
        assert candidate == space.candidate(config)
