"""Steps are summed by name, in the order in which they were begun first."""

import time

import pytest
from chameleon_networks._step_times import Stopwatch


def test_steps_are_told_apart(monkeypatch):
    now = iter([12.0, 15.0, 16.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    steps = Stopwatch("start", since=10.0)
    steps.begin("compile")
    steps.begin("run")
    steps.begin("compile")
    assert steps.step == "compile"
    assert steps.until_now() == {"start": 2.0, "compile": 7.0, "run": 1.0}


def test_a_step_within_another_is_no_part_of_it(monkeypatch):
    now = iter([11.0, 14.0, 20.0, 21.0, 24.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    steps = Stopwatch("compile", since=10.0)
    with steps.during("simulate"):
        assert steps.step == "simulate"
    with pytest.raises(ValueError, match="broken"), steps.during("simulate"):
        raise ValueError("broken")
    assert steps.until_now() == {"compile": 10.0, "simulate": 4.0}
