"""Which known tasks are most like another one, and which of their configurations it can have."""

import json

import numpy as np
import pytest
from chameleon_core._errors import RunFolderError
from chameleon_core._loop.start.earlier_runs import (
    WarmStart,
    distance,
    encoded,
    nearest,
    same_types,
)
from chameleon_core._pipeline.nodes import PipelineError
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace, Factorization
from hypothesis import given
from hypothesis import strategies as st
from synthetic import run_synthetic, synthetic_document

shapes = st.recursive(
    st.integers(-9, 99) | st.text(max_size=2) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=6,
)


@given(shapes, shapes)
def test_a_distance_is_one(one, other):
    assert distance(one, one) == 0.0
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert distance(one, other) >= 0.0


@given(st.integers(0, 500), st.integers(0, 500), st.integers(0, 500))
def test_further_extents_are_further_away(low, middle, high):
    low, middle, high = sorted((low, middle, high))
    assert distance([low], [middle]) <= distance([low], [high])
    assert distance([-low], [-middle]) == distance([low], [middle])


def test_what_is_no_number_counts_nothing_and_what_is_missing_counts_one():
    assert distance({"a": "x", "b": True, "c": [4]}, {"a": "y", "b": False, "c": [4]}) == 0.0
    assert distance({"a": [1, 2]}, {"a": [1]}) == 1.0
    assert distance({"a": 3}, {"b": 3}) == 2.0
    assert distance({"a": 1.0}, {"a": 3.0}) == pytest.approx(np.log(2))


def test_what_has_most_in_common_comes_first_then_what_is_nearest():
    own = {"size": [64, 64], "pad": 1, "layout": "a"}
    known = [
        {"size": [64, 60], "pad": 0, "layout": "b"},
        {"size": [8, 8], "pad": 1, "layout": "a"},
        {"size": [32, 64], "pad": 1, "layout": "a"},
        {"size": [64, 64], "pad": 0, "layout": "b"},
    ]
    assert nearest(own, known, dict) == [known[2], known[1]]
    assert nearest(own, known[:1], dict) == known[:1]
    assert nearest(own, [], dict) == []


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"dtype": "int8", "size": 9}, True),
        ({"dtype": "float32", "size": 3}, False),
        ({"size": 3}, False),
        ({"dtype": "int8", "out_dtype": "int32"}, False),
    ],
)
def test_types_are_compared_and_nothing_else(other, same):
    own = {"dtype": "int8", "size": 3}
    assert same_types(own, other) is same
    assert same_types(other, own) is same


SPACE = DesignSpace(
    [Factorization(name="tile", extent=8), Choice(name="unroll", options=(1, 2, 4))],
    constraints=[Constraint(reason="too far", holds=lambda v: v["unroll"] < v["tile"][:, 1])],
)


@given(st.integers(0, 2**32 - 1))
def test_a_configuration_of_the_space_is_found_again(seed):
    (row,) = SPACE.sample(1, np.random.default_rng(seed)).tolist()
    decoded = SPACE.decode(row)
    assert encoded(SPACE, decoded) == tuple(row)
    # Factors come back from a store as lists.
    assert encoded(SPACE, json.loads(json.dumps(decoded))) == tuple(row)


@pytest.mark.parametrize(
    "decoded",
    [
        {"tile": (2, 4)},
        {"tile": (2, 4), "unroll": 1, "more": 0},
        {"tile": (2, 4), "unroll": 8},
        {"tile": (3, 4), "unroll": 1},
        {"tile": (8, 1), "unroll": 4},
    ],
)
def test_what_the_space_does_not_have_is_none(decoded):
    assert encoded(SPACE, decoded) is None


def run(folder, operators, **more):
    return run_synthetic(synthetic_document(folder, operators=operators, **more))


def stored(folder):
    with RecordStore.of_run(folder) as store:
        return [(t.task, store.measurements(t.id)) for t in store.tasks()]


@pytest.fixture
def earlier(tmp_path):
    folder = tmp_path / "earlier"
    return folder, run(folder, [[50, 50]], seed=5).operators[0].config


@pytest.mark.parametrize("warm", [True, False])
def test_the_best_of_the_same_task_is_measured_in_the_first_batch(earlier, tmp_path, warm):
    folder, best = earlier
    run(tmp_path / "new", [[50, 50]], seed=1, **({"warm_start": [str(folder)]} if warm else {}))
    ((_, measurements),) = stored(tmp_path / "new")
    assert (best in [m.config for m in measurements[:4]]) is warm


def test_a_similar_task_lends_what_is_legal_here(earlier):
    folder, best = earlier
    ((task, _),) = stored(folder)
    other = type(task)(
        name="other", operator=task.operator, arguments={"more": 1}, target=task.target, flop=1.0
    )
    knobs = [Choice(name=f"knob{i}", options=tuple(range(60))) for i in range(2)]
    assert WarmStart([folder]).suggestions(other, DesignSpace(knobs)) == [best]
    assert WarmStart([folder]).suggestions(other, DesignSpace(knobs[:1])) == []
    small = [Choice(name=f"knob{i}", options=(99,)) for i in range(2)]
    assert WarmStart([folder]).suggestions(other, DesignSpace(small)) == []


def test_another_target_lends_nothing(earlier):
    folder, _ = earlier
    ((task, _),) = stored(folder)
    other = type(task)(
        name="other", operator=task.operator, arguments={}, target="elsewhere", flop=1.0
    )
    knobs = [Choice(name=f"knob{i}", options=tuple(range(60))) for i in range(2)]
    assert WarmStart([folder]).suggestions(other, DesignSpace(knobs)) == []


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(RunFolderError, match="no run folder"):
        WarmStart([tmp_path])
    with pytest.raises(PipelineError, match="there is no run folder"):
        run(tmp_path / "new", [[5, 5]], warm_start=[str(tmp_path / "gone")])
