"""Where devices are apart, a thread searches while the main thread looks after them."""

import threading
from collections import Counter

import pytest
from chameleon_core._errors import PluginError
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from stopping import StopAfter, interrupted
from synthetic import (
    RunnerOptions,
    SyntheticExplorer,
    SyntheticRunner,
    everything,
    plugin_of,
    record_of,
    synthetic_document,
    synthetic_registry,
)

OPERATORS = [[9, 9, 9], [8, 9, 10], [7, 9, 11]]


class Elsewhere(SyntheticRunner):
    """Times on two devices that a search does not disturb."""

    threads = set()

    @property
    def lanes(self):
        return 2

    def measure(self, job):
        self.threads.add(threading.current_thread().name)
        yield from super().measure(job)


class Tired(Elsewhere):
    @property
    def lanes(self):
        return -1


class Watched(SyntheticExplorer):
    """Notes the threads it is used by, and may fail."""

    threads = set()
    fails_after = 10**6

    def explore(self, score, visited, count):
        self.threads.add(threading.current_thread().name)
        if len(visited) >= self.fails_after:
            raise ValueError("lost my way")
        return super().explore(score, visited, count)


class FailsSoon(Watched):
    fails_after = 8


PLUGIN = plugin_of(
    runners=[record_of(one, RunnerOptions) for one in (Elsewhere, Tired)],
    explorers=[record_of(Watched), record_of(FailsSoon)],
)


def pipeline_of(folder, *, at_once=3, runner="elsewhere", explorer="watched"):
    document = synthetic_document(
        folder / "run", operators=OPERATORS, failing=20, baselines=[], explorer=explorer
    )
    document["runner"] = {"name": runner, "log": str(folder / "log")}
    document["budget"] = {"measurements": 18, "batch_size": 4, "tasks_at_once": at_once}
    return from_dict(document, registry=synthetic_registry(PLUGIN))


@pytest.fixture(autouse=True)
def nobody_searches_any_more():
    for noted in (Watched.threads, Elsewhere.threads):
        noted.clear()
    yield
    assert not [t.name for t in threading.enumerate() if t.name.startswith("search")]


def folder_of(parent, name):
    (parent / name).mkdir()
    return parent / name


def test_a_thread_searches_and_finds_what_it_would_find_alone(tmp_path):
    beside, alone = folder_of(tmp_path, "beside"), folder_of(tmp_path, "alone")
    run_pipeline(pipeline_of(beside))
    main = threading.current_thread().name
    assert {name.partition("_")[0] for name in Watched.threads} == {"search"}
    assert Elsewhere.threads == {main}, "workers may end with the thread that started them"
    Watched.threads.clear()
    run_pipeline(pipeline_of(alone, runner="synthetic"))
    assert Watched.threads == {main}, "a search would disturb what is timed"
    # Batches are measured in the order in which they are given, so that no clock decides anything.
    assert everything(beside) == everything(alone)


def test_one_task_at_a_time_needs_no_thread(tmp_path):
    run_pipeline(pipeline_of(tmp_path, at_once=1))
    assert Watched.threads == {threading.current_thread().name}


def test_a_search_that_fails_ends_the_run_and_keeps_what_was_measured(tmp_path):
    with pytest.raises(PluginError, match=r"explorer 'failssoon' failed to explore.*lost my way"):
        run_pipeline(pipeline_of(tmp_path, explorer="failssoon"))
    lines = (tmp_path / "log").read_text().splitlines()
    assert sum(len(result) for result in everything(tmp_path).values()) == len(lines) >= 8


@pytest.mark.full
@pytest.mark.parametrize("count", [1, 5, 13, 30])
def test_stopping_loses_nothing_and_going_on_repeats_nothing(tmp_path, count):
    calm, stopped = folder_of(tmp_path, "calm"), folder_of(tmp_path, "stopped")
    run_pipeline(pipeline_of(calm))
    interrupted(pipeline_of(stopped), StopAfter(count))
    lines = (stopped / "log").read_text().splitlines()
    assert sum(len(result) for result in everything(stopped).values()) == len(lines) >= count
    run_pipeline(pipeline_of(stopped))
    assert max(Counter((stopped / "log").read_text().splitlines()).values()) == 1
    assert everything(stopped) == everything(calm)


def test_a_runner_cannot_have_fewer_than_no_lanes(tmp_path):
    with pytest.raises(PluginError, match="runner 'tired' has -1 lanes"):
        run_pipeline(pipeline_of(tmp_path, runner="tired"))
