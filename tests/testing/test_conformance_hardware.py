"""The conformance kit passes good spaces and runners and finds the mistake in bad ones."""

import itertools

import attrs
import numpy as np
import pytest
from chameleon_core.plugin_api import (
    Choice,
    Constraint,
    DesignSpace,
    MeasureJob,
    NoOptions,
    StageRef,
)
from chameleon_testing.conformance import check_runner, check_space_provider, require_close
from synthetic import RunnerOptions, SyntheticRunner, SyntheticSpace, synthetic_task

TASK = synthetic_task([4, 5], failing=40)
JOB = MeasureJob(
    task=TASK,
    space=StageRef(factory=f"{SyntheticSpace.__module__}:SyntheticSpace", options={}),
    configs=[(i, j) for i in range(4) for j in range(5)],
    best_seconds=float("inf"),
)


def test_a_good_space_passes():
    check_space_provider(lambda: SyntheticSpace(NoOptions()), TASK)


def broken(good, **methods):
    """A good stage but for some methods."""
    return type("Broken", (good,), methods)


def space_of(*options, **more):
    return DesignSpace([Choice(name="a", options=options)], **more)


numbers = itertools.count()
NEVER = Constraint(reason="never", holds=lambda values: np.zeros(len(values["a"]), bool))


@pytest.mark.parametrize(
    ("says", "design_space"),
    [
        ("two spaces of one task differ", lambda *_: space_of(0, next(numbers) - 9)),
        ("nothing in it is legal", lambda *_: space_of(1, 2, constraints=[NEVER])),
        ("a knob's value is no JSON: Object of type int64", lambda *_: space_of(*np.arange(2))),
    ],
)
def test_a_bad_space_is_found(says, design_space):
    space = broken(SyntheticSpace, design_space=design_space)
    with pytest.raises(AssertionError, match=says):
        check_space_provider(lambda: space(NoOptions()), TASK)


def test_a_good_runner_passes_with_failures_among_its_measurements():
    measurements = check_runner(lambda: SyntheticRunner(RunnerOptions()), JOB)
    assert 0 < sum(m.ok for m in measurements) < len(JOB.configs)


def changed(change):
    """Measures as it should, and changes each measurement."""
    return lambda self, job: [
        attrs.evolve(m, **change(m)) for m in SyntheticRunner.measure(self, job)
    ]


@pytest.mark.parametrize(
    ("says", "method", "does"),
    [
        ("says nothing about what measures", "describe", lambda _: {}),
        ("about what measures is no JSON", "describe", lambda _: {"device": object()}),
        (
            "not exactly one measurement per configuration",
            "measure",
            lambda self, job: list(SyntheticRunner.measure(self, job))[1:],
        ),
        ("has no message", "measure", changed(lambda _: {"message": ""})),
        (
            "times that are not positive",
            "measure",
            changed(lambda m: {"seconds": tuple(-np.array(m.seconds))}),
        ),
    ],
)
def test_a_bad_runner_is_found(says, method, does):
    runner = broken(SyntheticRunner, **{method: does})
    with pytest.raises(AssertionError, match=says):
        check_runner(lambda: runner(RunnerOptions()), JOB)


def test_outputs_of_unsigned_numbers_are_compared_as_numbers():
    expected = [np.array([200, 5], np.uint8)]
    require_close([np.array([199, 4], np.uint8)], expected, 0.01, "kernel")
    with pytest.raises(AssertionError, match=r"outputs differ by 0\.01 of"):
        require_close([np.array([198, 5], np.uint8)], expected, 0.005, "kernel")
    with pytest.raises(AssertionError, match="outputs differ by nan"):
        require_close([np.array([np.nan])], [np.array([1.0])], 0.1, "kernel")
