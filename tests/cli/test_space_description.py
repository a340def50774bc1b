"""A design space in figures."""

import json

import numpy as np
import pytest
from chameleon_cli._space import describe_space, legal_share
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace, Factorization
from chameleon_testing._conformance_cases import grid

RNG = np.random.default_rng


def space(**more):
    knobs = [
        Choice(name="algorithm", options=("direct", "blocked")),
        Factorization(name="tile", extent=8, when=("algorithm", (1,))),
        Choice(name="unroll", options=(1, 2, 4)),
    ]
    return DesignSpace(knobs, **more)


UNROLLED = Constraint(reason="unrolled too far", holds=lambda values: values["unroll"] < 4)
NOTHING = Constraint(reason="nothing is legal", holds=lambda values: np.zeros(1, np.bool_))


@pytest.mark.parametrize(
    ("constraints", "share", "configurations"),
    [((), 1.0, 3 + 4 * 3), ((UNROLLED,), 2 / 3, 2 + 4 * 2), ((NOTHING,), 0.0, 0)],
)
def test_a_small_space_is_counted(constraints, share, configurations):
    legal = legal_share(space(constraints=constraints), 100, RNG(0))
    assert legal.exact
    assert legal.samples == 24
    assert legal.share == pytest.approx(share)
    assert legal.configurations == configurations


def test_a_large_space_is_drawn_from():
    legal = legal_share(grid(*[16] * 30, holds=lambda values: values["k0"] < 8), 2000, RNG(1))
    assert not legal.exact
    assert legal.samples == 2000
    assert legal.configurations is None
    # Eight standard deviations of a share of one half.
    assert legal.share == pytest.approx(0.5, abs=8 * 0.5 / 2000**0.5)


@pytest.mark.parametrize("index", [0, 15])
def test_every_choice_is_drawn_as_often(index):
    first = grid(*[16] * 30, holds=lambda values: values["k0"] == index)
    legal = legal_share(first, 4000, RNG(1))
    # Six standard deviations.
    assert legal.share == pytest.approx(1 / 16, abs=6 * (15 / 16**2 / 4000) ** 0.5)


def test_what_is_told_of_a_space():
    described_space = space(
        constraints=[UNROLLED], first_guesses=np.array([[1, 2, 1], [0, 0, 1], [0, 0, 0]])
    )
    described = describe_space(described_space, samples=10, guesses=2, seed=0)
    assert json.loads(json.dumps(described))["size"] == 24
    assert described["knobs"][1] == {
        "name": "tile",
        "values": [(1, 8), (2, 4), (4, 2), (8, 1)],
        "when": {"knob": "algorithm", "values": ["blocked"]},
    }
    assert described["constraints"] == ["unrolled too far"]
    assert described["first_guesses"] == 3
    # A knob that does not apply has no value.
    assert described["guesses"] == [
        {"algorithm": "blocked", "tile": (4, 2), "unroll": 2},
        {"algorithm": "direct", "unroll": 2},
    ]
