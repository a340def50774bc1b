"""The progress of MetaSchedule on several tasks."""

import time
from types import SimpleNamespace

from chameleon_tvm._rivals.metaschedule import Progress


def _result(*seconds):
    return SimpleNamespace(run_secs=seconds or None, error_msg=None if seconds else "no")


def test_the_networks_time_is_the_weighted_sum_once_all_tasks_have_one():
    progress = Progress(started=time.time(), wall_seconds=0.0, weights=(2.0, 1.0))
    progress.add(0, [_result(3.0, 5.0), _result()])
    assert (progress.best_seconds, progress.trials, progress.failed) == (None, 2, 1)
    progress.add(1, [_result(1.0)])
    assert progress.best_seconds == 9.0
    progress.add(0, [_result(2.0), _result(7.0)])
    assert [point["best_seconds"] for point in progress.history] == [None, 9.0, 5.0]
    assert not progress.expired, "there is no limit"


def test_it_expires_by_the_clock():
    progress = Progress(started=time.time() - 10, wall_seconds=9.0)
    assert not progress.expired
    progress.add(0, [_result(1.0)])
    assert progress.expired
