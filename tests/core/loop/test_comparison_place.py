"""What the comparisons of a run may take of its wall-clock."""

from __future__ import annotations

import pytest
from chameleon_core.loop.end.comparison import SHARE, TimeSlot
from hypothesis import given
from hypothesis import strategies as st

SECONDS = st.floats(0.1, 1e5)


@given(before=SECONDS, shares=st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8))
def test_comparisons_that_keep_to_their_share_take_a_quarter_at_most(before, shares):
    now = before
    for number, share in enumerate(shares, 1):
        place = TimeSlot.among(number, len(shares), before=before, now=now)
        assert (place.number, place.of) == (number, len(shares))
        now += share * place.seconds
    assert now - before <= SHARE * now * (1 + 1e-9)


@given(before=SECONDS, count=st.integers(1, 8))
def test_what_all_of_them_may_take_is_the_whole_quarter(before, count):
    now = before
    for number in range(1, count + 1):
        now += TimeSlot.among(number, count, before=before, now=now).seconds
    assert now - before == pytest.approx(SHARE * now)


def test_one_that_took_too_long_leaves_nothing():
    assert TimeSlot.among(2, 2, before=30.0, now=50.0).seconds == 0.0


def test_one_that_was_known_already_leaves_its_part():
    assert TimeSlot.among(2, 2, before=30.0, now=30.0).seconds == pytest.approx(10.0)
