"""What a run folder tells: its state, what its times were taken by, and of its network."""

import json

import pytest
from chameleon_cli._main import run as command_line
from chameleon_core._errors import ExitCode, PluginError, RunFolderError
from chameleon_core._loop.context import disturbance_of
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.run import run_pipeline
from chameleon_core._run_folder import RunFolder
from chameleon_core._run_view import RunState, RunView, TimeSource
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import Disturbance
from hypothesis import given
from hypothesis import strategies as st
from stopping import StopAfter, interrupted
from synthetic import (
    RunnerOptions,
    SyntheticExplorer,
    SyntheticNetwork,
    SyntheticRunner,
)


class Raising(SyntheticExplorer):
    """An explorer with a bug, until somebody mends it."""

    mended = False

    def explore(self, *args, **options):
        if not self.mended:
            raise ValueError("no way on")
        return super().explore(*args, **options)


class Network(SyntheticNetwork):
    """Is checked beforehand."""

    def check(self, target, threads, earlier):
        return {"summary": "fine"}


class Untimed(Network):
    """Delivers one that nobody timed."""

    def deliver(self, delivery):
        delivery.folder.mkdir()
        return {"max_relative_error": 1e-6, "folder": str(delivery.folder)}


class Undelivered(Network):
    """Delivers none."""

    def deliver(self, delivery):
        return {"failure": "the outputs of op0 are wrong"}


TWO = ((5, 5), (4,))
"""Two operators."""


def stopped(resolved):
    """The folder of a run that was stopped after its first batch."""
    interrupted(resolved, StopAfter(batches=1))
    return resolved.output


def standing(folder):
    with RunView(folder) as run:
        return run.standing


def summary(folder):
    with RunView(folder) as run:
        return run.network


def told(capsys, *words):
    capsys.readouterr()
    command_line([str(word) for word in words])
    return capsys.readouterr().out


def test_a_run_is_running_until_its_process_lets_go(pipeline):
    folder = run_pipeline(pipeline()).folder
    with RunFolder(folder):
        assert standing(folder).state is RunState.RUNNING
        assert not standing(folder).ended
    assert standing(folder).state is RunState.FINISHED
    assert standing(folder).ended


def test_one_that_was_asked_to_stop_is_stopped(pipeline):
    assert standing(stopped(pipeline())).state is RunState.INTERRUPTED


def test_one_that_an_error_ended_has_failed_until_it_goes_on(pipeline, plugin, monkeypatch):
    broken = pipeline(plugins=[plugin("explorers", Raising)], explorer="odd")
    with pytest.raises(PluginError):
        run_pipeline(broken)
    status = standing(broken.output)
    assert status.state is RunState.FAILED
    assert "no way on" in status.because
    monkeypatch.setattr(Raising, "mended", True)
    assert standing(stopped(broken)).state is RunState.INTERRUPTED
    run_pipeline(broken)
    assert standing(broken.output).state is RunState.FINISHED


def test_what_is_refused_does_not_make_a_run_fail(pipeline):
    folder = run_pipeline(pipeline()).folder
    with pytest.raises(RunFolderError, match="another pipeline"):
        run_pipeline(pipeline(seed=5))
    assert standing(folder).state is RunState.FINISHED


def test_one_without_a_valid_result_has_failed(pipeline):
    result = run_pipeline(pipeline(failing=100))
    assert result.exit_code == ExitCode.NO_VALID_RESULT
    status = standing(result.folder)
    assert status.state is RunState.FAILED
    assert status.because == "no configuration of op0, op1 has a valid time"


def test_times_are_from_the_comparison_where_there_was_one(pipeline, capsys):
    result = run_pipeline(pipeline())
    with RunView(result.folder) as run:
        for operator in run.operators:
            assert operator.time.source is TimeSource.COMPARISON
            assert operator.time.seconds == operator.result.tuned_seconds
    assert "comparison" in told(capsys, "status", result.folder)
    assert ", from the comparison" in told(capsys, "best", result.folder)


@pytest.mark.parametrize("whole", [True, False])
def test_times_are_from_the_search_otherwise(pipeline, capsys, whole):
    # The candidates of a single batch were timed in turns already.
    resolved = pipeline(baselines=[], budget={"measurements": 20, "batch_size": 20})
    folder = run_pipeline(resolved).folder if whole else stopped(resolved)
    with RunView(folder) as run:
        operator = run.operators[0]
        assert operator.time.source is TimeSource.SEARCH
        assert operator.time.seconds == operator.result.search_seconds
    value = json.loads(told(capsys, "status", folder, "--json"))
    assert value["network"] is None
    assert value["operators"][0]["seconds_from"] == "search"
    assert value["operators"][0]["seconds"] == value["operators"][0]["best_seconds"]
    assert "from the search" in told(capsys, "best", folder)


def test_a_network_s_time_is_from_the_comparison(modelled, capsys):
    folder = run_pipeline(modelled(Network, TWO)).folder
    result = summary(folder)
    assert (result.seconds, result.source) == (0.008, TimeSource.COMPARISON)
    said = "network: 8.00 ms, from the comparison at the end (torch 16.0 ms, untuned 1.80 s)\n"
    assert said in told(capsys, "status", folder)
    assert told(capsys, "best", folder).startswith(said)
    for command in ("status", "best"):
        network = json.loads(told(capsys, command, folder, "--json"))["network"]
        assert (network["seconds"], network["seconds_from"]) == (0.008, "comparison")
        assert network["result"]["rivals"] == {"torch": 0.016}


def test_before_it_was_timed_it_is_the_sum_of_its_operators(modelled, capsys):
    folder = run_pipeline(modelled(Untimed, TWO, baselines=[])).folder
    result = summary(folder)
    with RunView(folder) as run:
        operators = [operator.result for operator in run.operators]
    total = sum(operator.search_seconds * operator.task["weight"] for operator in operators)
    assert result.source is TimeSource.SEARCH
    assert result.seconds == pytest.approx(total)
    assert "delivered, but not timed; its 2 operators take" in told(capsys, "status", folder)


def test_while_operators_wait_the_sum_says_how_many_it_has(modelled, capsys):
    folder = stopped(modelled(Network, TWO))
    result = summary(folder)
    assert (result.measured, result.operators) == (1, 2)
    said = told(capsys, "status", folder)
    assert "network: not compiled yet; 1 of its 2 operators take" in said
    assert "as the search measured it" in said


def test_a_network_that_was_not_delivered_says_why(modelled, capsys):
    folder = run_pipeline(modelled(Undelivered, TWO)).folder
    assert standing(folder).because == "the outputs of op0 are wrong"
    said = told(capsys, "status", folder)
    assert ": failed, " in said
    assert "network: not delivered; the outputs of op0 are wrong" in said


def test_fresh_says_where_the_earlier_run_went(pipeline, capsys):
    folder = run_pipeline(pipeline()).folder
    capsys.readouterr()
    run_pipeline(pipeline(seed=3), fresh=True)
    assert str(folder / "earlier-1") in capsys.readouterr().out
    assert standing(folder / "earlier-1").state is RunState.FINISHED


SHARED = Disturbance(core_seconds=10.0, others_seconds=2.0, pairs=4, kept=3)


class SharedRunner(SyntheticRunner):
    """Shares its cores with somebody."""

    def disturbance(self):
        return SHARED


def test_a_result_says_it_over_all_processes_of_the_run(pipeline, plugin):
    shared = plugin("runners", SharedRunner, RunnerOptions)
    resolved = pipeline(plugins=[shared], runner={"name": "odd"})
    interrupted(resolved, StopAfter(1))
    result = run_pipeline(resolved)
    assert result.disturbance == SHARED + SHARED
    stored = json.loads((result.folder / "best.json").read_text())
    assert stored["disturbance"]["others"] == 0.2
    assert stored["disturbance"]["trust"] == 0.75
    assert RunResult.from_json(stored, folder=result.folder).disturbance == SHARED + SHARED
    with RecordStore.of_run(result.folder) as store:
        assert disturbance_of(store) == SHARED + SHARED


def test_a_runner_that_cannot_tell_says_nothing(pipeline):
    result = run_pipeline(pipeline())
    assert result.disturbance == Disturbance()
    assert "disturbance" not in result.to_json()


SUMS = st.builds(
    Disturbance,
    core_seconds=st.integers(0, 100),
    stolen_seconds=st.integers(0, 100),
    others_seconds=st.integers(0, 100),
    pairs=st.integers(0, 100),
    kept=st.integers(0, 100),
)


@given(SUMS, SUMS)
def test_sums_of_several_processes_add_up(one, other):
    both = one + other
    assert both == other + one
    assert both.pairs == one.pairs + other.pairs
    assert one + Disturbance() == one
    assert Disturbance.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_nothing_is_said_of_what_nobody_knows():
    nothing = Disturbance()
    assert (nothing.summary, nothing.disturbed, nothing.trust) == ("", False, None)
    assert nothing.to_json()["others"] is None


@pytest.mark.parametrize(
    ("disturbance", "warns"),
    [
        (Disturbance(core_seconds=100.0, others_seconds=4.0, pairs=10, kept=8), False),
        (Disturbance(core_seconds=100.0, others_seconds=6.0, pairs=10, kept=10), True),
        (Disturbance(core_seconds=100.0, stolen_seconds=6.0), True),
        (Disturbance(core_seconds=100.0, others_seconds=3.0, stolen_seconds=3.0), True),
        (Disturbance(pairs=10, kept=7), True),
    ],
)
def test_a_warning_has_a_reason(disturbance, warns):
    assert disturbance.disturbed == warns
    assert ("idle cores" in disturbance.summary) == warns


def test_shares_are_told_in_words():
    disturbance = Disturbance(
        core_seconds=200.0, stolen_seconds=3.0, others_seconds=50.0, pairs=120, kept=96
    )
    assert disturbance.summary == (
        "During timing, other processes took 25.0% of the cores' time, and other virtual machines "
        "took 1.5%. The fastest candidates were timed twice; 80% of 120 pairs kept their order. "
        "Tune on idle cores before you trust small differences."
    )
