"""Disturbances of a run's timing are in its result, whichever of its processes knew them."""

from __future__ import annotations

import contextlib
import json

from chameleon_core.loop.context import disturbance_of
from chameleon_core.loop.end.result import RunResult
from chameleon_core.loop.interruption import RunInterrupted
from chameleon_core.loop.run import run_pipeline
from chameleon_core.run_folder import read_store
from chameleon_core.stages import Disturbance
from synthetic import RunnerOptions, SyntheticRunner, record_of, registering

SHARED = Disturbance(core_seconds=10.0, others_seconds=2.0, pairs=4, kept=3)


class SharedRunner(SyntheticRunner):
    """Shares its cores with somebody."""

    def disturbance(self) -> Disturbance:
        return SHARED


class SharedRunners:
    """Registers it."""

    chameleon_runners = registering(record_of(SharedRunner, RunnerOptions, name="shared"))


def test_a_result_says_it_over_all_processes_of_the_run(pipeline, stop_after):
    made = pipeline(plugins=[SharedRunners()], runner={"name": "shared"})
    stop = stop_after(1)
    with contextlib.suppress(RunInterrupted):
        run_pipeline(made, listeners=[stop], interruption=stop.interruption)
    result = run_pipeline(made)
    assert result.disturbance == SHARED + SHARED
    kept = json.loads((result.folder / "best.json").read_text())
    assert kept["disturbance"]["others"] == 0.2
    assert kept["disturbance"]["trust"] == 0.75
    assert RunResult.from_json(kept, folder=result.folder).disturbance == SHARED + SHARED
    with read_store(result.folder) as store:
        assert disturbance_of(store) == SHARED + SHARED


def test_a_runner_that_cannot_tell_says_nothing(pipeline):
    result = run_pipeline(pipeline())
    assert result.disturbance == Disturbance()
    assert "disturbance" not in result.to_json()
