"""An interrupted run, continued, ends as an undisturbed one and measures nothing twice."""

import contextlib
import json
import multiprocessing
import random
import time
from collections import Counter

import pytest
from chameleon_core._loop.interruption import RunInterrupted
from chameleon_core._loop.run import run_pipeline
from chameleon_core._pipeline.load import from_dict
from chameleon_core.api import RecordStore
from hypothesis import given, settings
from hypothesis import strategies as st
from stopping import StopAfter, interrupted
from synthetic import everything, run_synthetic, synthetic_document, synthetic_registry


def synthetic(folder, **more):
    document = synthetic_document(
        folder / "run", failing=25, runner={"log": str(folder / "log")}, **more
    )
    return from_dict(document, registry=synthetic_registry())


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    result = run_pipeline(synthetic(folder))
    return everything(folder), [(o.name, o.config, o.tuned_seconds) for o in result.operators]


@pytest.mark.full
@settings(max_examples=8, deadline=None)
@given(stops=st.lists(st.integers(1, 15), min_size=1, max_size=4))
def test_resumed_equals_undisturbed(tmp_path_factory, undisturbed, stops):
    folder = tmp_path_factory.mktemp("resumed")
    for count in stops:
        stop = StopAfter(count)
        with contextlib.suppress(RunInterrupted):
            run_pipeline(synthetic(folder), listeners=[stop], interruption=stop.interruption)
    result = run_pipeline(synthetic(folder))
    records, winners = undisturbed
    assert everything(folder) == records
    assert [(o.name, o.config, o.tuned_seconds) for o in result.operators] == winners
    lines = (folder / "log").read_text().splitlines()
    # What was in flight when the run stopped was finished and saved, so not even that repeats.
    assert max(Counter(lines).values()) == 1


def test_a_stop_between_tuning_and_comparing_is_resumed(tmp_path, undisturbed):
    error = interrupted(synthetic(tmp_path), StopAfter(40))
    assert "saved" in str(error)
    assert "same command" in error.hint
    assert error.exit_code == 130
    result = run_pipeline(synthetic(tmp_path))
    assert [(o.name, o.config, o.tuned_seconds) for o in result.operators] == undisturbed[1]


def test_seconds_add_up_over_processes(tmp_path):
    before = 0.0
    for _ in range(3):
        interrupted(synthetic(tmp_path), StopAfter(5))
        with RecordStore.of_run(tmp_path / "run") as store:
            seconds = store.fact("seconds")
            assert seconds > before
            assert sum(task.spending.total for task in store.tasks()) <= seconds
        before = seconds
    assert run_pipeline(synthetic(tmp_path)).seconds > before


def document(folder, measurements):
    return synthetic_document(
        folder / "run",
        operators=[[40, 40], [9, 9, 9]],
        failing=10,
        runner={"log": str(folder / "log"), "delay": 0.005},
        budget={"measurements": measurements, "batch_size": 16},
    )


def lines(folder):
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def stored(folder):
    """Everything in the store by the line the runner logs for it, or nothing yet."""
    if not (folder / "run" / "records.sqlite").exists():
        return {}
    with RecordStore.of_run(folder / "run") as store:
        return {
            f"{task.task.name} {m.config}": m
            for task in store.tasks()
            for m in store.measurements(task.id)
        }


def killed(context, document, folder, chance):
    """Start the run in a process of its own and kill it at a random moment."""
    process = context.Process(target=run_synthetic, args=(document,))
    before = len(lines(folder))
    process.start()
    # One in five dies at any moment, starting up included; the others somewhat later, so that
    # the run gets on.
    wanted = 0 if chance.random() < 0.2 else chance.randrange(1, 24)
    while process.is_alive() and len(lines(folder)) < before + wanted:
        time.sleep(0.0005)
    time.sleep(chance.uniform(0, 0.05 if not wanted else 0.003))
    process.kill()
    process.join()


@pytest.mark.parametrize(
    "kills", [3, pytest.param(12, marks=pytest.mark.full), pytest.param(50, marks=pytest.mark.long)]
)
def test_killed_again_and_again(kills, tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["synthetic"])
    disturbed, calm = tmp_path / "disturbed", tmp_path / "calm"
    disturbed.mkdir()
    calm.mkdir()
    chance, measurements = random.Random(20), 90 if kills == 3 else 300
    for _ in range(kills):
        rows, count = stored(disturbed), len(lines(disturbed))
        killed(context, document(disturbed, measurements), disturbed, chance)
        now = stored(disturbed)
        assert rows.items() <= now.items(), "a finished measurement was lost"
        begun = lines(disturbed)[count:]
        assert not rows.keys() & set(begun), "a stored configuration was measured again"
        # One line is one measurement: at most the one in flight may be missing.
        assert len(set(begun) - now.keys() - {f"op{i} compare" for i in range(2)}) <= 1
    assert 5 * kills < len(stored(disturbed)) < 2 * measurements, (
        "the kills should fall within the run"
    )
    for folder in (disturbed, calm):
        process = context.Process(target=run_synthetic, args=(document(folder, measurements),))
        process.start()
        process.join()
        assert process.exitcode == 0
    assert stored(disturbed) == stored(calm)
    first, other = (
        json.loads((folder / "run" / "best.json").read_text()) for folder in (disturbed, calm)
    )
    for a, b in zip(first["operators"], other["operators"], strict=True):
        for key in ("name", "config", "best", "tuned_seconds", "measurements", "failed", "ratio"):
            assert a[key] == b[key]
