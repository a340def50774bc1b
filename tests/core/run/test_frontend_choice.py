"""A frontend may measure before it names its tasks; what it settles on is kept for good."""

import io
import json

import pytest
from chameleon_cli._progress import LiveProgress, PlainProgress
from chameleon_core._errors import ExitCode, PluginError
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._loop.run import run_pipeline
from chameleon_core._loop.start.frontend import recalled
from chameleon_core.api import RecordStore
from synthetic import (
    ModelOptions,
    RunnerOptions,
    SyntheticBaseline,
    SyntheticFrontend,
    SyntheticRunner,
    SyntheticSpace,
    synthetic_cost,
    synthetic_task,
)


def _task(cards, target="nowhere", failing=0):
    return synthetic_task(cards, f"trial{cards}", failing=failing, target=target)


class Choosy(SyntheticFrontend):
    """Asks which of two tasks is faster, and names that one alone."""

    asked = []
    size: int = 0

    def decide(self, trials):
        seconds = {size: trials.best_seconds(_task([size], trials.target), 3) for size in (4, 9)}
        self.asked.append((trials.measures_hardware, seconds))
        self.size = min(seconds, key=seconds.get)
        return {"size": self.size}

    def restore(self, decisions):
        self.size = decisions["size"]

    def tasks(self, target):
        return [_task([self.size], target)]


class Stepwise(Choosy):
    """Notes when it is asked, as the stages below do."""

    steps = []

    def tasks(self, target):
        self.steps.append("name the tasks")
        return super().tasks(target)


class SteppingSpace(SyntheticSpace):
    def design_space(self, task):
        Stepwise.steps.append("make a space")
        return super().design_space(task)


class SteppingBaseline(SyntheticBaseline):
    def supports(self, task):
        Stepwise.steps.append("ask a baseline")
        return super().supports(task)


class SteppingRunner(SyntheticRunner):
    def __enter__(self):
        Stepwise.steps.append("start the runner")
        return super().__enter__()

    def measure(self, job):
        Stepwise.steps.append("measure")
        yield from super().measure(job)

    def compare(self, task, contenders):
        Stepwise.steps.append("compare")
        return super().compare(task, contenders)

    def close(self):
        Stepwise.steps.append("stop the runner")


class Silent(SyntheticFrontend):
    """Settles on nothing."""


class Wrong(SyntheticFrontend):
    """Settles on what is no mapping."""

    def decide(self, trials):
        return ["NHWC"]


class Hopeless(SyntheticFrontend):
    """Asks for what has no time."""

    answers = []

    def decide(self, trials):
        self.answers += [
            trials.best_seconds(_task([4], failing=100), 1),
            trials.best_seconds(_task([4]), 0),
        ]


class Waiting(SyntheticRunner):
    """Is asked to stop while it measures."""

    interruption = None

    def measure(self, job):
        self.interruption.request()
        yield from super().measure(job)


def test_the_choice_is_measured_and_kept(modelled, log_lines):
    Choosy.asked.clear()
    result = run_pipeline(modelled(Choosy, baselines=[]))
    [(measures_hardware, seconds)] = Choosy.asked
    assert measures_hardware
    assert seconds == {size: synthetic_cost(_task([size]), [0]) for size in (4, 9)}
    size = min(seconds, key=seconds.get)
    assert [operator.task["name"] for operator in result.operators] == [f"trial[{size}]"]
    assert log_lines()[:2] == ["trial[4] (0,)", "trial[9] (0,)"], "before anything else"
    started = json.loads((result.folder / "events.jsonl").open().readline())
    assert started["settled"] == {"size": size}
    with RecordStore.of_run(result.folder) as store:
        assert [task.task.name for task in store.tasks()] == [f"trial[{size}]"]


class Undecided(Choosy):
    """Takes what it is told, be it nothing."""

    def decide(self, trials):
        self.asked.append(trials.best_seconds(_task([4], trials.target), 3))
        self.size = 4
        return {"size": self.size}


def test_a_budget_of_no_measurement_measures_nothing_for_the_choice(modelled, log_lines):
    Choosy.asked.clear()
    run_pipeline(modelled(Undecided, baselines=[], budget={"measurements": 0}))
    assert Choosy.asked == [None]
    assert log_lines() == ["trial[4] compare"]  # what is recommended is checked at the end


def test_starting_up_goes_one_way(plugin, modelled):
    Stepwise.steps.clear()
    plugins = [
        plugin("spaces", SteppingSpace),
        plugin("runners", SteppingRunner, RunnerOptions),
        plugin("baselines", SteppingBaseline),
    ]
    resolved = modelled(
        Stepwise,
        plugins=plugins,
        space="odd",
        runner={"name": "odd"},
        baselines=["odd"],
        budget={"measurements": 2, "batch_size": 2},
    )
    assert run_pipeline(resolved).exit_code is ExitCode.OK
    assert Stepwise.steps == [
        *("start the runner", "make a space", "measure", "make a space", "measure"),
        *("name the tasks", "make a space", "ask a baseline"),
        *("measure", "compare", "stop the runner"),
    ]


def test_a_continued_run_recalls_the_choice(modelled):
    Choosy.asked.clear()
    first = run_pipeline(modelled(Choosy, baselines=[], budget={"measurements": 2}))
    assert len(Choosy.asked) == 1
    again = run_pipeline(modelled(Choosy, baselines=[], budget={"measurements": 4}))
    assert len(Choosy.asked) == 1, "nothing is measured for it again"
    assert again.operators[0].task == first.operators[0].task


def test_what_choosing_took_is_taken_from_a_wall_clock_that_is_shared(modelled, tmp_path):
    def spent(scope):
        budget = {"wall_time": "1ms", "batch_size": 2, "scope": scope}
        folder = modelled(
            Choosy, baselines=[], budget=budget, runner={"delay": 0.01}, output=tmp_path / scope
        )
        return run_pipeline(folder).operators[0].measurements

    assert spent("network") == 0, "two trials took longer than the budget"
    assert spent("task") > 0


def test_what_was_settled_can_be_recalled_without_a_run(modelled):
    resolved = modelled(Choosy, baselines=[], budget={"measurements": 2})
    folder = run_pipeline(resolved).folder
    frontend = Choosy(ModelOptions(operators=()))
    with RecordStore.of_run(folder) as store:
        stored = recalled(resolved, frontend, store)
    assert stored == {"size": frontend.size}
    assert frontend.size in {4, 9}


def test_most_frontends_have_nothing_to_settle(modelled):
    result = run_pipeline(modelled(Silent))
    with RecordStore.of_run(result.folder) as store:
        assert store.fact("model") is None


def test_what_has_no_time_is_none(modelled):
    Hopeless.answers.clear()
    run_pipeline(modelled(Hopeless))
    assert Hopeless.answers == [None, None]


def test_a_choice_that_is_no_mapping_is_the_plugins_mistake(modelled):
    with pytest.raises(PluginError, match="settled on a list instead of a mapping"):
        run_pipeline(modelled(Wrong))


def test_an_interrupted_choice_is_made_anew(modelled, plugin, tmp_path):
    Choosy.asked.clear()
    Waiting.interruption = interruption = Interruption()
    stopping = modelled(
        Choosy,
        plugins=[plugin("runners", Waiting, RunnerOptions)],
        runner={"name": "odd", "log": str(tmp_path / "log")},
        baselines=[],
    )
    with pytest.raises(RunInterrupted):
        run_pipeline(stopping, interruption=interruption)
    assert Choosy.asked == []
    with RecordStore.of_run(tmp_path / "run") as store:
        assert store.fact("model") is None


@pytest.mark.parametrize("kind", [PlainProgress, LiveProgress])
def test_the_progress_display_tells_the_choice(modelled, kind):
    file = io.StringIO()
    progress = kind(file)
    run_pipeline(modelled(Choosy, baselines=[]), listeners=[progress])
    progress.close()
    assert "chosen first: {'size': " in file.getvalue()
