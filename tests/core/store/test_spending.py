"""Seconds of a task, summed."""

from __future__ import annotations

import attrs
from chameleon_core.measurement import Spending
from hypothesis import given
from hypothesis import strategies as st

seconds = st.integers(0, 1000).map(float)
spendings = st.builds(
    Spending, search=seconds, model=seconds, measure=seconds, build=seconds, run=seconds
)


@given(spendings, spendings)
def test_a_sum_is_that_of_each_part(one, other):
    added = attrs.asdict(one + other)
    assert added == {
        name: value + getattr(other, name) for name, value in attrs.asdict(one).items()
    }


@given(spendings)
def test_building_and_running_are_part_of_measuring(spending):
    assert spending.total == spending.search + spending.model + spending.measure
    assert spending.plus(build=5.0, run=2.0).total == spending.total


@given(spendings)
def test_nothing_added_changes_nothing(spending):
    assert spending.plus() == spending + Spending() == spending
