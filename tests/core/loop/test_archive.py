"""What the stages of one task may know of the others."""

from __future__ import annotations

import attrs
import numpy as np
from chameleon_core.space import Choice, DesignSpace
from chameleon_core.stages import Archive, Observations, TaskHistory
from chameleon_core.task import Task

SPACE = DesignSpace([Choice(name="a", options=(1, 2))])
TASK = Task(name="a", operator="x", arguments={}, target="none", flop=1.0)
OTHER = attrs.evolve(TASK, name="b", operator="y")


def _history(task: Task) -> TaskHistory:
    observations = Observations.of(SPACE, [])
    return TaskHistory(task=task, space=SPACE, observations=observations)


def test_a_task_never_sees_itself_under_any_name():
    archive = Archive()
    for task in (TASK, attrs.evolve(TASK, name="the same again"), OTHER):
        archive.record(_history(task))
    assert [history.task for history in archive.others(TASK)] == [OTHER]
    assert [history.task.key for history in archive.others(OTHER)] == [TASK.key]


def test_the_latest_record_counts():
    archive = Archive()
    archive.record(_history(TASK))
    latest = _history(TASK)
    archive.record(latest)
    assert archive.others(OTHER) == [latest]


def test_shared_objects_are_made_once():
    archive = Archive()
    first = archive.shared("ppo/policy", lambda: np.zeros(1))
    assert archive.shared("ppo/policy", lambda: np.ones(1)) is first
    assert archive.shared("ppo/other", lambda: None) is None
