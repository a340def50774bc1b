"""Knobs: their choices, their order, what they refuse."""

import itertools
import json
import math

import numpy as np
import pytest
from chameleon_core.plugin_api import Choice, DesignSpace, Factorization
from chameleon_testing._conformance_cases import tiled_space
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
    assert Factorization(name="tile", extent=10**12, parts=2).cardinality == 13**2


def test_shared_tables_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        Factorization(name="tile", extent=12).values[0, 0] = 7


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Choice(name="x", options=(1, True)), "twice"),
        (lambda: Factorization(name="x", extent=0), "at least 1"),
        (lambda: Factorization(name="x", extent=4, parts=0), "at least 1"),
    ],
)
def test_wrong_knobs_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_flag_is_off_then_on():
    flag = Choice(name="vectorize", options=(False, True))
    assert [flag.decode(i) for i in (0, 1)] == [False, True]
    assert flag.feature_table.tolist() == [[0.0], [1.0]]


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
    ordered = by_size in (sorted(by_size), sorted(by_size, reverse=True))
    assert knob.feature_names == (("x",) if ordered else ("x", "x.alignment"))
    assert knob.feature_table.shape == (len(options), len(knob.feature_names))
    if not ordered:
        assert knob.feature_table[:, 1].tolist() == [powers.get(value, 0) for value in options]


def test_only_integers_have_an_alignment():
    for options in ((0.5, 4.0, 1.0, 3.0), (False, True), ("4", "1", "3")):
        assert not [n for n in Choice(name="x", options=options).feature_names if "align" in n]


def _block(**given):
    return DesignSpace.FeatureBlock(
        names=("a", "b"), compute=lambda values: np.zeros((1, 2)), **given
    )


def test_all_columns_are_one_group_where_nothing_is_said():
    assert _block().groups == (("structure", ("a", "b")),)


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ((("loop", ("a", "c")),), "no columns"),
        ((("loop", ("a",)), ("buffer", ("a", "b"))), "twice"),
    ],
)
def test_groups_name_each_column_once(groups, words):
    with pytest.raises(ValueError, match=words):
        _block(groups=groups)


def test_groups_are_no_part_of_a_fingerprint():
    knobs = [Choice(name="k", options=(1, 2))]
    spaces = [
        DesignSpace(knobs, features=_block(**arguments))
        for arguments in ({}, {"groups": (("loop", ("a",)), ("buffer", ("b",)))})
    ]
    assert spaces[0].fingerprint == spaces[1].fingerprint


def as_recorded(space, configs):
    return json.loads(json.dumps([space.decode(config) for config in configs.tolist()]))


def test_they_agree_with_those_of_the_space():
    space = tiled_space()
    configs = space.sample(200, np.random.default_rng(0))
    _, recorded = DesignSpace.recorded_features(as_recorded(space, configs), space.feature_names)
    assert np.array_equal(recorded, space.features(configs))


def test_numbers_of_any_sign_and_odd_names_agree():
    space = DesignSpace(
        [
            Choice(name="shift", options=(-3, 0, 2.5)),
            Choice(name="a=b", options=("x=y", "z")),
            Factorization(name="tile.0", extent=12, parts=2),
            Choice(name="on", options=(False, True)),
            Choice(name="threads", options=(96, 1, 128, 80)),
        ]
    )
    known = as_recorded(space, space.all_legal)
    _, recorded = space.recorded_features(known, space.feature_names)
    assert np.array_equal(recorded, space.features(space.all_legal))


def test_what_a_record_does_not_have_is_not_a_number():
    _, features = DesignSpace.recorded_features(
        [{"tile": [2, 4], "mode": "fast"}, {"unroll": 7}],
        ("tile.1", "tile.2", "mode=fast", "mode=slow", "unroll", "nest.cycles"),
    )
    expected = [[2, np.nan, 1, 0, np.nan, np.nan], [np.nan] * 4 + [3, np.nan]]
    assert np.array_equal(features, np.array(expected, np.float32), equal_nan=True)


def test_no_record_no_row():
    assert DesignSpace.recorded_features([], ("a", "b"))[1].shape == (0, 2)


def test_names_are_those_that_can_be_told_in_the_order_met():
    recorded = [
        {"tile": [2, 4], "mode": "fast"},
        {"mode": "slow", "unroll": 7, "on": True},
        {"tile": [8, 1], "mode": "fast", "share": 0.5},
    ]
    names, features = DesignSpace.recorded_features(recorded)
    expected = ("tile.0", "tile.1", "mode=fast", "mode=slow", "unroll", "unroll.alignment", "on")
    assert names[: len(expected)] == expected
    assert names[-1] == "share"
    assert len(set(names)) == len(names)
    assert not np.isnan(features).all(axis=0).any()
    assert DesignSpace.recorded_features([])[0] == ()


def test_a_space_tells_of_all_its_features():
    space = tiled_space()
    configs = space.sample(400, np.random.default_rng(0))
    names, _ = space.recorded_features(as_recorded(space, configs))
    assert set(space.feature_names) <= set(names)
