"""What is read off a trajectory of four measurements."""

import math

import attrs
import numpy as np
import pytest
from chameleon_bench._cells.trajectory import Trajectory
from chameleon_bench._statistics import goals
from chameleon_bench._statistics.estimates import estimate
from hypothesis import given
from hypothesis import strategies as st

INF = math.inf


@pytest.fixture
def trajectory():
    return Trajectory(
        operator="conv",
        flop=1e9,
        costs=np.array([INF, 4.0, 2.0, 3.0]),
        failures=("crash", "", "", ""),
        at=np.array([1.0, 3.0, 4.0, 8.0]),
        count=np.array([1.0, 2.0, 3.0, 4.0]),
        # measured, steps, converged, score, search, model, build, run
        rounds=np.array(
            [[2, 0, 0, np.nan, 0.5, 0.1, 1.0, 1.0], [4, 100, 30, 0.7, 1.0, 0.3, 2.0, 3.0]]
        ),
    )


def test_the_first_measurement_that_is_good_enough_counts(trajectory):
    assert goals.reached(trajectory, 4.0) == (2.0, 3.0)
    assert goals.reached(trajectory, 2.5) == (3.0, 4.0)
    assert goals.reached(trajectory, 1.9) == (INF, INF)


def test_quality_is_a_share_of_the_best_known_speed(trajectory):
    assert goals.quality(trajectory, 1, 1.0) == 0.0
    assert goals.quality(trajectory, 2, 1.0) == 0.25
    assert goals.quality(trajectory, 500, 1.0) == 0.5


def test_steps_count_only_rounds_that_a_model_guided(trajectory):
    assert goals.steps(trajectory) == {
        "total": 100.0,
        "converged": 30.0,
        "converged_per_round": 30.0,
    }


def test_seconds_are_those_of_the_last_round(trajectory):
    assert goals.seconds(trajectory) == {
        "search": 1.0,
        "model": 0.3,
        "build": 2.0,
        "run": 3.0,
        "total": 8.0,
    }


def test_a_curve_is_infinite_before_the_first_time(trajectory):
    grid = np.array([0.0, 2.9, 3.0, 4.0, 9.0])
    assert goals.best_at(trajectory, grid, "at").tolist() == [INF, INF, 4.0, 2.0, 2.0]


def test_a_band_of_four_curves_is_made_of_their_values():
    low, middle, high = goals.band([np.array([x]) for x in (1.0, 2.0, 3.0, INF)])
    assert (low[0], middle[0], high[0]) == (1.0, 2.5, 3.0)


def test_invalid_share(trajectory):
    assert goals.invalid_share(trajectory) == 0.25


def test_a_trajectory_survives_json(trajectory):
    again = Trajectory.from_json(trajectory.to_json())
    assert again.to_json() == trajectory.to_json()
    assert again.failures == trajectory.failures
    assert again.costs[0] == INF
    assert math.isnan(again.rounds[0, 3])


def test_where_nothing_was_valid_no_goal_was_reached(trajectory):
    failed = attrs.evolve(trajectory, costs=np.full(4, INF), failures=("crash",) * 4)
    assert goals.reached(failed, failed.best * 100 / 95) == (INF, INF)


@given(st.lists(st.floats(0.1, 10) | st.just(INF), min_size=1, max_size=9))
def test_the_middle_of_a_band_is_the_median_that_tables_show(values):
    low, middle, high = goals.band([np.array([value]) for value in values])
    assert middle[0] == estimate(values).median
    assert low[0] <= middle[0] <= high[0]
