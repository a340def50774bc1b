"""Mixed-radix identity: exact, ordered, and a bijection for spaces of any size."""

import math

import numpy as np
from chameleon_core.space.identity import MixedRadix
from hypothesis import given
from hypothesis import strategies as st


@st.composite
def radices_and_rows(draw):
    cardinalities = draw(
        st.lists(st.integers(1, 9) | st.integers(2**15, 2**31 - 1), min_size=1, max_size=8)
    )
    row = st.tuples(*(st.integers(0, c - 1) for c in cardinalities))
    return cardinalities, draw(st.lists(row, min_size=1, max_size=12))


def by_hand(cardinalities, row):
    key = 0
    for cardinality, index in zip(cardinalities, row, strict=True):
        key = key * cardinality + index
    return key


@given(radices_and_rows())
def test_round_trip_and_order(case):
    cardinalities, rows = case
    radix = MixedRadix(cardinalities)
    configs = np.array(rows, np.int32)
    keys = radix.encode(configs)
    assert [int(key) for key in keys] == [by_hand(cardinalities, row) for row in rows]
    assert (radix.decode(keys) == configs).all()
    assert keys.dtype == (np.int64 if math.prod(cardinalities) < 2**63 else object)


@given(radices_and_rows())
def test_first_of_each_is_what_a_set_finds(case):
    cardinalities, rows = case
    rows = rows + rows[::2]
    first = MixedRadix(cardinalities).first_of_each(np.array(rows, np.int32))
    assert first.tolist() == sorted({row: i for i, row in reversed(list(enumerate(rows)))}.values())


def test_largest_identity_of_one_word_does_not_overflow():
    radix = MixedRadix([2**31 - 1, 2**31 - 1])
    last = np.full((1, 2), 2**31 - 2, np.int32)
    assert int(radix.encode(last)[0]) == (2**31 - 1) ** 2 - 1


def test_no_rows():
    radix = MixedRadix([100] * 12)
    none = np.empty((0, 12), np.int32)
    assert radix.encode(none).shape == (0,)
    assert radix.decode(radix.encode(none)).shape == (0, 12)
    assert radix.first_of_each(none).shape == (0,)
