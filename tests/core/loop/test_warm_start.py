"""What earlier runs found best is measured first."""

from __future__ import annotations

import pytest
from chameleon_core.errors import RunFolderError
from chameleon_core.loop.run import run_pipeline
from chameleon_core.loop.start.warm_start import WarmStart
from chameleon_core.pipeline.load import from_dict
from chameleon_core.pipeline.nodes import PipelineError
from chameleon_core.run_folder import read_store
from chameleon_core.space import Choice, DesignSpace
from synthetic import synthetic_document, synthetic_registry


def run(folder, operators, **more):
    document = synthetic_document(folder, operators=operators, **more)
    return run_pipeline(from_dict(document, registry=synthetic_registry()))


def stored(folder):
    with read_store(folder) as store:
        return [(t.task, store.measurements(t.id)) for t in store.tasks()]


@pytest.fixture
def earlier(tmp_path):
    folder = tmp_path / "earlier"
    result = run(folder, [[50, 50]], seed=5)
    return folder, result.operators[0].config


def test_the_best_of_the_same_task_is_measured_in_the_first_batch(earlier, tmp_path):
    folder, best = earlier
    run(tmp_path / "new", [[50, 50]], seed=1, warm_start=[str(folder)])
    ((_, measurements),) = stored(tmp_path / "new")
    assert best in [m.config for m in measurements[:4]]


def test_without_it_that_one_is_not(earlier, tmp_path):
    _, best = earlier
    run(tmp_path / "new", [[50, 50]], seed=1)
    ((_, measurements),) = stored(tmp_path / "new")
    assert best not in [m.config for m in measurements[:4]]


def test_a_similar_task_lends_what_is_legal_here(earlier):
    folder, best = earlier
    ((task, _),) = stored(folder)
    other = type(task)(
        name="other", operator=task.operator, arguments={"more": 1}, target=task.target, flop=1.0
    )
    knobs = [Choice(name=f"knob{i}", options=tuple(range(60))) for i in range(2)]
    assert WarmStart([folder]).suggestions(other, DesignSpace(knobs)) == [best]
    assert WarmStart([folder]).suggestions(other, DesignSpace(knobs[:1])) == []
    small = [Choice(name=f"knob{i}", options=(99,)) for i in range(2)]
    assert WarmStart([folder]).suggestions(other, DesignSpace(small)) == []


def test_another_target_lends_nothing(earlier):
    folder, _ = earlier
    ((task, _),) = stored(folder)
    other = type(task)(
        name="other", operator=task.operator, arguments={}, target="elsewhere", flop=1.0
    )
    knobs = [Choice(name=f"knob{i}", options=tuple(range(60))) for i in range(2)]
    assert WarmStart([folder]).suggestions(other, DesignSpace(knobs)) == []


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(RunFolderError, match="no run folder"):
        WarmStart([tmp_path])
    with pytest.raises(PipelineError, match="there is no run folder"):
        run(tmp_path / "new", [[5, 5]], warm_start=[str(tmp_path / "gone")])
