"""kill -9 of the process at random moments: nothing stored is lost, nothing stored is repeated."""

from __future__ import annotations

import json
import multiprocessing
import random
import time

import pytest
from chameleon_core.run_folder import read_store
from synthetic import run_synthetic, synthetic_document


def document(folder):
    return synthetic_document(
        folder / "run",
        operators=[[40, 40], [9, 9, 9]],
        failing=10,
        runner={"log": str(folder / "log"), "delay": 0.001},
        budget={"measurements": 300, "batch_size": 16},
    )


def lines(folder):
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def stored(folder):
    """Everything in the store by the line the runner logs for it, or nothing yet."""
    if not (folder / "run" / "records.sqlite").exists():
        return {}
    with read_store(folder / "run") as store:
        return {
            f"{task.task.name} {m.config}": m
            for task in store.tasks()
            for m in store.measurements(task.id)
        }


def killed(context, folder, chance):
    """Start the run in a process of its own and kill it at a random moment."""
    process = context.Process(target=run_synthetic, args=(document(folder),))
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


@pytest.mark.parametrize("kills", [20, pytest.param(50, marks=pytest.mark.long)])
def test_killed_again_and_again(kills, tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["synthetic"])
    disturbed, calm = tmp_path / "disturbed", tmp_path / "calm"
    disturbed.mkdir()
    calm.mkdir()
    chance = random.Random(20)
    for _ in range(kills):
        kept, told = stored(disturbed), len(lines(disturbed))
        killed(context, disturbed, chance)
        now = stored(disturbed)
        assert kept.items() <= now.items(), "a finished measurement was lost"
        begun = lines(disturbed)[told:]
        assert not kept.keys() & set(begun), "a stored configuration was measured again"
        # One line is one measurement: at most the one in flight may be missing.
        assert len(set(begun) - now.keys() - {f"op{i} compare" for i in range(2)}) <= 1
    assert 100 < len(stored(disturbed)) < 600, "the kills should fall within the run"
    for folder in (disturbed, calm):
        process = context.Process(target=run_synthetic, args=(document(folder),))
        process.start()
        process.join()
        assert process.exitcode == 0
    assert stored(disturbed) == stored(calm)
    one, other = (
        json.loads((folder / "run" / "best.json").read_text()) for folder in (disturbed, calm)
    )
    for a, b in zip(one["operators"], other["operators"], strict=True):
        for key in ("name", "config", "best", "tuned_seconds", "measurements", "failed", "ratio"):
            assert a[key] == b[key]
