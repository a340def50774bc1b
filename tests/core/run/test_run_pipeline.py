"""A run from pipeline to result."""

import json
import sys

import pytest
from chameleon_core._errors import ExitCode, PluginError
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._loop.run import run_pipeline
from chameleon_core._measurement import Measurement
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import DesignSpace, Frontend, TargetResolver, hookimpl
from synthetic import (
    BASELINE_SECONDS,
    RunnerOptions,
    SyntheticExplorer,
    SyntheticRunner,
    SyntheticSpace,
    synthetic_task,
)


def measured(lines):
    return [line for line in lines if not line.endswith("compare")]


def test_the_result(pipeline, log_lines, records):
    resolved = pipeline(failing=20)
    result = run_pipeline(resolved)
    assert result.exit_code is ExitCode.OK
    for operator in result.operators:
        assert operator.measurements == 20
        assert operator.vendor_seconds == operator.untuned_seconds == BASELINE_SECONDS
        assert operator.ratio == pytest.approx(BASELINE_SECONDS / operator.tuned_seconds)
        assert operator.gflops == pytest.approx(1.0 / operator.tuned_seconds)
        assert operator.best == {f"knob{i}": v for i, v in enumerate(operator.config)}
        stored = records(resolved.output)[operator.name]
        assert len(stored) == 20
        assert operator.search_seconds == min(m.cost for m in stored.values())
        assert sum(operator.failed.values()) == sum(not m.ok for m in stored.values()) > 0
        assert operator.spending.measure > 0
        assert operator.spending.search > 0
        assert operator.spending.model > 0
    assert len(measured(log_lines())) == len(set(log_lines())) - 2 == 40
    written = json.loads((resolved.output / "best.json").read_text())
    assert written == result.to_json()
    assert set(written["operators"][0]) >= {
        "name", "untuned_seconds", "tuned_seconds", "vendor_seconds", "gflops", "measurements",
        "failed", "wall_seconds", "ratio", "best", "variants",
    }  # fmt: skip
    nothing = dict.fromkeys(("latency_seconds", "untuned_seconds", "max_relative_error"))
    assert written["network"] == {**nothing, "rivals": {}}


def test_random_configurations_are_compared_without_measurements_and_guesses(pipeline, monkeypatch):
    guessing = SyntheticSpace.design_space
    without = lambda space, task: DesignSpace(guessing(space, task).knobs)  # noqa: E731
    monkeypatch.setattr(SyntheticSpace, "design_space", without)
    result = run_pipeline(pipeline(budget={"measurements": 0}))
    assert {operator.measurements for operator in result.operators} == {0}
    assert all(operator.tuned_seconds for operator in result.operators)


def test_without_baselines_nothing_is_measured_again(pipeline, log_lines):
    result = run_pipeline(pipeline(baselines=[]))
    assert len(measured(log_lines())) == len(log_lines()), "there is nothing to compare with"
    for operator in result.operators:
        assert operator.tuned_seconds == operator.search_seconds
        assert operator.ratio is operator.vendor_seconds is None
    assert result.exit_code is ExitCode.OK


class SameKnobs(Frontend):
    """Two tasks of different work whose spaces have the same knobs."""

    def __init__(self, _options):
        pass

    def tasks(self, target):
        return [
            synthetic_task([50, 50], f"op{index}", failing=index, target=target)
            for index in range(2)
        ]


def test_tasks_with_the_same_knobs_tell_each_other_the_best(pipeline, plugin, records, tmp_path):
    run_pipeline(pipeline(plugins=[plugin("frontends", SameKnobs)], model={"odd": {}}))
    first, other = records(tmp_path / "run").values()
    first_batch = list(first.values())[:4]
    assert min(first_batch, key=lambda m: m.cost).config in list(other)[:4]


def test_tasks_with_other_knobs_do_not(pipeline, records, tmp_path):
    run_pipeline(pipeline(output=tmp_path / "a", operators=[[50, 50], [50, 51]], seed=3))
    run_pipeline(pipeline(output=tmp_path / "b", operators=[[50, 51]], seed=3))
    assert set(records(tmp_path / "a")["op1"]) == set(records(tmp_path / "b")["op0"])


def test_a_larger_budget_continues(pipeline, tmp_path, log_lines, outcome):
    run_pipeline(pipeline(budget={"measurements": 10, "batch_size": 4}))
    continued = run_pipeline(pipeline(budget={"measurements": 30, "batch_size": 4}))
    assert len(measured(log_lines())) == len(set(measured(log_lines()))) == 60
    anew = run_pipeline(
        pipeline(output=tmp_path / "anew", budget={"measurements": 30, "batch_size": 4})
    )
    assert outcome(continued) == outcome(anew)


def test_another_batch_size_keeps_what_was_measured(pipeline, log_lines, records, tmp_path):
    run_pipeline(pipeline(budget={"measurements": 10, "batch_size": 4}))
    before = records(tmp_path / "run")
    result = run_pipeline(pipeline(budget={"measurements": 30, "batch_size": 5}))
    assert len(measured(log_lines())) == len(set(measured(log_lines())))
    for operator in result.operators:
        assert operator.measurements == 30
        after = records(tmp_path / "run")[operator.name]
        assert before[operator.name].items() <= after.items()
        assert operator.search_seconds == min(m.cost for m in after.values())


def test_a_run_that_continues_is_no_longer_finished(pipeline, tmp_path):
    run_pipeline(pipeline())
    interruption = Interruption()
    interruption.request()
    with pytest.raises(RunInterrupted):
        run_pipeline(
            pipeline(budget={"measurements": 30, "batch_size": 4}), interruption=interruption
        )
    with RecordStore.of_run(tmp_path / "run") as store:
        assert store.fact("finished") is None


def test_a_network_budget_is_shared(pipeline):
    budget = {"measurements": 20, "batch_size": 4, "scope": "network"}
    result = run_pipeline(pipeline(budget=budget))
    assert sorted(operator.measurements for operator in result.operators) == [9, 11]


def test_wall_time_counts_earlier_processes(pipeline, log_lines):
    budget = {"measurements": 10_000, "batch_size": 2, "wall_time": "1ms"}
    more = {"runner": {"delay": 0.002}, "operators": [[99, 99]]}
    run_pipeline(pipeline(budget=budget, **more))
    before = log_lines()
    # Another budget, so that the run is not finished, with no more time in it.
    result = run_pipeline(pipeline(budget={**budget, "measurements": 9_999}, **more))
    assert log_lines() == before
    assert result.operators[0].measurements == 2


def test_a_target_latency_ends_a_run(pipeline):
    limits = {"measurements": 10_000, "batch_size": 4}
    easy = run_pipeline(pipeline(budget={**limits, "latency": "1000s"}, operators=[[40, 40], [41]]))
    assert [operator.measurements for operator in easy.operators] == [4, 4]


def test_the_gradient_scheduler_ends_before_the_budget(pipeline, records):
    budget = {"measurements": 5_000, "batch_size": 4, "scope": "network"}
    resolved = pipeline(budget=budget, scheduler="gradient", operators=[[40, 40], [60, 60]])
    result = run_pipeline(resolved)
    assert all(8 <= operator.measurements < 1600 for operator in result.operators)
    before = records(resolved.output)
    run_pipeline(
        pipeline(
            budget={**budget, "measurements": 4_999},
            scheduler="gradient",
            operators=[[40, 40], [60, 60]],
        )
    )
    assert records(resolved.output) == before, "a resumed run chooses as it did before"


class FourAtOnce(SyntheticRunner):
    @property
    def batch_size(self):
        return 4


class NoneAtOnce(SyntheticRunner):
    @property
    def batch_size(self):
        return 0


@pytest.mark.parametrize(("budget", "size"), [({}, 4), ({"batch_size": 7}, 7)])
def test_the_batch_size_is_the_runners_unless_the_pipeline_says_one(pipeline, plugin, budget, size):
    proposed = []

    class Listener:
        @hookimpl
        def chameleon_batch_proposed(self, event):
            proposed.append(event.count)

    resolved = pipeline(
        plugins=[plugin("runners", FourAtOnce, RunnerOptions)],
        runner={"name": "odd"},
        budget={"measurements": 14, **budget},
        operators=[[40, 40]],
    )
    run_pipeline(resolved, listeners=[Listener()])
    assert max(proposed) == size


def test_a_runner_that_wants_no_batches_breaks_its_contract(pipeline, plugin):
    resolved = pipeline(
        plugins=[plugin("runners", NoneAtOnce, RunnerOptions)],
        runner={"name": "odd"},
        budget={"measurements": 14},
    )
    with pytest.raises(PluginError, match="batch size 0"):
        run_pipeline(resolved)


def test_patience_ends_a_task(pipeline):
    budget = {"measurements": 10_000, "batch_size": 4, "patience": 12}
    result = run_pipeline(pipeline(operators=[[40, 40]], budget=budget))
    assert 16 <= result.operators[0].measurements < 1600


def test_everything_invalid_is_no_valid_result(pipeline, log_lines):
    result = run_pipeline(pipeline(failing=100))
    assert result.exit_code is ExitCode.NO_VALID_RESULT
    assert all(sum(operator.failed.values()) == 20 for operator in result.operators)
    assert not any(line.endswith("compare") for line in log_lines())
    assert run_pipeline(pipeline(failing=100)).exit_code is ExitCode.NO_VALID_RESULT


@pytest.mark.parametrize(("ratio", "code"), [(1.5, ExitCode.OK), (4.5, ExitCode.THRESHOLD_MISSED)])
def test_a_required_ratio(pipeline, ratio, code):
    result = run_pipeline(pipeline(require={"min_ratio": ratio, "against": "synthetic"}))
    assert result.exit_code is code
    assert len(result.missed) == (2 if code else 0)
    # Asked again of the finished run, another threshold is judged anew.
    assert run_pipeline(pipeline()).exit_code is ExitCode.OK


class SecondBest(SyntheticRunner):
    """Ranks the finalists the other way round when they are compared."""

    def compare(self, task, contenders):
        measurements = super().compare(task, contenders)
        ours = [c.name == "tuned" for c in contenders].count(True)
        return [
            Measurement(config=m.config, seconds=(1e-3 / (1 + i),)) if i < ours else m
            for i, m in enumerate(measurements)
        ]


def test_the_comparison_chooses_the_winner(pipeline, plugin, records):
    resolved = pipeline(
        plugins=[plugin("runners", SecondBest, options_of(pipeline()))],
        operators=[[9, 9]],
        runner={"name": "odd"},
    )
    operator = run_pipeline(resolved).operators[0]
    stored = sorted(records(resolved.output)["op0"].values(), key=lambda m: m.cost)
    assert operator.config != stored[0].config
    assert operator.tuned_seconds == pytest.approx(1e-3 / 3)
    assert operator.search_seconds == stored[2].cost


def options_of(resolved):
    return type(resolved.runner.options)


class Workshop(TargetResolver):
    """One machine, with a description."""

    def __init__(self, options):
        pass

    def resolve(self, text):
        return text

    def describe(self, target):
        return {"kind": target, "cores": 3}


class Telling(SyntheticExplorer):
    """Keeps what it is told of the device."""

    devices = []

    def __init__(self, options, context):
        super().__init__(options, context)
        self.devices.append(context.device)


def test_stages_are_told_what_the_target_is(pipeline, plugin):
    Telling.devices.clear()
    explorer, resolver = plugin("explorers", Telling), plugin("targets", Workshop)
    run_pipeline(pipeline(plugins=[explorer, resolver], explorer="odd", operators=[[5, 5]]))
    assert Telling.devices == [{"kind": "nowhere", "cores": 3}]


@pytest.mark.parametrize("runner", ["synthetic", "synthetic-replay"])
@pytest.mark.parametrize(
    ("start", "most"), [(run_pipeline, 37), (TaskTuner.ask, 17)], ids=["run", "batch"]
)
def test_a_record_goes_through_few_files(pipeline, runner, start, most):
    """``most`` is how many files of the core there are; stages and what processes need are not."""
    resolved = pipeline(runner={"name": runner})
    run_pipeline(resolved)  # imports what a run needs
    entered = set()
    begun = False

    def note(frame, event, _):
        nonlocal begun
        code = frame.f_code
        begun = begun or code is start.__code__
        _, core, file = code.co_filename.rpartition("/chameleon_core/")
        if begun and core and event == "call":
            entered.add(file)
        if code is RecordStore.add.__code__:
            sys.setprofile(None)

    sys.setprofile(note)
    try:
        run_pipeline(resolved, fresh=True)
    finally:
        sys.setprofile(None)
    assert "_store/records.py" in entered
    assert len(entered) <= most, sorted(entered)
