"""Fronts, against the definition."""

from __future__ import annotations

import numpy as np
from chameleon_core.api.measurements import non_dominated
from hypothesis import given
from hypothesis import strategies as st

points = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 4)), max_size=12)


def dominates(one, other):
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


@given(points=points)
def test_a_point_is_in_the_front_where_nothing_dominates_it(points):
    values = np.array(points, float).reshape(-1, 3)
    rows = non_dominated(values).tolist()
    expected = [i for i, one in enumerate(points) if not any(dominates(p, one) for p in points)]
    assert sorted(rows) == expected
    assert [points[row] for row in rows] == sorted(points[row] for row in rows)
