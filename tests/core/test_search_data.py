"""What search stages are given: visited configurations and observations."""

import numpy as np
import pytest
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core.plugin_api import Choice, DesignSpace, Observations, Visited


@pytest.fixture(params=[1, 12], ids=["small", "huge"])
def space(request):
    knobs = [Choice(name=f"k{i}", options=tuple(range(100))) for i in range(request.param)]
    return DesignSpace(knobs)


def test_visited_samples_what_is_left(space):
    rng, visited = np.random.default_rng(0), Visited(space)
    visited.add(space.sample(95, rng))
    sample = visited.sample(10, rng)
    assert len(sample) == min(10, space.size - 95)
    assert visited.unvisited(sample).all()
    assert len(space.distinct(sample)) == len(sample)


def test_nothing_is_left_of_an_exhausted_space():
    visited = Visited(DesignSpace([Choice(name="k", options=(1, 2))]))
    visited.add(np.array([[0], [1]]))
    assert len(visited) == 2
    assert visited.sample(5, np.random.default_rng(0)).shape == (0, 1)


def observations(costs):
    count = len(costs)
    return Observations(
        configs=np.zeros((count, 1), np.int32),
        costs=np.array(costs),
        failures=(None,) * count,
        build_seconds=np.zeros(count),
    )


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ([2.0, 1.0, 4.0], [0.5, 1.0, 0.25]),
        ([2.0, np.inf, 4.0], [1.0, 0.0, 0.5]),
        ([np.inf, np.inf], [0.0, 0.0]),
        ([2.0, np.nan, 4.0], [1.0, 0.0, 0.5]),
        ([0.0, 2.0], [0.0, 1.0]),
        ([], []),
    ],
)
def test_relative_throughput(costs, expected):
    assert observations(costs).relative_throughput.tolist() == expected


def test_observations_keep_order_and_failures():
    space = DesignSpace([Choice(name="k", options=(1, 2, 3))])
    result = Observations.of(
        space,
        [
            Measurement(config=(2,), seconds=(3.0, 1.0, 2.0)),
            Measurement(config=(0,), failure=FailureKind.CRASH, build_seconds=0.5),
        ],
    )
    assert result.configs.tolist() == [[2], [0]]
    assert result.costs.tolist() == [2.0, np.inf]
    assert result.failures == (None, FailureKind.CRASH)
    assert result.build_seconds.tolist() == [0.0, 0.5]
    assert len(Observations.of(space, [])) == 0
