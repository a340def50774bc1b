"""Who is told what, and what happens to a listener that fails."""

import errno
import io
import json
import re

import pytest
from chameleon_cli._progress import LiveProgress, PlainProgress, progress_for
from chameleon_core import _events as events
from chameleon_core._errors import RunFolderError
from chameleon_core._event_bus import EventBus, hook_of, listener
from chameleon_core._events import Event, RunFinished
from chameleon_core._loop.run import run_pipeline
from chameleon_core._plugins.event_hooks import EventHooks
from chameleon_core.api import RecordStore
from chameleon_core.plugin_api import hookimpl
from structlog.testing import capture_logs
from synthetic import synthetic_registry


def recording():
    """A listener of every event, and what it has heard."""
    events = []
    return listener(events.append, "recorder"), events


def test_the_events_of_a_run(pipeline, tmp_path):
    recorder, events = recording()
    result = run_pipeline(pipeline(failing=20), listeners=[recorder])
    names = [type(event).__name__ for event in events]
    assert names[0] == "RunStarted"
    assert names[-1] == "RunFinished"
    assert names.count("Measured") == 40
    assert names.count("BatchProposed") == names.count("BatchMeasured") == 10
    assert names.count("TaskFinished") == names.count("ComparisonStarted") == 2
    best = {e.task: e.seconds for e in events if type(e).__name__ == "BestImproved"}
    assert best == {operator.name: operator.search_seconds for operator in result.operators}
    assert events[-1].result == result.to_json()
    logged = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").open()]
    unlogged = {"Measured", "ComparisonProgressed"}
    assert [line["event"] for line in logged] == [name for name in names if name not in unlogged]
    started = [event for event in events if type(event).__name__ == "ComparisonStarted"]
    assert [(row.task, row.place, row.of) for row in started] == [("op0", 1, 2), ("op1", 2, 2)]
    steps = [e for e in events if type(e).__name__ == "ComparisonProgressed"]
    assert [(step.task, step.step, step.done, step.of) for step in steps] == [
        ("op0", "timed", 7, 7),
        ("op1", "timed", 7, 7),
    ]
    assert all(line["at"] > 0 for line in logged)


def test_every_event_has_its_hook():
    hooks = [name for name in vars(EventHooks) if name.startswith("chameleon_")]
    classes = [event for event in vars(events).values() if isinstance(event, type)]
    published = [event for event in classes if issubclass(event, Event) and event is not Event]
    assert [hook_of(event) for event in published] == hooks


def test_installed_plugins_are_told_once(pipeline, install):
    recorder, events = recording()
    plugins = install(synthetic_registry(recorder)).manager.get_plugins()
    with capture_logs() as logs:
        run_pipeline(pipeline(), listeners=plugins)
    assert [type(event).__name__ for event in events].count("RunFinished") == 1
    assert not logs


def test_without_what_writes_pages_a_run_is_silent_about_it(pipeline, install):
    install(synthetic_registry())
    with capture_logs() as logs:
        result = run_pipeline(pipeline())
    assert not logs
    assert {path.name for path in result.folder.iterdir()} == {
        *(".lock", "pipeline.yaml", "records.sqlite", "events.jsonl", "best.json")
    }


def test_what_is_answered_from_the_store_is_not_told_again(pipeline):
    run_pipeline(pipeline(budget={"measurements": 12, "batch_size": 4}))
    recorder, events = recording()
    run_pipeline(pipeline(), listeners=[recorder])
    started = events[0]
    assert [task.measured for task in started.tasks] == [12, 12]
    assert sum(type(event).__name__ == "Measured" for event in events) == 16


class Failing:
    calls = 0

    @hookimpl
    def chameleon_measured(self, event):
        Failing.calls += 1
        raise RuntimeError("a bad day")


def test_a_listener_that_fails_is_logged_and_switched_off(pipeline):
    Failing.calls = 0
    recorder, events = recording()
    with capture_logs() as logs:
        run_pipeline(pipeline(), listeners=[Failing(), recorder])
    assert Failing.calls == 1
    assert sum(type(event).__name__ == "Measured" for event in events) == 40
    assert [log["event"] for log in logs] == ["listener_switched_off"]


def test_a_listener_that_cannot_be_registered_is_left_out():
    class Wrong:
        @hookimpl
        def chameleon_measured(self, event, colour):
            pass

    with capture_logs() as logs:
        EventBus([Wrong()])
    assert logs[0]["event"] == "listener_left_out"


def test_a_log_on_a_full_disk_does_not_end_the_run(pipeline, tmp_path):
    (tmp_path / "run" / "events.jsonl").mkdir(parents=True)
    with capture_logs() as logs:
        result = run_pipeline(pipeline())
    assert len(result.operators) == 2
    assert len(logs) == 1


def test_a_full_disk_is_told_in_one_sentence(pipeline):
    class Report:
        @hookimpl
        def chameleon_run_finished(self, event):
            raise OSError(errno.ENOSPC, "No space left on device")

    with capture_logs() as logs:
        run_pipeline(pipeline(), listeners=[Report()])
    (logged,) = logs
    assert (logged["event"], logged["reason"]) == ("file_of_run_incomplete", "the disk is full")


def test_a_run_has_not_finished_before_all_is_written(pipeline, monkeypatch):
    """The runner's last words are the last thing that a run stores."""
    messages, store = [], RecordStore.set_fact

    class Listener:
        @hookimpl
        def chameleon_run_finished(self, event):
            messages.append("finished")

    def full(self, name, value):
        if name == "runner" and store_facts.count(name) == 1:
            raise RunFolderError("the disk is full", hint="free space")
        store_facts.append(name)
        store(self, name, value)

    store_facts = []
    monkeypatch.setattr(RecordStore, "set_fact", full)
    with pytest.raises(RunFolderError, match="full"):
        run_pipeline(pipeline(), listeners=[Listener()])
    assert messages == []


def test_tasks_that_end_for_one_reason_are_one_line(pipeline):
    file = io.StringIO()
    progress = PlainProgress(file)
    operators = [[9, 9 - row] for row in range(6)]
    budget = {"measurements": 8, "batch_size": 4, "scope": "network"}
    run_pipeline(
        pipeline(model={"synthetic": {"operators": operators}}, budget=budget, baselines=[]),
        listeners=[progress],
    )
    progress.close()
    lines = [line for line in file.getvalue().splitlines() if ": done, " in line]
    assert lines == ["6 tasks: done, the measurement budget is spent"]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("stream", "kind"), [(io.StringIO, PlainProgress), (Terminal, LiveProgress)]
)
def test_progress(pipeline, stream, kind):
    file = stream()
    progress = progress_for(file)
    assert type(progress) is kind
    with capture_logs() as logs:
        run_pipeline(pipeline(failing=20), listeners=[progress])
    progress.close()
    assert not logs
    text = file.getvalue()
    for word in ("op0", "op1", "GFLOP/s", "failed", "finished after"):
        assert word in text


def test_the_live_display_tells_rate_time_left_failures_and_the_comparison(pipeline):
    notes = []

    class Watched(LiveProgress):
        def watch(self):
            notes.extend(str(task.fields["note"]) for task in self._progress.tasks)

    watched = Watched(Terminal())

    class After:
        @hookimpl
        def chameleon_measured(self, event):
            watched.watch()

        @hookimpl
        def chameleon_comparison_started(self, event):
            watched.watch()

        @hookimpl
        def chameleon_comparison_progressed(self, event):
            watched.watch()

    run_pipeline(pipeline(failing=20), listeners=[watched, After()])
    text = "\n".join(notes)
    assert re.search(r"^\d+\.\d/s, \d+:\d\d left, failed \w+ \d", text, re.MULTILINE)
    assert re.search(r"^\d.* [mu]s, \d+\.\d GFLOP/s, \d+ failed$", text, re.MULTILINE)
    assert re.search(
        r"^op1: timing 3 candidates with \d rivals, operator 2 of 2$", text, re.MULTILINE
    )
    assert re.search(r"^op1: timing .*, timed 7 of 7 rounds$", text, re.MULTILINE)


def test_plain_progress_is_one_line_a_batch(pipeline):
    file = io.StringIO()
    run_pipeline(pipeline(), listeners=[PlainProgress(file)])
    lines = file.getvalue().splitlines()
    assert len([line for line in lines if "measured, failed" in line]) == 10
    assert lines[0].startswith("2 tasks, 40 measurements")
    assert "op1: timed 7 of 7 rounds" in lines
    assert "\x1b" not in file.getvalue()


class Ordered:
    """Says when it is told of the end of a run."""

    def __init__(self, name, heard, **options):
        def chameleon_run_finished(event):
            heard.append(name)

        self.chameleon_run_finished = hookimpl(chameleon_run_finished, **options)


def test_tryfirst_and_trylast_are_kept_and_a_wrapper_is_refused_with_a_sentence():
    class Wrapper:
        @hookimpl(wrapper=True)
        def chameleon_run_finished(self, event):
            raise AssertionError("called")
            yield

    heard = []
    listeners = [
        Ordered("last", heard, trylast=True),
        Ordered("second", heard),
        Wrapper(),
        Ordered("third", heard),
        Ordered("first", heard, tryfirst=True),
    ]
    with capture_logs() as said:
        EventBus(listeners).publish(RunFinished(folder="run", seconds=1.0, result={}))
    assert heard == ["first", "second", "third", "last"]
    (error,) = said
    assert (error["event"], error["log_level"]) == ("event_hook_left_out", "error")
    assert error["reason"].startswith("it implements chameleon_run_finished as a wrapper, which")
