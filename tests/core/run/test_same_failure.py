"""A run in which everything fails alike stops, and says why."""

import json

import pytest
from chameleon_cli._run import _print
from chameleon_core._errors import ExitCode
from chameleon_core._loop.run import run_pipeline
from chameleon_core._measurement import FailureKind, Measurement
from structlog.testing import capture_logs
from synthetic import RunnerOptions, SyntheticReplay, SyntheticRunner

MESSAGE = "was killed by signal SIGILL after {} ms"
BUDGET = {"measurements": 48, "batch_size": 4}
OPERATORS = [[9, 9], [8, 9], [7, 9]]


class Foreign(SyntheticRunner):
    """Runs nothing of the tasks it is told to fail; of the others what ``works`` says."""

    doomed = set()
    kind = FailureKind.CRASH

    def measure(self, job):
        for number, trial in enumerate(super().measure(job)):
            if job.task.name not in self.doomed:
                yield trial
            else:
                yield Measurement(
                    config=trial.config, failure=self.kind, message=MESSAGE.format(number)
                )


class Recorded(Foreign, SyntheticReplay):
    """The same of a table."""


@pytest.fixture
def run(pipeline, plugin, monkeypatch):
    def made(*doomed, runner=Foreign, budget=BUDGET, operators=OPERATORS):
        monkeypatch.setattr(Foreign, "doomed", set(doomed))
        resolved = pipeline(
            plugins=[plugin("runners", runner, RunnerOptions)],
            runner={"name": "odd"},
            operators=operators,
            budget=budget,
            baselines=[],
        )
        with capture_logs() as logs:
            result = run_pipeline(resolved)
        return result, [log for log in logs if log["event"] == "tuning_stopped"]

    return made


ALL = ("op0", "op1", "op2")


@pytest.mark.parametrize("scope", ["task", "network"])
@pytest.mark.parametrize("operators", [OPERATORS, OPERATORS[:1]])
def test_a_run_in_which_nothing_works_stops_with_the_reason(run, scope, operators, capsys):
    result, logged = run(*ALL, budget={**BUDGET, "scope": scope}, operators=operators)
    assert 16 <= sum(row.measurements for row in result.operators) < 16 + 4
    assert result.exit_code is ExitCode.NO_VALID_RESULT
    assert [log["tasks"] for log in logged] == [list(ALL[: len(operators)])]
    assert logged[0]["failure"].startswith("crash: was killed by signal SIGILL after")
    for operator in result.operators:
        assert "failed alike: crash: was killed" in operator.ended
    written = json.loads((result.folder / "best.json").read_text())
    assert written["operators"][0]["ended"] == result.operators[0].ended
    _print(result)
    assert "op0: no configuration gave a valid result; all 1" in capsys.readouterr().err


def test_one_operator_that_cannot_work_leaves_the_budget_of_the_others_alone(run):
    result, logged = run("op1")
    assert [row.measurements for row in result.operators] == [48, 16, 48]
    assert [log["tasks"] for log in logged] == [["op1"]]
    assert result.operators[0].ended == "the measurement budget is spent"


@pytest.mark.parametrize(("same_failure", "measured"), [(None, 48), (5, 8), ("auto", 16)])
def test_the_budget_says_after_how_many(run, same_failure, measured):
    result, _ = run("op0", budget={**BUDGET, "same_failure": same_failure}, operators=OPERATORS[:1])
    assert result.operators[0].measurements == measured


def test_a_batch_without_enough_memory_is_the_last(run, monkeypatch):
    monkeypatch.setattr(Foreign, "kind", FailureKind.OUT_OF_MEMORY)
    result, _ = run("op0", budget={**BUDGET, "batch_size": 8}, operators=OPERATORS[:1])
    assert result.operators[0].measurements == 8


def test_a_recorded_table_is_replayed_to_the_end(run):
    result, logged = run(*ALL, runner=Recorded)
    assert [row.measurements for row in result.operators] == [48] * 3
    assert logged == []


def test_it_is_given_up_again_where_the_run_is_continued(run, log_lines):
    run("op0", operators=OPERATORS[:1])
    before = log_lines()
    result, logged = run("op0", budget={**BUDGET, "measurements": 60}, operators=OPERATORS[:1])
    assert (result.operators[0].measurements, len(logged)) == (16, 1)
    assert log_lines() == before, "nothing was measured again"


def test_an_operator_that_the_budget_did_not_reach_is_not_said_to_have_failed(run, capsys):
    result, _ = run(budget={"measurements": 2, "batch_size": 2, "scope": "network"})
    _print(result)
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("op2")]
    assert printed == ["op2: not measured; the measurement budget is spent"]
