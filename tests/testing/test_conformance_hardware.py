"""The conformance kit passes good spaces and runners and finds the mistake in bad ones."""

import attrs
import numpy as np
import pytest
from chameleon_core.plugins import NoOptions
from chameleon_core.space import Choice, Constraint, DesignSpace
from chameleon_core.stages import MeasureJob, StageRef
from chameleon_testing.conformance_hardware import (
    check_runner,
    check_space_provider,
    require_close,
)
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


class ChangingSpace(SyntheticSpace):
    made = 0

    def design_space(self, task):
        ChangingSpace.made += 1
        return DesignSpace([Choice(name="a", options=(0, -ChangingSpace.made))])


class EmptySpace(SyntheticSpace):
    def design_space(self, task):
        never = Constraint(reason="never", holds=lambda values: np.zeros(len(values["a"]), bool))
        return DesignSpace([Choice(name="a", options=(1, 2))], constraints=[never])


class ArraySpace(SyntheticSpace):
    def design_space(self, task):
        return DesignSpace([Choice(name="a", options=tuple(np.arange(2)))])


@pytest.mark.parametrize(
    ("space", "says"),
    [
        (ChangingSpace, "two spaces of one task differ"),
        (EmptySpace, "nothing in it is legal"),
        (ArraySpace, "a knob's value is no JSON: Object of type int64"),
    ],
)
def test_a_bad_space_is_found(space, says):
    with pytest.raises(AssertionError, match=says):
        check_space_provider(lambda: space(NoOptions()), TASK)


def test_a_good_runner_passes_with_failures_among_its_measurements():
    measurements = check_runner(lambda: SyntheticRunner(RunnerOptions()), JOB)
    assert 0 < sum(m.ok for m in measurements) < len(JOB.configs)


class ForgetfulRunner(SyntheticRunner):
    def measure(self, job):
        return list(super().measure(job))[1:]


class SilentRunner(SyntheticRunner):
    def measure(self, job):
        return [attrs.evolve(m, message="") for m in super().measure(job)]


class BackwardRunner(SyntheticRunner):
    def measure(self, job):
        return [attrs.evolve(m, seconds=tuple(-np.array(m.seconds))) for m in super().measure(job)]


class SecretRunner(SyntheticRunner):
    def describe(self):
        return {}


class OddRunner(SyntheticRunner):
    def describe(self):
        return {"device": object()}


@pytest.mark.parametrize(
    ("runner", "says"),
    [
        (SecretRunner, "says nothing about what measures"),
        (OddRunner, "what it says about what measures is no JSON"),
        (ForgetfulRunner, "not exactly one measurement per configuration"),
        (SilentRunner, "has no message"),
        (BackwardRunner, "times that are not positive"),
    ],
)
def test_a_bad_runner_is_found(runner, says):
    with pytest.raises(AssertionError, match=says):
        check_runner(lambda: runner(RunnerOptions()), JOB)


def test_outputs_of_unsigned_numbers_are_compared_as_numbers():
    expected = [np.array([200, 5], np.uint8)]
    require_close([np.array([199, 4], np.uint8)], expected, 0.01, "kernel")
    with pytest.raises(AssertionError, match=r"outputs differ by 0\.01 of"):
        require_close([np.array([198, 5], np.uint8)], expected, 0.005, "kernel")
    with pytest.raises(AssertionError, match="outputs differ by nan"):
        require_close([np.array([np.nan])], [np.array([1.0])], 0.1, "kernel")
