"""Features of recorded choices are those the design space gives."""

import json

import numpy as np
from chameleon_core.space import (
    Choice,
    DesignSpace,
    Factorization,
    flag,
    recorded_features,
    recorded_names,
)
from chameleon_testing.conformance_cases import tiled_space


def as_recorded(space, configs):
    return json.loads(json.dumps([space.decode(config) for config in configs.tolist()]))


def test_they_agree_with_those_of_the_space():
    space = tiled_space()
    configs = space.sample(200, np.random.default_rng(0))
    recorded = recorded_features(as_recorded(space, configs), space.feature_names)
    assert np.array_equal(recorded, space.features(configs))


def test_numbers_of_any_sign_and_odd_names_agree():
    space = DesignSpace(
        [
            Choice(name="shift", options=(-3, 0, 2.5)),
            Choice(name="a=b", options=("x=y", "z")),
            Factorization(name="tile.0", extent=12, parts=2),
            flag("on"),
            Choice(name="threads", options=(96, 1, 128, 80)),
        ]
    )
    recorded = recorded_features(as_recorded(space, space.everything), space.feature_names)
    assert np.array_equal(recorded, space.features(space.everything))


def test_what_a_record_does_not_have_is_not_a_number():
    features = recorded_features(
        [{"tile": [2, 4], "mode": "fast"}, {"unroll": 7}],
        ("tile.1", "tile.2", "mode=fast", "mode=slow", "unroll", "nest.cycles"),
    )
    expected = [[2, np.nan, 1, 0, np.nan, np.nan], [np.nan] * 4 + [3, np.nan]]
    assert np.array_equal(features, np.array(expected, np.float32), equal_nan=True)


def test_no_record_no_row():
    assert recorded_features([], ("a", "b")).shape == (0, 2)


def test_names_are_those_that_can_be_told_in_the_order_met():
    recorded = [
        {"tile": [2, 4], "mode": "fast"},
        {"mode": "slow", "unroll": 7, "on": True},
        {"tile": [8, 1], "mode": "fast", "share": 0.5},
    ]
    names = recorded_names(recorded)
    expected = ("tile.0", "tile.1", "mode=fast", "mode=slow", "unroll", "unroll.alignment", "on")
    assert names[: len(expected)] == expected
    assert names[-1] == "share"
    assert len(set(names)) == len(names)
    assert not np.isnan(recorded_features(recorded, names)).all(axis=0).any()
    assert recorded_names([]) == ()


def test_a_space_tells_of_all_its_features():
    space = tiled_space()
    configs = space.sample(400, np.random.default_rng(0))
    assert set(space.feature_names) <= set(recorded_names(as_recorded(space, configs)))
