"""Tasks that are like those of networks, and none that is held out."""

import attrs
import numpy as np
import pytest
from chameleon_core._task import Task
from chameleon_one_shot._dataset import sampling
from chameleon_one_shot._dataset.sampling import (
    HeldOut,
    ObservedTask,
    TaskDistribution,
    TaskSampler,
    flatten,
    unflatten,
)
from chameleon_one_shot._dataset.tasks import DatasetError
from hypothesis import given
from hypothesis import strategies as st

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
ARGUMENTS = st.dictionaries(
    st.text(min_size=1, max_size=3), LEAVES | st.lists(st.integers(), max_size=4), max_size=4
)


def task(operator="conv", **arguments):
    return Task(name="t", operator=operator, arguments=arguments, target="nowhere", flop=1.0)


def observed(*tasks):
    return [ObservedTask(task=task, mass=1.0) for task in tasks]


@given(ARGUMENTS)
def test_fields_are_the_arguments(arguments):
    assert unflatten(flatten(arguments)) == arguments


SQUARES = [
    task(input=[1, 8 * n, 7 * n, 7 * n], kernel=[k, k], layout="NHWC")
    for n in range(1, 17)
    for k in (1, 3)
]


def test_what_is_square_in_networks_is_square_in_what_is_drawn():
    distribution = TaskDistribution(observed(*SQUARES))
    rng = np.random.default_rng(0)
    known = {tuple(row.arguments["input"]) for row in SQUARES}
    new = 0
    for _ in range(100):
        operator, drawn = distribution.draw(rng)
        assert operator == "conv"
        batch, channels, height, width = drawn["input"]
        assert (batch, height, drawn["kernel"][0]) == (1, width, drawn["kernel"][1])
        assert drawn["kernel"][0] in {1, 3}
        assert 8 <= channels <= 128
        assert 7 <= height <= 112
        new += (batch, channels, height, width) not in known
    assert new > 20


def test_fields_are_drawn_for_those_drawn_before():
    # Small images have many channels, and only those have a bias.
    small = [task(input=[512 + 8 * n, 7 + n], bias=True) for n in range(16)]
    large = [task(input=[16 + 2 * n, 112 + 4 * n]) for n in range(16)]
    distribution = TaskDistribution(observed(*small, *large))
    rng = np.random.default_rng(1)
    drawn = [distribution.draw(rng)[1] for _ in range(60)]
    assert all((row["input"][0] >= 256) == (row["input"][1] < 64) for row in drawn)
    assert np.mean([row.get("bias", False) == (row["input"][0] >= 256) for row in drawn]) > 0.8


def test_frequent_kinds_are_drawn_more_often_and_rare_ones_all_the_same():
    common = ObservedTask(task=task(size=3), mass=0.9)
    distribution = TaskDistribution([common, ObservedTask(task=task("pool", size=3), mass=0.1)])
    rng = np.random.default_rng(2)
    assert 20 < [distribution.draw(rng)[0] for _ in range(200)].count("pool") < 80


def test_lists_of_other_lengths_are_not_mixed():
    rows = [task("dense", input=[n, 64]) for n in range(1, 12)]
    batches = [task("dense", input=[2, n, 64]) for n in range(1, 12)]
    distribution = TaskDistribution(observed(*rows, *batches))
    rng = np.random.default_rng(3)
    drawn = [distribution.draw(rng)[1]["input"] for _ in range(40)]
    assert {len(row) for row in drawn} == {2, 3}
    assert all(row[0] == 2 for row in drawn if len(row) == 3)


@pytest.mark.parametrize(
    ("arguments", "covered"),
    [
        ({"input": [100, 64], "kernel": 3}, True),
        ({"input": [91, 70], "kernel": 3, "layout": "NCHW", "bias": True}, True),
        ({"input": [89, 64], "kernel": 3}, False),
        ({"input": [100, 64], "kernel": 1}, False),
        ({"input": [100, 64, 1], "kernel": 3}, False),
    ],
)
def test_what_is_within_a_tenth_in_every_dimension_is_held_out(arguments, covered):
    held_out = HeldOut([task(input=[100, 64], kernel=3)])
    assert held_out.covers("conv", arguments) == covered
    assert not held_out.covers("pool", arguments)


def sampler(registry, **more):
    sizes = [[n, 2 * n] for n in range(2, 14)]
    tasks = [task("synthetic", cardinalities=size, failing=0) for size in sizes]
    values = {
        "observed": observed(*tasks),
        "held_out": HeldOut([]),
        "target": "nowhere",
        "most_flop": np.inf,
        "seed": 0,
        "registry": registry,
        "has_space": lambda _: True,
    }
    return TaskSampler(**{**values, **more})


def test_tasks_are_distinct_and_those_drawn_first_stay(registry):
    tasks = sampler(registry).draw(12)
    assert len({row.key for row in tasks}) == len({row.name for row in tasks}) == 12
    keys = [row.key for row in tasks]
    assert [row.key for row in sampler(registry).draw(5)] == keys[:5]
    assert [row.key for row in sampler(registry).draw(12, tasks[:5])] == keys
    assert [row.key for row in sampler(registry, seed=1).draw(12)] != keys


def test_what_nobody_can_measure_is_drawn_anew(registry):
    held_out = HeldOut([task("synthetic", cardinalities=[10, 20], failing=0)])
    tasks = sampler(
        registry,
        held_out=held_out,
        most_flop=1e5,
        has_space=lambda one: one.arguments["cardinalities"][0] != 4,
    ).draw(8)
    for one in tasks:
        first, second = one.arguments["cardinalities"]
        assert 7 not in {first, second}  # the operator refuses it
        assert first != 4
        assert 1000 * first * second <= 1e5
        assert not held_out.covers("synthetic", one.arguments)


def test_more_tasks_than_there_are_is_an_error(registry, monkeypatch):
    monkeypatch.setattr(sampling, "_TRIES", 5)
    few = attrs.evolve(sampler(registry), has_space=lambda _: False)
    with pytest.raises(DatasetError, match="only 0 tasks of 3"):
        few.draw(3)
    with pytest.raises(DatasetError, match="no operator to tune"):
        attrs.evolve(few, observed=[]).draw(1)
