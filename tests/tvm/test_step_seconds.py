"""Steps are summed by name, in the order in which they were begun first."""

from __future__ import annotations

import time

from chameleon_tvm.step_seconds import StepSeconds


def test_steps_are_told_apart(monkeypatch):
    now = iter([12.0, 15.0, 16.0, 20.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    steps = StepSeconds("start", since=10.0)
    steps.begin("compile")
    steps.begin("run")
    steps.begin("compile")
    assert steps.step == "compile"
    assert steps.until_now() == {"start": 2.0, "compile": 7.0, "run": 1.0}
