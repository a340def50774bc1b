"""Single configurations of several tasks: built side by side, timed one after the other."""

import attrs
import pytest
from chameleon_core.plugin_api import MeasureJob, MeasureStream
from chameleon_runners._local.runner import LocalStream
from faults import Fault, config

from ..conftest import TASK, drained, fault_space  # noqa: TID252 - tests are no package
from ..faults.conftest import HARNESSES  # noqa: TID252


def _job(count):
    configs = [(number,) for number in range(count)]
    return MeasureJob(task=None, space=None, configs=configs)


def test_single_configurations_make_up_groups_and_batches_go_alone():
    groups = []

    def group(jobs):
        groups.append([len(job.configs) for job in jobs])
        for job in jobs:
            for row in job.configs:
                yield MeasureStream.Arrival(job=job, measurement=row)

    stream = LocalStream(group, size=2)
    for count in (1, 1, 1, 3, 1, 1):
        stream.submit(_job(count))
    arrived = [len(job.configs) for job, _ in drained(stream)]
    assert groups == [[1, 1], [1], [3], [1, 1]]
    assert arrived == [1, 1, 1, 3, 3, 3, 1, 1]


def test_closing_ends_what_is_under_way():
    closed = []

    def group(jobs):
        try:
            yield MeasureStream.Arrival(job=jobs[0], measurement=None)
            pytest.fail("it was closed")
        finally:
            closed.append(True)

    stream = LocalStream(group, size=1)
    stream.submit(_job(1))
    stream.submit(_job(1))
    assert stream.poll() is not None
    stream.close()
    assert closed == [True]
    assert not stream.busy


TURNING_UP = (
    Fault.NONE,
    Fault.SEGFAULTS,
    Fault.NONE,
    Fault.BUILD_RAISES,
    Fault.BUILD_SEGFAULTS,
    Fault.WRONG,
    Fault.NONE,
)


def _of_tasks(faults):
    tasks = [attrs.evolve(TASK, name=f"op{number}", arguments={"n": number}) for number in range(9)]
    return [
        MeasureJob(task=task, space=fault_space(), configs=[config(fault)])
        for task, fault in zip(tasks, faults, strict=False)
    ]


def test_every_task_gets_its_own_measurement_whatever_the_others_do(runner):
    jobs = _of_tasks(TURNING_UP)
    with runner.stream() as stream:
        for row in jobs:
            stream.submit(row)
        arrivals = drained(stream)
    result = {job.task.name: measurement for job, measurement in arrivals}
    assert len(arrivals) == len(jobs)
    assert result.keys() == {job.task.name for job in jobs}
    for job, fault in zip(jobs, TURNING_UP, strict=True):
        assert result[job.task.name].failure == HARNESSES["local"].expected(fault)
    [again] = runner.measure(jobs[0])
    assert again.ok, "the workers can go on with other things"


def test_a_group_that_is_interrupted_ends_after_the_measurement_in_flight(runner):
    with runner.stream() as stream:
        for row in _of_tasks([Fault.NONE] * 6):
            stream.submit(row)
        first = stream.poll()
        runner.interrupt()
        assert (first is not None) + len(drained(stream)) in range(1, 6)
