"""Seconds of a run, and what the log of its events tells."""

from __future__ import annotations

import json

import numpy as np
from chameleon_bench.pages.run_events import RunEvents, run_events, since


def test_the_time_between_processes_does_not_count():
    times = np.array([90.0, 110.0, 130.0, 1005.0, 1010.0])
    # The first is another run's record; nothing ran between 130 and 1000.
    assert since(times, [100.0, 1000.0]).tolist() == [0.0, 10.0, 30.0, 35.0, 40.0]


def test_without_a_log_the_first_measurement_is_the_begin():
    assert since(np.array([5.0, 7.0]), []).tolist() == [0.0, 2.0]
    assert since(np.array([]), [1.0]).tolist() == []


def test_a_process_that_measured_nothing_changes_nothing():
    assert since(np.array([2.0, 13.0]), [1.0, 5.0, 10.0]).tolist() == [1.0, 4.0]


def _line(event, at=0.0, **more):
    return json.dumps({"at": at, "event": event, **more})


def test_batches_have_the_scores_of_their_rounds(tmp_path):
    log = tmp_path / "events.jsonl"
    measured = [{"name": "a", "best_seconds": 1e-3, "measured": count} for count in (4, 8)]
    first = [
        _line("RunStarted", 1.0),
        _line("BatchProposed", task="a", round=0, score=None),
        _line("BatchMeasured", 2.0, task=measured[0], round=0),
        _line("BatchProposed", task="a", round=1, score=2.5),
        _line("BatchMeasured", 3.0, task=measured[1], round=1),
        _line("RunFinished", result={"long": True}),
    ]
    log.write_text("\n".join([*first, first[0], first[1], first[2], '{"event": "RunSta']))
    found = run_events(log)
    batches = [(one.begin, one.end, one.score) for one in found.batches["a"]]
    assert batches == [(0, 4, None), (4, 8, 2.5)], "a resumed run tells of the first one again"
    assert found.starts == [1.0, 1.0]
    assert run_events(tmp_path / "none") == RunEvents()
