"""Spaces in a few lines: what they hold, what they refuse, and with what words."""

import chameleon_core as cc
import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._space.fixed import fixed_space
from chameleon_core.plugin_api import Choice, DesignSpace, Factorization


def test_values_are_knobs_in_their_order():
    space = cc.design_space(
        {"where": [1, 2]}, tile=range(3), kind=("a", "b"), size=np.array([2, 4])
    )
    assert [knob.name for knob in space.knobs] == ["where", "tile", "kind", "size"]
    assert space.decode((1, 2, 0, 1)) == {"where": 2, "tile": 2, "kind": "a", "size": 4}


def test_a_condition_takes_single_values_and_is_asked_once_for_each():
    asked = []

    def small(tile, unroll):
        asked.append((tile, unroll))
        assert type(tile) is int
        return tile < 4 and unroll < 16

    space = cc.design_space(tile=[1, 2, 4], unroll=[0, 16], other=[False, True], where=[small])
    assert len(space.all_legal) == 4
    assert sorted(asked) == sorted(set(asked))
    assert space.why_illegal((2, 0, 0)) == "it does not meet small"


def test_a_mapping_names_conditions():
    space = cc.design_space(tile=[1, 2], where={"small tiles": lambda tile: tile < 2})
    assert space.why_illegal((1,)) == "it does not meet small tiles"


def test_knobs_of_the_core_may_be_given():
    tile = Factorization(name="tile", extent=8)
    space = cc.design_space(tile=tile, unroll=[0, 1], where=[lambda tile: tile[1] == 4])
    assert [space.decode(row)["tile"] for row in space.all_legal] == [(2, 4), (2, 4)]


@pytest.mark.parametrize(
    ("knobs", "more", "said"),
    [
        ({}, {}, "at least one knob"),
        ({"tile": []}, {}, "has no options"),
        ({"tile": [1, 1]}, {}, "an option twice"),
        ({"tile": [1, "a"]}, {}, "mixes numbers and strings"),
        ({"tile": 8}, {}, "needs a list of values"),
        ({"tile": "12"}, {}, "needs a list of values"),
        ({"tile": [None, 1]}, {}, "neither a number nor a text"),
        ({"tile": [float("nan"), 1]}, {}, "neither a number nor a text"),
        ({"tile": [(1, 2)]}, {}, "neither a number nor a text"),
        ({"tile": Factorization(name="tyle", extent=8)}, {}, "one named 'tyle'"),
        ({"tile": [1]}, {"where": ["tile < 2"]}, "cannot be called"),
        ({"tile": [1]}, {"where": [lambda tyle: True]}, "did you mean 'tile'"),
        ({"tile": [1]}, {"where": [lambda *tile: True]}, "takes '.tile', which is no knob"),
        ({"tile": [1]}, {"where": [lambda tile: False]}, "no combination"),
        ({"tile": [1]}, {"where": [lambda tile: tile / 0]}, "raised ZeroDivisionError for"),
        ({"tile": [1]}, {"fix": {"tile": 2}}, "knob 'tile' has no value 2"),
        ({"tile": [1]}, {"fix": {"tyle": 1}}, "no knob 'tyle'"),
        ({"tile": [1]}, {"first": [{"tile": 2}]}, "no value 2"),
        ({"tile": [1]}, {"first": {"tile": 1}}, "'first' must be a list of configurations"),
        ({"tile": [1]}, {"first": ["tile"]}, "'tile' is no configuration"),
        ({"tile": [1]}, {"where": [max]}, "does not tell its parameters"),
        ({"tile": [1]}, {"tile": [2]}, "knob 'tile' is given twice"),
        ({"tile": [1]}, {"fix": ["tile"]}, "says no values"),
        ({"tile": {1, 2}}, {}, "needs a list of values"),
        ({1: [1]}, {}, "has no text as its name"),
        ([1, 2], {}, "which names none"),
    ],
)
def test_what_is_no_space_says_why(knobs, more, said):
    with pytest.raises(ConfigError, match=said) as refused:
        cc.design_space(knobs, **more)
    assert refused.value.hint


@pytest.mark.parametrize("knobs", [2, 9])
def test_spaces_are_told_apart_by_what_their_conditions_allow(knobs):
    values = {f"knob{i}": list(range(8)) for i in range(knobs)}
    less, same, more = (
        cc.design_space(values, where=[condition])
        for condition in (
            lambda knob0, knob1: knob0 < knob1,
            lambda knob1, knob0: knob1 > knob0,
            lambda knob0, knob1: knob0 <= knob1,
        )
    )
    assert less.fingerprint == same.fingerprint != more.fingerprint


def test_a_large_space_without_a_configuration_is_refused_unless_one_is_given():
    """A search that draws none would end with nothing and say nothing."""
    many = {name: range(200) for name in "abc"}
    with pytest.raises(ConfigError, match="of 8,000,000, meets all") as caught:
        cc.design_space(many, where=[lambda a, b, c: a == b == c == 7])
    assert caught.value.__notes__ == [caught.value.hint]
    arguments = cc.design_space(
        many, where=[lambda a, b, c: a == b == c == 7], first=[{"a": 7, "b": 7, "c": 7}]
    )
    assert arguments.first_guesses.tolist() == [[7, 7, 7]]


def test_first_guesses_come_first():
    space = cc.design_space(tile=[1, 2, 4], first=[{"tile": 4}, {"tile": 1}])
    assert space.first_guesses.tolist() == [[2], [0]]


def test_a_fixed_space_guesses_costs_as_the_whole_one():
    """A predictor that was trained with the guess would read other columns without it."""

    def cost(values):
        return values["tile"] * 2.0

    tiles = Choice(name="tile", options=(1, 2, 4))
    assert fixed_space(DesignSpace([tiles], guessed_cost=cost), {0: 1}).guessed_cost is cost


def test_values_may_be_fixed():
    space = cc.design_space(tile=[1, 2, 4], unroll=[0, 16], fix={"tile": 2})
    assert [space.decode(row)["tile"] for row in space.all_legal] == [2, 2]
