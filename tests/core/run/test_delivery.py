"""The frontend compiles the network at the end of a run; what fails there is told, not raised."""

import errno
import json
import os
import shutil
import signal
import time
from typing import ClassVar

import attrs
import pytest
from chameleon_cli._results_table import print_network
from chameleon_cli._signals import signals
from chameleon_core._errors import ExitCode, RunFolderError, TargetError
from chameleon_core._loop.end.result import RunResult
from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._loop.run import run_pipeline
from chameleon_core._network_result import NetworkResult
from chameleon_core._run_view import RunView
from chameleon_core.plugin_api import SpaceProvider, hookimpl
from structlog.testing import capture_logs
from synthetic import RunnerOptions, SyntheticFrontend, SyntheticRunner

GIVEN = {
    "latency_seconds": 0.009,
    "untuned_seconds": 1.8,
    "rivals": {"torch": 0.025},
    "max_relative_error": 1e-6,
}

TOLD = {**GIVEN, "ratio": 0.025 / 0.009}
"""What a result says of it."""


class Delivering(SyntheticFrontend):
    """Delivers a network and says what it was given."""

    seen = []

    def deliver(self, delivery):
        self.seen.append(delivery)
        delivery.folder.mkdir()
        return {**GIVEN, "folder": str(delivery.folder), "reference": "torch"}


KERNELS = [
    {"name": "conv4", "tuned": True, "calls": 3, "seconds": 0.007},
    {"name": "pool", "tuned": False, "calls": 1, "seconds": 0.00198},
    {"name": "add", "tuned": False, "calls": 1, "seconds": 0.000015},
    {"name": "virtual machine", "tuned": False, "calls": 8, "seconds": 0.000005},
]


class Profiled(SyntheticFrontend):
    """Says where the time of its network goes."""

    def deliver(self, delivery):
        return {**GIVEN, "folder": str(delivery.folder), "kernels": KERNELS}


class Comparing(Delivering):
    """Says how far the comparison of its network is."""

    def deliver(self, delivery):
        delivery.plan.tell("built", 2, 3)
        delivery.plan.tell("timed", 1, 15)
        return super().deliver(delivery)


class Refusing(SyntheticFrontend):
    """Cannot deliver."""

    def deliver(self, delivery):
        raise TargetError("there is no compiler", hint="Install one.")


class Full(Delivering):
    """Finds the disk full the first time, as ``shutil`` reports it for several files."""

    full: ClassVar = []

    def deliver(self, delivery):
        with RunFolderError.on_full_disk(delivery.folder, lambda: 12_000_000):
            if not self.full:
                self.full.append(delivery.folder)
                reason = str(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
                raise shutil.Error([("from/weights.bin", "to/weights.bin", reason)])
            return super().deliver(delivery)


class Huge(Delivering):
    """Needs more space than any disk has."""

    def bytes_needed(self):
        return 10**18


class Broken(SyntheticFrontend):
    """Raises what nobody expects."""

    def deliver(self, delivery):
        raise ZeroDivisionError


class Wordless(Delivering):
    """Delivers, but fails to say how the result is used."""

    def usage(self, target):
        raise KeyError(target)


class Interrupted(SyntheticFrontend):
    """Is interrupted while it compiles, the first time."""

    left = []

    def deliver(self, delivery):
        if not self.left:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(900)
            finally:
                self.left.append("cleaned up")
        return GIVEN


class Swallowing(SyntheticFrontend):
    """Takes the interruption for a failure of its own."""

    def deliver(self, delivery):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(900)
        except KeyboardInterrupt as error:
            raise TargetError("a pass failed") from error


class Listener:
    """Keeps what it is told of comparisons."""

    def __init__(self):
        self.told = []

    @hookimpl
    def chameleon_comparison_started(self, event):
        self.told.append((event.task, event.rivals))

    @hookimpl
    def chameleon_comparison_progressed(self, event):
        self.told.append((event.task, event.step, event.done, event.of))


def _run(modelled, frontend, interruption=None, listeners=(), **more):
    resolved = modelled(frontend, [[5, 5], [4]], **more)
    return run_pipeline(resolved, listeners=listeners, interruption=interruption)


def test_the_comparison_of_a_network_is_told_and_has_a_quarter_of_the_run(modelled):
    Delivering.seen.clear()
    listener = Listener()
    result = _run(modelled, Comparing, listeners=[listener])
    assert listener.told[-3:] == [
        ("the network", 2),
        ("the network", "built", 2, 3),
        ("the network", "timed", 1, 15),
    ]
    [delivery] = Delivering.seen
    allowed = delivery.plan.seconds
    assert 0 < allowed <= result.seconds / 3, "a quarter with what was before it"


def test_the_winners_are_compiled(modelled):
    Delivering.seen.clear()
    result = _run(modelled, Delivering)
    [delivery] = Delivering.seen
    assert [(w.task.name, w.config, w.seconds) for w in delivery.winners] == [
        (operator.name, operator.config, operator.tuned_seconds) for operator in result.operators
    ]
    assert isinstance(delivery.space, SpaceProvider)
    assert delivery.folder == result.folder / "network"
    assert result.exit_code is ExitCode.OK
    written = json.loads((result.folder / "best.json").read_text())
    assert written["network"] == {**TOLD, "reference": "torch", "folder": str(delivery.folder)}
    assert RunResult.from_json(written, folder=result.folder).network == result.network


def test_winners_come_with_the_fastest_of_other_algorithms(modelled):
    Delivering.seen.clear()
    result = _run(modelled, Delivering)
    [delivery] = Delivering.seen
    with RunView(result.folder) as run:
        again = {winner.task.key: winner.others for winner in run.winners}
        measured = {row.task.key: run.store.measurements(row.id) for row in run.store.tasks()}
    for winner in delivery.winners:
        fastest = {}
        for row in sorted(measured[winner.task.key], key=lambda row: row.cost):
            if row.ok and row.config[0] != winner.config[0]:
                fastest.setdefault(row.config[0], (row.config, row.cost))
        assert fastest, "the search measures several values of each knob"
        found = [(other.config, other.seconds) for other in winner.others]
        assert found == [*fastest.values()]
        assert again[winner.task.key] == winner.others


def test_a_finished_run_whose_network_is_gone_says_so_and_keeps_its_result(modelled, tmp_path):
    first = _run(modelled, Delivering)
    written = (first.folder / "best.json").read_bytes()
    Delivering.seen.clear()
    for _ in range(2):
        assert _run(modelled, Delivering) == first
        assert (first.folder / "best.json").read_bytes() == written
        (first.folder / "best.json").unlink()
    network = first.folder / "network"
    network.rmdir()
    with capture_logs() as logs:
        without = _run(modelled, Delivering)
    command = f"`chameleon compile {first.folder}`"
    assert command in without.network.failure
    assert [command in log["problem"] for log in logs if log["log_level"] == "warning"] == [True]
    assert without.exit_code is ExitCode.NO_VALID_RESULT
    assert without.summary_lines == []
    assert (first.folder / "best.json").read_bytes() == written
    network.write_text("the network of a plugin may be a file")
    assert _run(modelled, Delivering) == first
    moved = first.folder.rename(tmp_path / "moved")
    assert _run(modelled, Delivering, output=moved).network == first.network
    assert not Delivering.seen


def test_a_failure_leaves_the_operators_results(modelled, tmp_path):
    for number, (frontend, words) in enumerate(
        ((Refusing, "there is no compiler"), (Broken, "failed to deliver"))
    ):
        result = _run(modelled, frontend, output=tmp_path / str(number))
        assert words in result.network.failure
        assert result.exit_code is ExitCode.NO_VALID_RESULT
        assert all(operator.tuned_seconds for operator in result.operators)


def test_a_run_whose_disk_was_full_in_delivery_is_continued(modelled, records, tmp_path):
    Full.full.clear()
    with pytest.raises(RunFolderError, match=r"needs about 12 MB each in .*are free") as caught:
        _run(modelled, Full)
    assert str(tmp_path / "run" / "network") in str(caught.value)
    assert "same command again" in caught.value.hint
    stored = records(tmp_path / "run")
    result = _run(modelled, Full)
    assert result.exit_code is ExitCode.OK
    assert records(tmp_path / "run") == stored, "nothing was measured again"


def test_free_space_is_checked_before_tuning(modelled, records, tmp_path, monkeypatch):
    monkeypatch.setattr(SyntheticRunner, "measures_hardware", True)
    with pytest.raises(RunFolderError, match=r"needs about 1e\+12 MB in .*run, where"):
        _run(modelled, Huge)
    assert not any(records(tmp_path / "run").values())


def test_a_result_is_kept_if_nobody_knows_how_to_use_it(modelled, monkeypatch):
    monkeypatch.setattr(SyntheticRunner, "measures_hardware", True)
    with capture_logs() as logs:
        result = _run(modelled, Wordless)
    assert (result.exit_code, result.usage) == (ExitCode.OK, "")
    assert (result.folder / "best.json").exists()
    assert "KeyError" in next(log["problem"] for log in logs if "problem" in log)


@pytest.mark.parametrize("frontend", [Interrupted, Swallowing])
def test_a_signal_cuts_the_delivery_short(modelled, records, tmp_path, frontend):
    Interrupted.left.clear()
    interruption = Interruption()
    started = time.monotonic()
    with signals(interruption), pytest.raises(RunInterrupted) as caught:
        _run(modelled, frontend, interruption)
    assert time.monotonic() - started < 800, "it did not wait for the end"
    assert caught.value.exit_code is ExitCode.INTERRUPTED
    stored = records(tmp_path / "run")
    assert all(stored.values())
    if frontend is Interrupted:
        assert Interrupted.left == ["cleaned up"]
        assert _run(modelled, frontend).network.to_json() == TOLD
        assert records(tmp_path / "run") == stored, "nothing was measured again"


def test_a_model_that_is_no_network_delivers_none(pipeline):
    assert run_pipeline(pipeline()).network == NetworkResult()


def test_where_the_time_goes_is_kept_and_shown(modelled, capsys):
    result = _run(modelled, Profiled)
    written = json.loads((result.folder / "best.json").read_text())
    assert written["network"]["kernels"] == KERNELS
    assert RunResult.from_json(written, folder=result.folder).network.to_json() == (
        result.network.to_json()
    )
    print_network(result.network)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["conv4", "3", "7.00", "ms", "77.8%"] in rows
    assert ["pool", "(not", "tuned)", "1", "1.98", "ms", "22.0%"] in rows
    assert ["2", "others", "9", "20.0", "µs", "0.2%"] in rows


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
    jobs = []

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
def _clocked(modelled, plugin, records, monkeypatch):
    """Runs two tasks and an alternative of each; what was measured of whom, and the result."""

    def run(longer=SHORT):
        monkeypatch.setattr(ClockedRunner, "longer", longer)
        monkeypatch.setattr(ClockedRunner, "jobs", [])
        resolved = modelled(
            WithAlternatives,
            [[9, 9], [7, 7]],
            plugins=[plugin("runners", ClockedRunner, RunnerOptions)],
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
    modelled, records, tmp_path, scope
):
    def measured(kind, folder):
        budget = {"measurements": MEASUREMENTS, "batch_size": 4, "scope": scope}
        resolved = modelled(kind, [[9, 9], [7, 7]], budget=budget, output=tmp_path / folder)
        return records(run_pipeline(resolved).folder)

    alone, beside = measured(SyntheticFrontend, "alone"), measured(WithAlternatives, "beside")
    assert {name: set(result) for name, result in alone.items()} == {
        name: set(result) for name, result in beside.items() if name in alone
    }
    others = [len(result) for name, result in beside.items() if name not in alone]
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
    answer, result = clocked(longer)
    others = {name: len(row) for name, row in answer.items() if "small" in name}
    assert sum(others.values()) == measured
    assert min(others.values()) > 0, "each is measured once, whatever that takes"
    reasons = {operator.ended for operator in result.operators if "small" in operator.name}
    assert reasons == {
        "the measurement budget is spent"
        if longer == SHORT
        else "the share of the time that other types may take is spent"
    }


def test_what_is_slower_than_what_an_alternative_has_to_beat_is_timed_no_further(clocked):
    _, result = clocked()
    best = {operator.name: operator.search_seconds for operator in result.operators}
    for name in ("op0", "op1"):
        first = next(job for job in ClockedRunner.jobs if job.task.name == f"{name} small")
        assert first.best_seconds == best[name]
    own = [job.best_seconds for job in ClockedRunner.jobs if job.task.name == "op0"]
    assert own[0] == float("inf"), "nothing has to be beaten by a task of the network as it is"


@pytest.mark.parametrize(("measurements", "count"), [(2, 1), (0, 2)])
def test_alternatives_that_the_budget_did_not_reach_are_told_apart(modelled, measurements, count):
    """If the budget reached none, nothing came of the wish for other types."""
    budget = {"measurements": measurements, "batch_size": 1, "scope": "network"}
    tasks = [[9, 9], [7, 7]]
    with capture_logs() as logs:
        run_pipeline(modelled(DeliveringWithAlternatives, tasks, budget=budget, baselines=[]))
    logged = {log["event"]: log for log in logs if "did not reach" in log.get("reason", "")}
    [(event, log)] = logged.items()
    assert event == "other_dtypes_not_used"
    assert (log["count"], log["of"]) == (count, 2)
    assert log["log_level"] == ("warning" if count == 2 else "info")
    assert log["operators"][0].endswith(" small")
