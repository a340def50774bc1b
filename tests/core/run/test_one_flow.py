"""From a run's start to its first record a configuration goes through few files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from chameleon_core.loop import run_pipeline
from chameleon_core.store import RecordStore

FILES = 35
"""Source files of the core, of which something is called on the way."""


@pytest.mark.parametrize("runner", ["synthetic", "synthetic-replay"])
def test_from_run_to_the_stored_record(pipeline, runner):
    resolved = pipeline(runner={"name": runner})
    run_pipeline(resolved)  # imports what a run needs
    entered: set[str] = set()

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and "/chameleon_core/" in code.co_filename:
            entered.add(code.co_filename)
            if code is RecordStore.add.__code__:
                sys.setprofile(None)

    sys.setprofile(note)
    try:
        run_pipeline(resolved, fresh=True)
    finally:
        sys.setprofile(None)
    files = {Path(name).as_posix().partition("/chameleon_core/")[2] for name in entered}
    ours = {name for name in files if not name.startswith("testing/")}
    assert len(ours) <= FILES, sorted(ours)
