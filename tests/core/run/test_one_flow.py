"""From a run's start, and from a batch's proposal, it is not far to the first stored record."""

from __future__ import annotations

import sys

import pytest
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.loop.run import run_pipeline
from chameleon_core.store import RecordStore


@pytest.mark.parametrize("runner", ["synthetic", "synthetic-replay"])
@pytest.mark.parametrize(
    ("start", "most"), [(run_pipeline, 49), (TaskTuner.ask, 24)], ids=["run", "batch"]
)
def test_a_record_goes_through_few_files(pipeline, runner, start, most):
    """``most`` is how many files of the core there are; stages and what processes need are not."""
    resolved = pipeline(runner={"name": runner})
    run_pipeline(resolved)  # imports what a run needs
    entered: set[str] = set()
    begun = False

    def note(frame, event, _):
        nonlocal begun
        code = frame.f_code
        begun = begun or code is start.__code__
        _, core, file = code.co_filename.rpartition("/chameleon_core/")
        if begun and core and event == "call":
            entered.add(file)
        if code is RecordStore.add.__code__:
            sys.setprofile(None)

    sys.setprofile(note)
    try:
        run_pipeline(resolved, fresh=True)
    finally:
        sys.setprofile(None)
    assert "store/records.py" in entered
    assert len(entered) <= most, sorted(entered)
