"""Analytical features say which loop or buffer they tell of; no fingerprint depends on it."""

from __future__ import annotations

import numpy as np
import pytest
from chameleon_core.space import Choice, DesignSpace, FeatureBlock


def _block(**given):
    return FeatureBlock(names=("a", "b"), compute=lambda values: np.zeros((1, 2)), **given)


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
        DesignSpace(knobs, features=_block(**given))
        for given in ({}, {"groups": (("loop", ("a",)), ("buffer", ("b",)))})
    ]
    assert spaces[0].fingerprint == spaces[1].fingerprint
