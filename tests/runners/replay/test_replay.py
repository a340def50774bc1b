"""Runs on recorded tables: the clock, the noise, repeatability, our own runs as tables."""

import pytest
from chameleon_core._errors import ConfigError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._measurement import FailureKind
from chameleon_core._task import Task
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import Contender, MeasureJob, StageRef
from chameleon_runners._replay.options import Noise, ReplayOptions, Statistic
from chameleon_runners._replay.readers import table_of_task, tables_at
from chameleon_runners._replay.stages import ReplayRunner
from chameleon_testing.conformance import check_runner
from stopping import StopAfter, interrupted

from .conftest import pipeline, tasks_of

SPACE = StageRef(factory="chameleon_runners._replay.stages:TableSpace")


def _job(task, configs=None):
    chosen = table_of_task(task).configs.tolist() if configs is None else configs
    return MeasureJob(task=task, space=SPACE, configs=[tuple(config) for config in chosen])


def _best(file):
    (table,) = tables_at(str(file))
    return table.recorded.min()


def _records(folder):
    with RecordStore.of_run(folder) as store:
        return [m for stored in store.tasks() for m in store.measurements(stored.id)]


def test_it_conforms_and_answers_from_the_table(tiny):
    (task,) = tasks_of(tiny)
    measurements = check_runner(lambda: ReplayRunner(ReplayOptions()), _job(task))
    assert sum(not m.ok for m in measurements) == 2


def test_a_row_that_is_missing_is_an_invalid_configuration(tiny):
    (task,) = tasks_of(tiny)
    with ReplayRunner(ReplayOptions()) as runner:
        (measurement,) = runner.measure(_job(task, [(0, 2)]))
    assert measurement.failure is FailureKind.INVALID
    assert "no row" in measurement.message


def test_other_tasks_are_refused_with_a_sentence():
    task = Task(name="a", operator="conv2d", arguments={}, target="llvm", flop=1.0)
    with pytest.raises(ConfigError, match="not a recorded table"):
        list(ReplayRunner(ReplayOptions()).measure(_job(task, [(0,)])))


def test_the_clock_runs_ahead_by_what_was_replayed(tiny):
    (task,) = tasks_of(tiny)
    with ReplayRunner(ReplayOptions()) as runner:
        before = runner.now()
        measurements = list(runner.measure(_job(task)))
        success = runner.now() - before
    recorded = sum(m.build_seconds + m.run_seconds for m in measurements)
    # 8 valid rows of 1.111 s, one compile failure of 0.5 s, one run failure of 0.25 s.
    assert recorded == pytest.approx(9.638)
    assert success >= recorded


def test_noise_is_drawn_from_the_repeats_and_repeatable(tiny):
    (task,) = tasks_of(tiny)
    options = ReplayOptions(noise=Noise.REPEATS, draws=2, seed=3)
    medians = ReplayRunner(ReplayOptions(statistic=Statistic.MEDIAN))
    exact = {m.config: m for m in medians.measure(_job(task))}
    configs = list(exact)
    noisy = {m.config: m for m in ReplayRunner(options).measure(_job(task, configs))}
    again = {m.config: m for m in ReplayRunner(options).measure(_job(task, configs[::-1]))}
    assert noisy == again
    for config, measurement in noisy.items():
        assert set(measurement.seconds) <= set(exact[config].seconds)
        assert len(measurement.seconds) == (2 if measurement.ok else 0)
    other = ReplayRunner(ReplayOptions(noise=Noise.REPEATS, draws=2, seed=4))
    assert {m.config: m for m in other.measure(_job(task))} != noisy


def test_the_objective_as_published_counts_unless_the_median_is_chosen(skewed):
    (task,) = tasks_of(skewed)
    job = _job(task)
    found = {}
    for statistic in Statistic:
        with ReplayRunner(ReplayOptions(statistic=statistic)) as runner:
            best = min(runner.measure(job), key=lambda measured: measured.cost)
            assert runner.best_known(task) == best.cost
            found[statistic] = best.config, best.cost
    # A slow repeat makes the mean of the first worse than that of the second.
    assert found == {
        Statistic.RECORDED: ((1,), pytest.approx(3e-3)),
        Statistic.MEDIAN: ((0,), pytest.approx(2e-3)),
    }


def test_comparing_gives_the_recorded_times(tiny):
    (task,) = tasks_of(tiny)
    tuned = Contender(name="tuned", stage=SPACE, config=(2, 1))
    rival = Contender(name="untuned", stage=SPACE)
    first, other = ReplayRunner(ReplayOptions(noise=Noise.REPEATS)).compare(task, [tuned, rival])
    assert first.cost == pytest.approx(8.2e-3)
    assert other.failure is FailureKind.INVALID


@pytest.mark.full
@pytest.mark.parametrize("cost_model", ["xgboost", "mixed", "gaussian-process", "alternating"])
def test_two_runs_on_a_recorded_table_are_identical(recorded, tmp_path, cost_model):
    table = recorded("convolution_A100")
    stages = {"explorer": "annealing", "cost_model": cost_model}
    for folder in ("one", "two"):
        run_pipeline(pipeline(table, tmp_path / folder, seed=5, **stages))
    first = _records(tmp_path / "one")
    assert len(first) == 48
    assert first == _records(tmp_path / "two")
    run_pipeline(pipeline(table, tmp_path / "three", seed=6, **stages))
    assert first != _records(tmp_path / "three")


def test_a_run_knows_the_seconds_it_would_have_taken(tiny, tmp_path):
    result = run_pipeline(pipeline(tiny, tmp_path / "run"))
    spending = result.operators[0].spending
    assert spending.build + spending.run == pytest.approx(9.638)
    assert spending.measure >= spending.build + spending.run
    assert result.seconds >= spending.total
    assert result.operators[0].tuned_seconds == pytest.approx(_best(tiny))


def test_the_wall_clock_budget_is_read_from_the_simulated_clock(tiny, tmp_path):
    budget = {"measurements": 10, "batch_size": 1, "wall_time": 3.0}
    result = run_pipeline(pipeline(tiny, tmp_path / "run", budget=budget))
    # At 1.1 s a measurement and less for failures, three seconds end it before ten.
    assert 3 <= result.operators[0].measurements < 9


def test_an_interrupted_batch_is_kept(tiny, tmp_path):
    interrupted(pipeline(tiny, tmp_path / "run"), StopAfter(3, here=True))
    assert len(_records(tmp_path / "run")) == 3
    assert run_pipeline(pipeline(tiny, tmp_path / "run")).operators[0].measurements == 10


def test_our_own_run_folder_is_a_table(tiny, tmp_path):
    run_pipeline(pipeline(tiny, tmp_path / "run", budget={"measurements": 7, "batch_size": 4}))
    first = {m.config: m for m in _records(tmp_path / "run")}
    (task,) = tasks_of(tmp_path / "run")
    space = table_of_task(task).space()
    assert {knob.name for knob in space.knobs} <= {"x", "y"}
    assert len(space.all_legal) == 7
    run_pipeline(pipeline(tmp_path / "run", tmp_path / "again"))
    second = _records(tmp_path / "again")
    assert sorted(m.seconds for m in second) == sorted(m.seconds for m in first.values())


def test_auto_finds_the_space_of_a_table(tiny, tmp_path):
    pytest.importorskip("tvm")
    result = run_pipeline(pipeline(tiny, tmp_path / "run", space="auto"))
    assert result.operators[0].measurements == 10
