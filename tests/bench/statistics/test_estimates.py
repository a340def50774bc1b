"""Medians and intervals against values worked out by hand."""

import math

from chameleon_bench._statistics.estimates import estimate
from hypothesis import given
from hypothesis import strategies as st

INF = math.inf


def test_the_median_is_infinite_where_half_never_got_there():
    first = estimate([3.0, 5.0, INF])
    assert (first.median, first.reached, first.of) == (5.0, 2, 3)
    assert estimate([3.0, 5.0, INF, INF]).median == INF
    assert estimate([INF, INF]).to_json() == {
        "median": None,
        "low": None,
        "high": None,
        "reached": 0,
        "of": 2,
    }


def test_one_value_has_no_interval():
    first = estimate([2.0])
    assert first.median == 2.0
    assert math.isnan(first.low)
    assert math.isnan(first.high)


@given(st.lists(st.floats(0.1, 100) | st.just(INF), min_size=2, max_size=12))
def test_an_interval_holds_the_median_and_stays_within_the_values(values):
    first = estimate(values)
    assert min(values) <= first.low <= first.median <= first.high <= max(values)
