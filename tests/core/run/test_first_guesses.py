"""Where tasks share a budget, each has its first guess measured before any has a batch."""

import re

import numpy as np
import pytest
from chameleon_core._loop.run import run_pipeline
from chameleon_core._task import Task
from chameleon_core.plugin_api import Choice, DesignSpace, Frontend, NoOptions
from stopping import StopAfter, interrupted
from structlog.testing import capture_logs
from synthetic import SyntheticSpace, synthetic_failure

GUESSES = (2, 0, 1, 3)
"""The index of all knobs in each of the space's first guesses."""

SHARED = {"measurements": 30, "batch_size": 4, "scope": "network"}


class Network(Frontend):
    """Six operators; the later, the more work."""

    failing = 0

    def __init__(self, _options: NoOptions) -> None:
        pass

    def tasks(self, target):
        return [
            Task(
                name=f"op{index}",
                operator="synthetic",
                arguments={"cardinalities": [9, 8, 4 + index], "failing": self.failing},
                target=target,
                flop=1e9 * (1 + index),
                weight=1,
            )
            for index in range(6)
        ]


class Half(Network):
    """The first guess and nearly half of all configurations fail."""

    failing = 45


class Doomed(Network):
    """All configurations fail."""

    failing = 100


class Recommending(SyntheticSpace):
    """Recommends several configurations."""

    def design_space(self, task):
        cards = task.arguments["cardinalities"]
        knobs = [Choice(name=f"k{i}", options=tuple(range(n))) for i, n in enumerate(cards)]
        guesses = np.stack([np.full(len(cards), choice, np.int32) for choice in GUESSES])
        return DesignSpace(knobs, first_guesses=guesses)


@pytest.fixture
def network(pipeline, plugin):
    def make(frontend=Network, **more):
        plugins = [plugin("frontends", frontend), plugin("spaces", Recommending)]
        values = {"model": {"odd": {}}, "space": "odd", "baselines": [], "budget": SHARED, **more}
        return pipeline(plugins=plugins, **values)

    return make


def measured(log_lines):
    """Task and configuration of each measurement, in order."""
    matches = [re.fullmatch(r"(\w+) \(([\d, ]*)\)", line) for line in log_lines()]
    return [(m[1], tuple(map(int, m[2].split(", ")))) for m in matches if m]


@pytest.mark.parametrize("scheduler", ["round-robin", "gradient"])
def test_every_task_has_its_first_guess_before_any_has_a_batch(network, log_lines, scheduler):
    run_pipeline(network(scheduler=scheduler))
    began = measured(log_lines)[:6]
    assert began == [(f"op{index}", (2, 2, 2)) for index in (5, 4, 3, 2, 1, 0)]


def test_a_small_budget_goes_to_the_heaviest(network, log_lines):
    result = run_pipeline(network(budget={**SHARED, "measurements": 4}))
    assert [task for task, _ in measured(log_lines)] == ["op5", "op4", "op3", "op2"]
    assert [row.measurements for row in result.operators] == [0, 0, 1, 1, 1, 1]


def test_a_budget_for_each_task_begins_with_batches(network, log_lines):
    run_pipeline(network(budget={"measurements": 8, "batch_size": 4}))
    assert {task for task, _ in measured(log_lines)[:4]} == {"op0"}


def test_where_a_guess_fails_the_next_one_is_measured(network, log_lines):
    run_pipeline(network(Half))
    names = [f"op{index}" for index in (5, 4, 3, 2, 1, 0)]
    expected = [(name, (choice,) * 3) for choice in (2, 0) for name in names]
    assert synthetic_failure(Half(NoOptions()).tasks("nowhere")[0], (2, 2, 2)) is not None
    assert measured(log_lines)[:12] == expected


def test_tasks_whose_guesses_all_fail_do_not_hold_the_others_up(network, log_lines):
    result = run_pipeline(network(Doomed))
    assert len(measured(log_lines)) == 30
    assert all(row.config is None for row in result.operators)


def test_the_wall_clock_ends_the_guesses_too(network, log_lines):
    budget = {"batch_size": 4, "scope": "network", "wall_time": "1ms"}
    result = run_pipeline(network(budget=budget, runner={"delay": 0.01}))
    assert 1 <= len(measured(log_lines)) <= 4
    assert result.operators[0].measurements == 0


@pytest.mark.full
@pytest.mark.parametrize("scheduler", ["round-robin", "gradient"])
@pytest.mark.parametrize("count", [1, 3, 7, 14])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(
    network, outcome, *, tmp_path, scheduler, count
):
    whole = run_pipeline(network(Half, scheduler=scheduler, output=tmp_path / "whole"))
    cut = network(Half, scheduler=scheduler, output=tmp_path / "cut")
    interrupted(cut, StopAfter(count))
    with capture_logs() as logs:
        continued = run_pipeline(cut)
    assert outcome(continued) == outcome(whole)
    assert not [log for log in logs if log["event"] == "left_over_measurements_kept"]


def test_a_larger_budget_goes_on_from_a_smaller_one(network, outcome, tmp_path):
    whole = run_pipeline(network(output=tmp_path / "whole"))
    for measurements in (3, 6, 9, 30):
        budget = {**SHARED, "measurements": measurements}
        result = run_pipeline(network(output=tmp_path / "steps", budget=budget))
    assert [row.config for row in result.operators] == [row.config for row in whole.operators]
