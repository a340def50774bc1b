"""Seconds of a run, and what the log of its events tells."""

import json

import numpy as np
from chameleon_bench._pages.run_record import RunEvents, run_events, since


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


def test_lines_that_were_cut_off_or_damaged_are_left_out(tmp_path):
    log = tmp_path / "events.jsonl"
    measured = {"name": "a", "best_seconds": 1e-3, "measured": 4}
    lines = [
        _line("RunStarted", 1.0),
        _line("BatchMeasured", 2.0, task=measured, round=0),
        _line("RunFinished", result={"long": True}),
        _line("RunStarted", 5.0),
        '{"event": "RunSta',
    ]
    log.write_bytes(b'\xeb{"event": "RunStarted"}\n' + "\n".join(lines).encode())
    result = run_events(log)
    assert result.starts == [1.0, 5.0]
    assert [(event.task, event.measured, event.at) for event in result.rounds] == [("a", 4, 2.0)]
    assert run_events(tmp_path / "none") == RunEvents()
