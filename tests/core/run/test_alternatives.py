"""Tasks of a network as it is are tuned as if there were no alternatives to them."""

from __future__ import annotations

from typing import ClassVar

import attrs
import pytest
from chameleon_core.loop.run import run_pipeline
from structlog.testing import capture_logs
from synthetic import ModelOptions, RunnerOptions, SyntheticFrontend, SyntheticRunner

MEASUREMENTS = 24
SHORT = 1.0
"""Seconds that a measurement of a task of the network as it is takes, on the runner's clock."""


class WithAlternatives(SyntheticFrontend):
    """Each task once more, with the same knobs."""

    def tasks(self, target):
        own = super().tasks(target)
        others = [
            attrs.evolve(
                task,
                name=f"{task.name} small",
                arguments={**task.arguments, "dtype": "small"},
                alternative_of=task.name,
            )
            for task in own
        ]
        return [*own, *others]


class ClockedRunner(SyntheticRunner):
    """Has a clock of its own, by which measurements of alternatives may take longer."""

    longer = SHORT
    jobs: ClassVar[list] = []

    def __init__(self, options):
        super().__init__(options)
        self._elapsed = 0.0

    def now(self):
        return self._elapsed

    def measure(self, job):
        self.jobs.append(job)
        for measurement in super().measure(job):
            self._elapsed += self.longer if job.task.alternative_of else SHORT
            yield measurement


@pytest.fixture(name="clocked")
def _clocked(pipeline, plugin, records, monkeypatch):
    """Runs two tasks and an alternative of each; what was measured of whom, and the result."""

    def run(longer=SHORT):
        monkeypatch.setattr(ClockedRunner, "longer", longer)
        monkeypatch.setattr(ClockedRunner, "jobs", [])
        resolved = pipeline(
            plugins=[
                plugin("frontends", WithAlternatives, ModelOptions),
                plugin("runners", ClockedRunner, RunnerOptions),
            ],
            model={"odd": {"operators": [[9, 9], [7, 7]]}},
            runner={"name": "odd"},
            budget={"measurements": MEASUREMENTS, "batch_size": 4, "scope": "network"},
        )
        result = run_pipeline(resolved)
        return records(result.folder), result

    return run


class DeliveringWithAlternatives(WithAlternatives):
    """The same, and something is made of them."""

    def deliver(self, delivery):
        del delivery


@pytest.mark.parametrize("scope", ["task", "network"])
def test_what_is_measured_of_a_networks_own_tasks_stays_the_same(
    pipeline, plugin, records, tmp_path, scope
):
    def measured(kind, folder):
        resolved = pipeline(
            plugins=[plugin("frontends", kind, ModelOptions)],
            model={"odd": {"operators": [[9, 9], [7, 7]]}},
            budget={"measurements": MEASUREMENTS, "batch_size": 4, "scope": scope},
            output=str(tmp_path / folder),
        )
        return records(run_pipeline(resolved).folder)

    alone, beside = measured(SyntheticFrontend, "alone"), measured(WithAlternatives, "beside")
    assert {name: set(found) for name, found in alone.items()} == {
        name: set(found) for name, found in beside.items() if name in alone
    }
    others = [len(found) for name, found in beside.items() if name not in alone]
    most = 0.6 * MEASUREMENTS * (2 if scope == "task" else 1)
    assert 0 < sum(others) <= most


def test_alternatives_come_when_the_network_as_it_is_has_been_tuned(clocked, log_lines):
    clocked()
    measured = ["small" in line for line in log_lines() if "compare" not in line]
    assert measured == sorted(measured)
    assert True in measured


@pytest.mark.parametrize(("longer", "measured"), [(1.0, 14), (1.5, 6), (3.0, 2)])
def test_alternatives_take_no_larger_a_share_of_the_seconds_than_of_the_measurements(
    clocked, longer, measured
):
    # The others take 24 s, so that 14.4 s are left to them.
    found, result = clocked(longer)
    others = {name: len(one) for name, one in found.items() if "small" in name}
    assert sum(others.values()) == measured
    assert min(others.values()) > 0, "each is measured once, whatever that takes"
    reasons = {one.ended for one in result.operators if "small" in one.name}
    assert reasons == {
        "the measurement budget is spent"
        if longer == SHORT
        else "the share of the time that other types may take is spent"
    }


def test_what_is_slower_than_what_an_alternative_has_to_beat_is_timed_no_further(clocked):
    _, result = clocked()
    best = {one.name: one.search_seconds for one in result.operators}
    for name in ("op0", "op1"):
        first = next(job for job in ClockedRunner.jobs if job.task.name == f"{name} small")
        assert first.best_seconds == best[name]
    own = [job.best_seconds for job in ClockedRunner.jobs if job.task.name == "op0"]
    assert own[0] == float("inf"), "nothing has to be beaten by a task of the network as it is"


def test_alternatives_that_the_budget_did_not_reach_are_told_apart(pipeline, plugin):
    resolved = pipeline(
        plugins=[plugin("frontends", DeliveringWithAlternatives, ModelOptions)],
        model={"odd": {"operators": [[9, 9], [7, 7]]}},
        budget={"measurements": 2, "batch_size": 1, "scope": "network"},
        baselines=[],
    )
    with capture_logs() as logs:
        run_pipeline(resolved)
    told = {log["event"]: log for log in logs if "did not reach" in log["event"]}
    [(event, log)] = told.items()
    assert event.startswith("other types")
    assert (log["count"], log["of"]) == (1, 2)
    assert log["operators"][0].endswith(" small")
