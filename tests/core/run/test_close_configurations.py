"""Without baselines, the fastest configurations of several batches are timed in one batch."""

import attrs
import pytest
from chameleon_core._loop.end.comparison import close_measurements
from chameleon_core._loop.run import run_pipeline
from chameleon_core._run_view import RunView
from synthetic import (
    ModelOptions,
    RunnerOptions,
    SyntheticFrontend,
    SyntheticNetwork,
    SyntheticRunner,
    measurements_in,
    synthetic_cost,
)


class Unsteady(SyntheticRunner):
    """Runs on a machine that is slower during every second batch."""

    def __init__(self, options):
        super().__init__(options)
        self._slow = False

    def measure(self, job):
        factor, self._slow = 1.1 if self._slow else 1.0, not self._slow
        for measurement in super().measure(job):
            seconds = tuple(factor * each for each in measurement.seconds)
            yield attrs.evolve(measurement, seconds=seconds)


@pytest.fixture
def unsteady(pipeline, plugin):
    def make(frontend=SyntheticNetwork, **more):
        odd = plugin("runners", Unsteady, RunnerOptions)
        network = plugin("frontends", frontend, ModelOptions)
        model = {"odd": {"operators": [[9, 9]]}}
        return pipeline(plugins=[odd, network], runner={"name": "odd"}, model=model, **more)

    return make


def logged(tmp_path):
    return (tmp_path / "log").read_text().splitlines()


def test_the_fastest_in_one_batch_is_chosen_once(unsteady, tmp_path):
    budget = {"measurements": 40, "batch_size": 4}
    result = run_pipeline(unsteady(baselines=[], budget=budget))
    with RunView(result.folder) as view:
        (operator,) = view.operators
        task = operator.stored.task
        comparison = view.store.comparison(operator.stored.id)
    ((measured,)) = measurements_in(result.folder).values()
    close = [contender.config for contender in comparison.contenders]
    assert 2 <= len(close) <= 6
    costs = {m.config: m.cost for m in measured}
    assert [costs[config] for config in close] == [m.cost for m in close_measurements(measured)]
    truth = {config: synthetic_cost(task, config) for config in close}
    assert operator.result.config == min(close, key=truth.get)
    lines = logged(tmp_path)
    assert len(lines) == len(measured) + len(close)
    again = run_pipeline(unsteady(baselines=[], budget=budget))
    assert again.operators[0].config == operator.result.config
    assert logged(tmp_path) == lines


@pytest.mark.parametrize(
    ("frontend", "batch_size"), [(SyntheticNetwork, 8), (SyntheticFrontend, 2)]
)
def test_nothing_is_timed_again_after_one_batch_or_without_a_network(
    unsteady, tmp_path, frontend, batch_size
):
    budget = {"measurements": 8, "batch_size": batch_size}
    run_pipeline(unsteady(frontend, baselines=[], budget=budget))
    assert len(logged(tmp_path)) == 8
