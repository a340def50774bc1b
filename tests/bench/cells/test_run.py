"""Cells: run once, continued, repeated exactly, and failing without harm."""

import json
from collections import Counter
from unittest.mock import Mock

import attrs
import pytest
from chameleon_bench._cells import running
from chameleon_bench._cells.execute import Execution, move_aside, results
from chameleon_bench._cells.running import CellResult, Recorder, begin, run_cell
from chameleon_core._errors import ChameleonError, RunFolderError
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._pipeline.load import from_dict
from stopping import StopAfter, interrupted
from synthetic import synthetic_registry

SUITE = """\
pipelines:
  small: {budget: {batch_size: 4}}
  large: {budget: {batch_size: 8}}
tasks:
  - model: {synthetic: {operators: [[9, 11, 7]], failing: 10}}
seeds: 3
budget: {measurements: 24}
"""
REPLAY = SUITE + "runner: synthetic-replay\n"


def live(tmp_path):
    return SUITE + f"runner: {{name: synthetic, log: {tmp_path / 'log'}}}\n"


def measured(tmp_path):
    lines = (tmp_path / "log").read_text().splitlines()
    return [line for line in lines if not line.endswith("compare")]


def test_replayed_cells_run_once_and_leave_no_run_folder(load, run):
    suite = load(REPLAY)
    assert sorted(run(suite, workers=2)) == sorted(cell.name for cell in suite.cells())
    assert run(suite) == []
    files = [path.name for path in (suite.output / "cells").rglob("*") if path.is_file()]
    assert Counter(files) == {"seed-0.json": 2, "seed-1.json": 2, "seed-2.json": 2}


def test_live_cells_run_one_after_the_other_and_keep_their_folders(load, run, tmp_path):
    suite = load(live(tmp_path))
    assert run(suite) == [cell.name for cell in suite.cells()]
    assert all((cell.folder / "records.sqlite").exists() for cell in suite.cells())
    assert run(suite) == []
    assert len(measured(tmp_path)) == 6 * 24


@pytest.mark.full
def test_two_runs_of_a_replayed_suite_measure_the_same(load, run, monkeypatch):
    suite = load(REPLAY)
    run(suite)
    first = {cell.name: result for cell, result in results(suite).items()}
    with monkeypatch.context() as patched:
        patched.setattr("shutil.move", Mock(side_effect=PermissionError(1, "denied")))
        with pytest.raises(RunFolderError, match=r"cannot move .*cells: denied"):
            move_aside(suite)
    assert [path.name for path in suite.output.glob("earlier-*")] == []
    assert move_aside(suite) is not None
    assert results(suite) == {}
    run(suite)
    for cell, result in results(suite).items():
        (mine,), (before,) = result.trajectories, first[cell.name].trajectories
        assert mine.costs.tolist() == before.costs.tolist()
        assert mine.failures == before.failures
        assert mine.rounds[:, :3].tolist() == before.rounds[:, :3].tolist()


def test_a_trajectory_has_the_clock_of_every_measurement_and_round(load, run):
    suite = load(REPLAY, "seeds=1")
    run(suite)
    for cell, result in results(suite).items():
        (first,) = result.trajectories
        batch = cell.document["budget"]["batch_size"]
        assert len(first.costs) == len(first.at) == 24
        assert (first.at[1:] >= first.at[:-1] + 1e-3).all()  # the synthetic table's millisecond
        assert first.rounds[:, 0].tolist() == list(range(batch, 25, batch))
        assert first.best_known == pytest.approx(1e-3)
        assert first.best == pytest.approx(first.final_seconds, rel=1e-8)  # kept to nine digits


def test_an_interrupted_live_suite_measures_nothing_twice(load, run, tmp_path):
    suite = load(live(tmp_path))
    interruption = Interruption()
    seen = []

    def stop(cell, _failure):
        seen.append(cell)
        if len(seen) == 2:
            interruption.request()

    execution = Execution(registry=synthetic_registry(), interruption=interruption, ended=stop)
    with pytest.raises(RunInterrupted):
        execution.run(suite)
    assert len(results(suite)) == 2
    assert len(run(suite)) == 4
    assert len(measured(tmp_path)) == 6 * 24


def test_a_cell_interrupted_half_way_continues_with_its_clock(load, run, tmp_path):
    (cell, _) = load(live(tmp_path), "seeds=1").cells()
    pipeline = from_dict(cell.document, registry=synthetic_registry())
    begin(cell)
    interrupted(pipeline, StopAfter(10), Recorder(cell.folder))
    assert 0 < len(measured(tmp_path)) < 24
    result = run_cell(cell, registry=synthetic_registry(), interruption=Interruption())
    (first,) = result.trajectories
    assert len(measured(tmp_path)) == len(first.costs) == 24
    assert first.rounds[:, 0].tolist() == [4, 8, 12, 16, 20, 24]
    assert (first.at[1:] > first.at[:-1]).all()


def test_the_hint_of_a_failure_names_flags(load, monkeypatch):
    def fail(*_):
        raise ChameleonError("it is another target's", hint="start anew (`fresh=True`)")

    monkeypatch.setattr(running, "_tune", fail)
    (cell, *_) = load(REPLAY).cells()
    result = run_cell(cell, registry=synthetic_registry(), interruption=Interruption())
    assert result.failure == "it is another target's (start anew (--fresh))"


@pytest.mark.full
def test_a_result_of_another_budget_does_not_count(load, run):
    run(load(REPLAY))
    assert len(run(load(REPLAY, "budget.measurements=16"))) == 6


@pytest.mark.full
def test_a_cell_that_fails_says_why_and_the_others_go_on(load, run):
    text = REPLAY.replace("seeds: 3", "seeds: 1") + "baselines: []\n"
    text = text.replace(
        "tasks:\n", "tasks:\n  - {name: bad, model: {synthetic: {operators: []}}}\n"
    )
    suite = load(text)
    assert len(run(suite)) == 4
    document = {(cell.task, result.failure) for cell, result in results(suite).items()}
    assert ("synthetic", None) in document
    assert "no operator to tune" in next(words for task, words in document if task == "bad")
    assert run(suite) == []
    assert len(run(suite, retry=True)) == 2


def test_a_runner_that_breaks_is_a_failed_cell(load, run):
    # The runner's log is a folder, which it cannot write to.
    suite = load(REPLAY.replace("synthetic-replay", "{name: synthetic-replay, log: /}"))
    assert len(run(suite)) == 6
    for result in results(suite).values():
        assert result.failure is not None
        assert "runner 'synthetic-replay' failed" in result.failure


@pytest.mark.full
def test_a_rival_has_a_trajectory_like_any_other(load, run):
    suite = load(REPLAY.replace("pipelines:\n", "pipelines:\n  other: {rival: synthetic}\n"))
    run(suite)
    result = next(r for cell, r in results(suite).items() if cell.pipeline == "other")
    (first,) = result.trajectories
    assert first.at.tolist() == [1.0, 2.0]
    assert first.count.tolist() == [1.0, 24.0]
    assert result.environment["rival"] == "synthetic"


@pytest.mark.full
def test_half_a_result_file_does_not_count(load, run):
    suite = load(REPLAY, "seeds=1")
    run(suite)
    cell = next(iter(suite.cells()))
    text = cell.result.read_text()
    cell.result.write_text(text[: len(text) // 2])
    assert CellResult.read(cell) is None
    assert run(suite) == [cell.name]
    assert json.loads(cell.result.read_text())["identity"] == cell.identity


def test_what_a_signal_ends_is_no_failed_cell(load, tmp_path, monkeypatch):
    cell = next(iter(load(live(tmp_path)).cells()))
    interruption = Interruption()

    def killed(*_):
        interruption.request()
        raise ChameleonError("its process ended with -15")

    monkeypatch.setattr(running, "_tune", killed)
    with pytest.raises(RunInterrupted):
        run_cell(cell, registry=synthetic_registry(), interruption=interruption)
    assert CellResult.read(cell) is None


def test_a_live_cell_of_another_version_measures_anew_and_keeps_the_old_run(load, run, tmp_path):
    suite = load(live(tmp_path), "seeds=1")
    run(suite)
    before = len(measured(tmp_path))
    newer = attrs.evolve(
        suite, pairings=tuple(attrs.evolve(row, versions={"mine": "2.0"}) for row in suite.pairings)
    )
    assert results(newer) == {}
    assert len(run(newer)) == 2
    assert len(measured(tmp_path)) == 2 * before
    for cell in newer.cells():
        assert (cell.folder.with_name("earlier-1-seed-0") / "records.sqlite").exists()
    assert run(newer) == []
