"""The part of a space in which some knobs hold one value."""

import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._space.fixed import config_of, fixed_space
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace, Factorization
from hypothesis import given
from hypothesis import strategies as st


def numbers(name, count, **more):
    return Choice(name=name, options=tuple(range(count)), **more)


def whole_space():
    """Small enough to be listed, with a knob that applies only sometimes."""
    return DesignSpace(
        [
            Choice(name="tiled", options=(False, True)),
            numbers("tile", 4, when=("tiled", (1,))),
            numbers("unroll", 3),
            Choice(name="only", options=("one",)),
        ],
        constraints=[Constraint(reason="odd", holds=lambda v: (v["tile"] + v["unroll"]) % 2 == 0)],
        first_guesses=np.array([[1, 3, 1, 0], [0, 0, 2, 0], [1, 1, 1, 0]]),
        variant=("of a test",),
    )


def large_space():
    """Too large to be listed, before and after a knob is fixed."""
    return DesignSpace([numbers(f"k{i}", 16) for i in range(9)])


@given(st.fixed_dictionaries({}, optional={0: st.just(1), 1: st.integers(0, 3), 2: st.just(1)}))
def test_legal_is_what_is_legal_in_the_whole_and_holds_the_values(fixed):
    whole = whole_space()
    rows = whole.from_keys(np.arange(whole.size))
    active = whole.active(rows)
    holds = np.all([(rows[:, c] == i) | ~active[:, c] for c, i in fixed.items()], axis=0)
    expected = whole.legal(rows) & holds
    if not expected.any():
        with pytest.raises(ConfigError, match="no legal configuration has"):
            fixed_space(whole, fixed)
        return
    part = fixed_space(whole, fixed)
    assert part.legal(rows).tolist() == expected.tolist()
    assert [part.why_illegal(row) is None for row in rows.tolist()] == expected.tolist()
    assert part.all_legal.tolist() == rows[expected].tolist()
    assert part.fingerprint == whole.fingerprint
    rng = np.random.default_rng(0)
    assert part.legal(part.mutate(part.sample(16, rng), rng)).all()


def test_guesses_hold_the_values_too():
    part = fixed_space(whole_space(), {2: 2})
    assert part.first_guesses.tolist() == [[0, 0, 2, 0]]
    part = fixed_space(whole_space(), {1: 1})
    # What applies in none of it stays as it was.
    assert part.first_guesses.tolist() == [[1, 1, 1, 0], [0, 0, 2, 0]]


def test_reasons_name_what_is_fixed():
    part = fixed_space(whole_space(), {0: 1, 1: 3})
    assert part.why_illegal([1, 3, 2, 0]) == "odd"
    assert part.why_illegal([1, 3, 1, 0]) is None
    said = "it does not hold the fixed values {'tiled': True, 'tile': 3}"
    assert part.why_illegal([1, 1, 1, 0]) == said
    assert part.why_illegal([1, 3, 1]) == "a configuration of this space has 4 knob indices"


def test_what_nothing_holds_is_refused():
    with pytest.raises(ConfigError) as refused:
        fixed_space(whole_space(), {0: 0, 2: 1})
    assert str(refused.value) == "no legal configuration has {'tiled': False, 'unroll': 1}"
    assert refused.value.hint


def test_nothing_fixed_is_the_space_itself():
    whole = whole_space()
    assert fixed_space(whole, {}) is whole


@pytest.mark.parametrize("fixed", [{0: 3}, {2: 15, 7: 0}])
def test_a_large_part_draws_evenly_and_moves_what_is_free(fixed):
    part = fixed_space(large_space(), fixed)
    assert part.all_legal is None
    rng = np.random.default_rng(0)
    rows = part.sample(4000, rng)
    columns, free = list(fixed), [c for c in range(9) if c not in fixed]
    assert part.movable.tolist() == free
    assert (rows[:, columns] == list(fixed.values())).all()
    # 250 of each value; six standard deviations either way.
    for column in free:
        assert np.abs(np.bincount(rows[:, column], minlength=16) - 250).max() < 95
    moved = part.mutate(rows, rng)
    assert ((moved != rows).sum(axis=1) == 1).all()
    assert (moved[:, columns] == rows[:, columns]).all()
    near = part.neighbours(rows[0])
    assert (near[:, columns] == rows[0, columns]).all()
    assert len(near) > len(free)


def test_a_part_small_enough_is_listed():
    part = fixed_space(large_space(), dict.fromkeys(range(5), 2))
    assert len(part.all_legal) == 16**4
    assert (part.all_legal[:, :5] == 2).all()


def test_values_become_columns_and_indices():
    whole = whole_space()
    assert whole.columns({"unroll": 2, "tiled": True}) == {2: 2, 0: 1}
    assert whole.columns({}) == {}


SPACE = DesignSpace(
    [
        Choice(name="algorithm", options=("direct", "tiled")),
        Factorization(name="tile", extent=12, when=("algorithm", (1,))),
        Choice(name="unroll", options=tuple(2**power for power in range(10))),
        Choice(name="vectorize", options=(False, True)),
    ],
    constraints=[Constraint(reason="unrolled too far", holds=lambda v: v["unroll"] < 512)],
)
ROWS = SPACE.all_legal.tolist()


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
    assert SPACE.knob("tile") is SPACE.knobs[1]
    assert [SPACE.knobs[2].encode(2**power) for power in range(10)] == list(range(10))
