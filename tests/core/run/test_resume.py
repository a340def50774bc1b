"""An interrupted run, continued, ends as an undisturbed one and measures nothing twice."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from chameleon_core.loop.interruption import RunInterrupted
from chameleon_core.loop.run import run_pipeline
from chameleon_core.pipeline.load import from_dict
from chameleon_core.run_folder import read_store
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import synthetic_document, synthetic_registry


def synthetic(folder, **more):
    document = synthetic_document(
        folder / "run", failing=25, runner={"log": str(folder / "log")}, **more
    )
    return from_dict(document, registry=synthetic_registry())


def everything(folder):
    with read_store(folder / "run") as store:
        return {t.task.name: sorted(store.measurements(t.id), key=str) for t in store.tasks()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    result = run_pipeline(synthetic(folder))
    return everything(folder), [(o.name, o.config, o.tuned_seconds) for o in result.operators]


@settings(max_examples=15, deadline=None)
@given(stops=st.lists(st.integers(1, 15), min_size=1, max_size=4))
def test_resumed_equals_undisturbed(tmp_path_factory, undisturbed, stop_after, stops):
    folder = tmp_path_factory.mktemp("resumed")
    for count in stops:
        stop = stop_after(count)
        with contextlib.suppress(RunInterrupted):
            run_pipeline(synthetic(folder), listeners=[stop], interruption=stop.interruption)
    result = run_pipeline(synthetic(folder))
    records, winners = undisturbed
    assert everything(folder) == records
    assert [(o.name, o.config, o.tuned_seconds) for o in result.operators] == winners
    lines = (folder / "log").read_text().splitlines()
    # What was in flight when the run stopped was finished and saved, so not even that repeats.
    assert max(Counter(lines).values()) == 1


def test_a_stop_between_tuning_and_comparing_is_resumed(tmp_path, stop_after, undisturbed):
    stop = stop_after(40)
    with pytest.raises(RunInterrupted, match="saved") as caught:
        run_pipeline(synthetic(tmp_path), listeners=[stop], interruption=stop.interruption)
    assert "same command" in caught.value.hint
    assert caught.value.exit_code == 130
    result = run_pipeline(synthetic(tmp_path))
    assert [(o.name, o.config, o.tuned_seconds) for o in result.operators] == undisturbed[1]


def test_seconds_add_up_over_processes(tmp_path, stop_after):
    before = 0.0
    for _ in range(3):
        stop = stop_after(5)
        with pytest.raises(RunInterrupted):
            run_pipeline(synthetic(tmp_path), listeners=[stop], interruption=stop.interruption)
        with read_store(tmp_path / "run") as store:
            seconds = store.fact("seconds")
            assert seconds > before
            assert sum(task.spending.total for task in store.tasks()) <= seconds
        before = seconds
    assert run_pipeline(synthetic(tmp_path)).seconds > before
