"""What cannot be delivered is refused before anything is measured; once is enough."""

import io
import json

import pytest
from chameleon_cli._progress import LiveProgress, PlainProgress
from chameleon_core._errors import ConfigError, ExitCode, PluginError
from chameleon_core._loop.run import run_pipeline
from chameleon_core.api import RecordStore
from structlog.testing import capture_logs
from synthetic import SyntheticFrontend


class Careful(SyntheticFrontend):
    """Finds that all is well."""

    asked = []

    def check(self, target, threads, earlier):
        self.asked.append((threads, earlier))
        return earlier or {"summary": "it compiles"}


class Compared(SyntheticFrontend):
    """Knows how long its framework takes."""

    seconds = 0.0

    def check(self, target, threads, earlier):
        return {"summary": "it compiles", "reference": "torch", "reference_seconds": self.seconds}


class Refusing(SyntheticFrontend):
    """Cannot be compiled."""

    def check(self, target, threads, earlier):
        raise ConfigError("operator svd in module head cannot be compiled", hint="Leave it out.")


class Wrong(SyntheticFrontend):
    """Finds what is no mapping."""

    def check(self, target, threads, earlier):
        return "fine"


class Idle(SyntheticFrontend):
    """Delivers, but has nothing to tune."""

    folder = "there"

    def tasks(self, target):
        return []

    def deliver(self, delivery):
        return {"folder": self.folder, "max_relative_error": 0.0, "rivals": {}}


class Nothing(SyntheticFrontend):
    """Has nothing to tune, and delivers nothing."""

    def tasks(self, target):
        return []


class Fragile(SyntheticFrontend):
    """Can be delivered in the second layout alone, which its check finds out."""

    steps = []

    def __init__(self, options):
        super().__init__(options)
        self.layout = "first"

    def check(self, target, threads, earlier):
        self.steps.append("check")
        self.layout = "second"
        return {"summary": "it compiles in the second layout"}

    def decide(self, trials):
        return {"layout": self.layout}

    def deliver(self, delivery):
        self.steps.append(f"deliver {self.layout}")
        if self.layout == "first":
            raise ConfigError("it cannot be delivered")
        return {"folder": "there", "max_relative_error": 0.0, "rivals": {}}


def test_the_check_comes_first_and_is_kept(modelled):
    Careful.asked.clear()
    result = run_pipeline(modelled(Careful, budget={"measurements": 1}))
    events = [json.loads(line) for line in (result.folder / "events.jsonl").open()]
    assert [event["event"] for event in events[:3]] == [
        "CheckStarted",
        "CheckFinished",
        "RunStarted",
    ]
    assert events[1]["found"] == {"summary": "it compiles"}
    with RecordStore.of_run(result.folder) as store:
        assert store.fact("check") == {"summary": "it compiles"}
    run_pipeline(modelled(Careful, budget={"measurements": 3}))
    assert [earlier for _, earlier in Careful.asked] == [None, {"summary": "it compiles"}]


@pytest.mark.parametrize(("seconds", "warnings"), [(0.0, 1), (1e9, 0)])
def test_a_network_slower_than_its_framework_is_said_once_there_are_guesses(
    modelled, monkeypatch, seconds, warnings
):
    monkeypatch.setattr(Compared, "seconds", seconds)
    with capture_logs() as lines:
        run_pipeline(modelled(Compared, budget={"measurements": 8}))
    slower = [line for line in lines if line["event"] == "first_guesses_slower_than_framework"]
    assert len(slower) == warnings


def test_nothing_is_measured_of_what_is_refused(modelled, log_lines):
    with pytest.raises(ConfigError, match="operator svd in module head") as caught:
        run_pipeline(modelled(Refusing))
    assert caught.value.exit_code == ExitCode.USAGE
    assert log_lines() == []


def test_without_measurements_the_check_waits_for_a_failure(modelled):
    Fragile.steps.clear()
    result = run_pipeline(modelled(Fragile, budget={"measurements": 0}))
    assert Fragile.steps == ["deliver first", "check", "deliver second"]
    assert (result.network.folder, result.exit_code) == ("there", ExitCode.OK)
    with RecordStore.of_run(result.folder) as store:
        assert store.fact("model") == {"layout": "second"}


@pytest.mark.parametrize(("measurements", "begun"), [(0, [1]), (3, [])])
def test_only_without_measurements_the_model_is_read_ahead(
    measurements, begun, modelled, monkeypatch
):
    threads = []
    monkeypatch.setattr(SyntheticFrontend, "begin", lambda _, number: threads.append(number))
    run_pipeline(modelled(Idle, budget={"measurements": measurements}))
    assert threads == begun


def test_without_measurements_a_refusal_is_an_error_as_ever(modelled, monkeypatch):
    monkeypatch.setattr(Fragile, "check", Refusing.check)
    with pytest.raises(ConfigError, match="operator svd in module head"):
        run_pipeline(modelled(Fragile, budget={"measurements": 0}))


def test_a_finding_that_is_no_mapping_is_the_plugins_mistake(modelled):
    with pytest.raises(PluginError, match="found a str instead of a mapping"):
        run_pipeline(modelled(Wrong))


def test_a_network_without_tasks_is_delivered(modelled, log_lines):
    result = run_pipeline(modelled(Idle))
    assert (result.operators, result.network.folder) == ((), "there")
    assert result.exit_code == ExitCode.OK
    assert log_lines() == []


def test_without_tasks_and_network_there_is_no_result(modelled, monkeypatch):
    monkeypatch.setattr(Idle, "folder", None)
    assert run_pipeline(modelled(Idle)).exit_code == ExitCode.NO_VALID_RESULT


def test_a_frontend_that_delivers_nothing_needs_tasks(modelled):
    with pytest.raises(ConfigError, match="no operator to tune"):
        run_pipeline(modelled(Nothing))


@pytest.mark.parametrize("kind", [PlainProgress, LiveProgress])
def test_the_progress_display_tells_of_the_check(modelled, kind):
    file = io.StringIO()
    progress = kind(file)
    run_pipeline(modelled(Careful), listeners=[progress])
    progress.close()
    text = file.getvalue()
    assert "checking before anything is tuned" in text
    assert "it compiles" in text
