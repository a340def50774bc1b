"""Spaces whose configurations are known one by one, as those of a recorded table."""

import math

import numpy as np
import pytest
from chameleon_core._space.design import MixedRadix
from chameleon_testing._conformance_cases import grid
from hypothesis import given
from hypothesis import strategies as st

SMALL, LARGE, HUGE = (5, 4, 3), (100, 100, 100, 100), (10_000,) * 6
"""With a flag for each index vector, with sorted keys, and with keys beyond 64 bits."""


@st.composite
def lists(draw):
    cardinalities = draw(st.sampled_from([SMALL, LARGE, HUGE]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    count = draw(st.integers(1, 40))
    return cardinalities, rng.integers(0, cardinalities, (count, len(cardinalities)))


@given(lists())
def test_legal_is_what_is_listed(case):
    cardinalities, rows = case
    space = grid(*cardinalities, only=rows)
    listed = {tuple(row) for row in rows.tolist()}
    assert [tuple(row) for row in space.all_legal.tolist()] == sorted(listed)
    asked = np.concatenate([rows, space.neighbours(rows[0]), (rows + 1) % cardinalities])
    expected = [tuple(row) in listed for row in asked.tolist()]
    assert space.legal(asked).tolist() == expected
    said = "it is not among the configurations that the space lists"
    reasons = [space.why_illegal(row) for row in asked.tolist()]
    assert reasons == [None if legal else said for legal in expected]


@given(lists(), st.integers(1, 50), st.integers(0, 2**32 - 1))
def test_samples_are_of_what_is_listed(case, count, seed):
    cardinalities, rows = case
    space = grid(*cardinalities, only=rows)
    sample = space.sample(count, np.random.default_rng(seed))
    assert len(sample) == min(count, len(space.all_legal))
    assert space.legal(sample).all()
    assert len(space.distinct(sample)) == len(sample)


@pytest.mark.full
@given(lists())
def test_the_fingerprint_is_of_what_is_listed_in_any_order(case):
    cardinalities, rows = case
    of = [
        grid(*cardinalities, only=only).fingerprint
        for only in (rows, rows[::-1], np.concatenate([rows, rows]))
    ]
    assert len(set(of)) == 1
    others = {
        grid(*cardinalities).fingerprint,
        grid(*cardinalities, only=(rows + 1) % cardinalities).fingerprint,
    }
    assert len(others.union(of)) == 3


def test_constraints_hold_among_what_is_listed():
    listed = np.array([[0, 1, 2], [1, 1, 1]])
    space = grid(*SMALL, only=listed, holds=lambda v: v["k0"] % 2 == 0)
    assert space.all_legal.tolist() == [[0, 1, 2]]
    assert space.why_illegal([1, 1, 1]) == "scripted"


def test_nothing_listed_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        grid(*SMALL, only=np.empty((0, 3), np.int32))


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


def test_repeats_are_found_without_python_integers(monkeypatch):
    monkeypatch.delattr(MixedRadix, "encode")
    assert MixedRadix(HUGE).first_of_each(np.eye(6, dtype=np.int32)[[2, 2, 1]]).tolist() == [0, 2]


def test_largest_identity_of_one_word_does_not_overflow():
    radix = MixedRadix([2**31 - 1, 2**31 - 1])
    assert int(radix.encode(np.full((1, 2), 2**31 - 2, np.int32))[0]) == (2**31 - 1) ** 2 - 1


def test_no_rows():
    radix = MixedRadix([100] * 12)
    none = np.empty((0, 12), np.int32)
    assert radix.encode(none).shape == (0,)
    assert radix.decode(radix.encode(none)).shape == (0, 12)
    assert radix.first_of_each(none).shape == (0,)
