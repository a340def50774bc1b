"""From knob values, as people write them, to configurations and back."""

from __future__ import annotations

import numpy as np
import pytest
from chameleon_core.errors import ConfigError
from chameleon_core.space import Choice, Constraint, DesignSpace, Factorization, flag
from chameleon_core.space.fixed import config_of, index_of, knob_of
from hypothesis import given
from hypothesis import strategies as st

SPACE = DesignSpace(
    [
        Choice(name="algorithm", options=("direct", "tiled")),
        Factorization(name="tile", extent=12, when=("algorithm", (1,))),
        Choice(name="unroll", options=tuple(2**power for power in range(10))),
        flag("vectorize"),
    ],
    constraints=[Constraint(reason="unrolled too far", holds=lambda v: v["unroll"] < 512)],
)
ROWS = SPACE.everything.tolist()


def as_lists(values):
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items()}


def as_arrays(values):
    return {k: np.array(v) for k, v in values.items()}


@given(st.sampled_from(ROWS), st.sampled_from([dict, as_lists, as_arrays]))
def test_decoded_values_are_the_configuration(row, written):
    assert config_of(SPACE, written(SPACE.decode(row))) == tuple(row)


@given(st.sampled_from([row for row in ROWS if row[0] == 0]), st.integers(0, 5))
def test_knobs_that_do_not_apply_may_be_left_out_or_hold_anything(row, tile):
    values = SPACE.decode(row)
    del values["tile"]
    assert config_of(SPACE, values) == tuple(row)
    assert config_of(SPACE, {**values, "tile": SPACE.knobs[1].decode(tile)}) == tuple(row)


GOOD = {"algorithm": "tiled", "tile": (3, 4), "unroll": 4, "vectorize": True}


@pytest.mark.parametrize(
    ("values", "said", "hint"),
    [
        (
            {**GOOD, "unrol": 1},
            "there is no knob 'unrol'; did you mean 'unroll'?",
            "the knobs are algorithm, tile, unroll, vectorize",
        ),
        (
            {**GOOD, "tile": (5, 2)},
            "knob 'tile' has no value (5, 2)",
            "its values are (1, 12), (2, 6), (3, 4), (4, 3), (6, 2), (12, 1)",
        ),
        (
            {**GOOD, "unroll": 3},
            "knob 'unroll' has no value 3",
            "its values are 1, 2, 4, 8, 16, 32, 64, 128 and 2 more",
        ),
        (
            {"algorithm": "tiled", "unroll": 4},
            "the configuration says nothing of 'tile', 'vectorize'",
            "name a value of every knob that applies",
        ),
        (
            {**GOOD, "unroll": 512},
            f"{ {**GOOD, 'unroll': 512} } is no legal configuration: unrolled too far",
            "choose values that meet the conditions of the space",
        ),
    ],
)
def test_what_is_no_configuration_says_why(values, said, hint):
    with pytest.raises(ConfigError) as refused:
        config_of(SPACE, values)
    assert str(refused.value) == said
    assert refused.value.hint == hint


def test_a_knob_is_found_by_name_and_its_choice_by_value():
    assert knob_of(SPACE, "tile") is SPACE.knobs[1]
    assert [index_of(SPACE.knobs[2], 2**power) for power in range(10)] == list(range(10))
