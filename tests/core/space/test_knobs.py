"""Knobs: their choices, their order, what they refuse."""

import itertools
import math

import numpy as np
import pytest
from chameleon_core.space import Choice, Factorization, flag
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(1, 200), st.integers(1, 3), st.none() | st.integers(1, 200))
def test_factorizations_are_complete_and_in_order(extent, parts, limit):
    expected = [
        factors
        for factors in itertools.product(
            [d for d in range(1, extent + 1) if extent % d == 0], repeat=parts
        )
        if math.prod(factors) == extent and (limit is None or factors[-1] <= limit)
    ]
    if not expected:
        with pytest.raises(ValueError, match="no factorisation"):
            Factorization(name="tile", extent=extent, parts=parts, max_innermost=limit)
        return
    knob = Factorization(name="tile", extent=extent, parts=parts, max_innermost=limit)
    assert [knob.decode(i) for i in range(knob.cardinality)] == expected
    assert all(knob.index_of(factors) == i for i, factors in enumerate(expected))


def test_index_of_what_is_no_choice():
    knob = Factorization(name="tile", extent=12, parts=2)
    for factors in ((5, 2), (3, 2, 2), (12,), ()):
        with pytest.raises(KeyError) as refused:
            knob.index_of(factors)
        assert refused.value.args == (factors,)


def test_factorization_of_a_large_extent():
    assert Factorization(name="tile", extent=2**20, parts=4).cardinality == math.comb(23, 3)
    assert Factorization(name="tile", extent=1_000_003, parts=2).cardinality == 2


def test_shared_tables_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        Factorization(name="tile", extent=12).values[0, 0] = 7


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Choice(name="x", options=()), "no options"),
        (lambda: Choice(name="x", options=(1, 1)), "twice"),
        (lambda: Choice(name="x", options=(1, True)), "twice"),
        (lambda: Choice(name="x", options=(1, "a")), "mixes"),
        (lambda: Factorization(name="x", extent=0), "at least 1"),
        (lambda: Factorization(name="x", extent=4, parts=0), "at least 1"),
    ],
)
def test_wrong_knobs_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_flag_is_off_then_on():
    assert [flag("vectorize").decode(i) for i in (0, 1)] == [False, True]
    assert flag("vectorize").feature_table.tolist() == [[0.0], [1.0]]


def test_numbers_keep_their_order_as_features():
    table = Choice(name="x", options=(-8, 0, 1, 16, 512)).feature_table[:, 0]
    assert (np.diff(table) > 0).all()


@given(st.lists(st.integers(-300, 300), min_size=1, max_size=12, unique=True))
def test_alignment_is_a_feature_where_size_does_not_tell_it(options):
    knob = Choice(name="x", options=tuple(options))
    powers = {
        value: next(power for power in itertools.count() if value % 2 ** (power + 1))
        for value in options
        if value
    }
    by_size = [powers.get(value, 0) for value in sorted(options)]
    told = by_size in (sorted(by_size), sorted(by_size, reverse=True))
    assert knob.feature_names == (("x",) if told else ("x", "x.alignment"))
    assert knob.feature_table.shape == (len(options), len(knob.feature_names))
    if not told:
        assert knob.feature_table[:, 1].tolist() == [powers.get(value, 0) for value in options]


def test_only_integers_have_an_alignment():
    for options in ((0.5, 4.0, 1.0, 3.0), (False, True), ("4", "1", "3")):
        assert not [n for n in Choice(name="x", options=options).feature_names if "align" in n]
